"""Retirements by force, and runners of an account that has removed the App."""

from __future__ import annotations

import asyncpg
import pytest

from paddock.domain.accounts import CONFIRMED_APART, InstallationFacts
from paddock.domain.recovery.durations import HOUR
from paddock.domain.runners.runner import Conflict, Runner
from paddock.domain.states import RunnerState
from paddock.recovery.by_hand import retire_by_hand
from tests.support.recovery import Yard

APART = CONFIRMED_APART.total_seconds()
INSTALLATION = 1001


async def busy(scene: Yard) -> Runner:
    """A runner that executes a job by all evidence."""
    runner = await scene.running()
    scene.says(runner, "Running job: build")
    scene.github.say(runner, busy=True)
    await scene.rounds(scene.recovery())
    occupied = await scene.world.store.occupy_runner(
        runner.id, generation=runner.generation, job=None, why="test"
    )
    assert isinstance(occupied, Runner)
    return occupied


async def remove(scene: Yard, *, times: int = 1, apart: float = APART) -> None:
    for _ in range(times):
        await scene.world.store.remove_installation(scene.world.host, INSTALLATION)
        scene.world.clock.advance(apart)


async def test_a_retirement_without_force_is_given_up_when_a_job_is_on_it(scene: Yard) -> None:
    runner = await busy(scene)
    await retire_by_hand(scene.world.store, runner.pod_name, why="test")
    await scene.rounds(scene.recovery(), 30)
    assert (await scene.row(runner)).state is RunnerState.BUSY
    assert scene.deleted == []


async def test_by_force_it_ends_and_the_verdict_names_who_and_why(scene: Yard) -> None:
    """I36: in the name of an operator; GitHub and its log say that it executes a job."""
    runner = await busy(scene)
    pod = scene.fleet.pods[runner.pod_name]
    operator = scene.world.store.acting_as("operator:ana")
    forced = await retire_by_hand(operator, runner.pod_name, why="it hangs", force=True)
    assert forced is not None
    assert (forced.state, forced.forced_by) == (RunnerState.RETIRING, "operator:ana")
    await scene.rounds(scene.recovery(), 40)

    assert (pod.name, pod.uid) in scene.fleet.deletions
    assert (await scene.row(runner)).state is RunnerState.GONE
    verdict = await scene.verdict(runner)
    assert verdict["ending"] == "terminated"
    assert "forced by operator:ana: it hangs" in verdict["why"]
    [event] = await scene.world.rows(
        "SELECT actor, why FROM events WHERE runner_id = $1 AND actor LIKE 'operator:%'", runner.id
    )
    assert (event["actor"], event["why"]) == ("operator:ana", "it hangs")


async def test_a_retirement_under_way_can_be_forced_once(scene: Yard) -> None:
    runner = await scene.fenced(await scene.running())
    scene.github.down = True
    await scene.rounds(scene.recovery(), 60)
    assert scene.deleted == []
    store = scene.world.store
    assert await retire_by_hand(store, runner.pod_name, why="test") is None
    assert await retire_by_hand(store, runner.pod_name, why="test", force=True) is not None
    assert await retire_by_hand(store, runner.pod_name, why="again", force=True) is None
    await scene.rounds(scene.recovery(), 20)
    assert set(scene.deleted) == {runner.pod_name}


async def test_nothing_brings_back_what_was_forced(scene: Yard) -> None:
    runner = await busy(scene)
    forced = await retire_by_hand(scene.world.store, runner.pod_name, why="test", force=True)
    assert forced is not None
    moved = await scene.world.store.occupy_runner(
        runner.id, generation=forced.generation, job=None, why="an event"
    )
    assert isinstance(moved, Conflict)
    with pytest.raises(asyncpg.CheckViolationError, match="forced_is_final"):
        await scene.world.rows(
            "UPDATE runners SET state = 'busy', version = version + 1 WHERE id = $1 RETURNING 1",
            runner.id,
        )


async def test_a_removal_is_counted_once_within_ten_minutes(scene: Yard) -> None:
    """I29"""
    await remove(scene, times=5, apart=60)
    assert await scene.world.store.removed_accounts() == {scene.account: 1}
    scene.world.clock.advance(APART)
    await remove(scene, times=2)
    assert await scene.world.store.removed_accounts() == {scene.account: 3}


async def test_an_installation_that_is_back_was_not_removed(scene: Yard) -> None:
    """I29"""
    await remove(scene, times=3)
    await scene.world.store.record_installation(
        InstallationFacts(
            host=scene.world.host,
            app=scene.world.app,
            id=INSTALLATION,
            account_id=2001,
            login="org-1",
            kind="organization",
            state="suspended",
            all_repositories=True,
        )
    )
    assert await scene.world.store.removed_accounts() == {}
    await remove(scene)
    assert await scene.world.store.removed_accounts() == {scene.account: 1}


async def test_removed_installations_are_asked_for_while_their_runners_live(scene: Yard) -> None:
    await remove(scene)
    assert await scene.world.store.removed_installations(scene.world.app) == []
    await scene.world.rows("UPDATE installations SET state = 'active' RETURNING 1")
    await scene.running()
    await remove(scene)
    assert await scene.world.store.removed_installations(scene.world.app) == [INSTALLATION]


async def test_a_removed_account_keeps_a_stopped_runner_for_five_days(scene: Yard) -> None:
    """I27, I29: an hour longer than GitHub lets any job run, and not a minute less."""
    runner = await busy(scene)
    await remove(scene, times=3)
    recovery = scene.recovery()
    scene.world.clock.advance(120 * HOUR)
    await scene.rounds(recovery, 60)
    assert (await scene.row(runner)).state is RunnerState.BUSY
    scene.world.clock.advance(HOUR)
    await scene.rounds(recovery, 60)
    assert set(scene.deleted) == {runner.pod_name}
    verdict = await scene.verdict(runner)
    assert "account-removed" in verdict["why"]


@pytest.mark.parametrize("times", [0, 2])
async def test_what_was_not_confirmed_ends_nothing(scene: Yard, times: int) -> None:
    """I29"""
    runner = await busy(scene)
    await remove(scene, times=times)
    scene.world.clock.advance(1000 * HOUR)
    await scene.rounds(scene.recovery(), 60)
    assert (await scene.row(runner)).state is RunnerState.BUSY
    assert scene.deleted == []
