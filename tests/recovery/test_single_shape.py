"""Pods with one container, which polls and then runs: `started` is true from boot, and proves nothing.

What such a Pod does, and how it ended, follows from its row's claim, its polls, GitHub and its log
(S1's last paragraph).
"""

from __future__ import annotations

import json

import pytest

from paddock.domain.ids import RunnerId
from paddock.domain.names import PoolName, pod_name
from paddock.domain.runners.endings import Retired
from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState
from tests.support.recovery import Yard, waiting
from tests.support.runner_rows import read_runner


@pytest.fixture
async def single(scene: Yard) -> Yard:
    await scene.world.rows("UPDATE pools SET shape = 'single' RETURNING 1")
    return scene


async def up(yard: Yard) -> Runner:
    """Idle, in a container that has started."""
    runner = await yard.idle()
    yard.fleet.end_poller(runner.pod_name)
    return runner


async def ended(yard: Yard, runner: Runner, exit_code: int) -> tuple[str, dict[str, object]]:
    yard.fleet.end_runner(runner.pod_name, exit_code=exit_code)
    await yard.rounds(yard.recovery())
    verdict = await yard.verdict(runner)
    return verdict["ending"], json.loads(verdict["evidence"])


async def test_one_that_waits_for_work_in_a_started_container_is_left_alone(single: Yard) -> None:
    """In the gated shape the same status means a busy runner unknown to its row (I34)."""
    runner, recovery = await up(single), single.recovery()
    uid = single.fleet.pods[runner.pod_name].uid
    for _ in range(30):
        await single.world.store.hear_pod(runner.pod_name, pod_uid=uid)
        await single.rounds(recovery, 20)
    assert (await single.row(runner)).state is RunnerState.IDLE
    assert await single.actions() == []


async def test_one_that_failed_while_it_waited_is_a_crash_without_a_job(single: Yard) -> None:
    """Its exit code is the poller's; the started container is no evidence of a job."""
    ending, evidence = await ended(single, await up(single), 1)
    assert ending == "crash"
    assert (evidence["started"], evidence["job"]) == ("unknown", "no")


async def test_one_that_was_sent_away_while_it_waited_has_left(single: Yard) -> None:
    runner = await single.fenced(await up(single), retired=Retired.UNWANTED)
    ending, _ = await ended(single, runner, 79)
    assert ending == "left"


async def test_one_that_was_sent_away_and_killed_has_not_left(single: Yard) -> None:
    """No component of paddock killed it, and its row may know less than there is to know (I70): seed
    59."""
    runner = await single.fenced(await up(single), retired=Retired.UNWANTED)
    ending, _ = await ended(single, runner, 137)
    assert ending == "guest-oom-or-kill"


async def test_one_that_ended_with_its_jit_may_have_had_a_job(single: Yard) -> None:
    """Its class is still open: GitHub is asked later."""
    runner = await single.running()
    _, evidence = await ended(single, runner, 0)
    assert (evidence["started"], evidence["job"]) == ("unknown", "unknown")


async def test_one_that_was_sent_away_before_a_list_showed_it_has_left(single: Yard) -> None:
    """It was created and deleted from outside between two readings."""
    name = pod_name(PoolName("linux"), "neverseen")
    [planned] = await single.world.store.plan_runners(
        single.pool, [(RunnerId(single.world.ids.uuid()), name)], why="test"
    )
    await single.fenced(planned, retired=Retired.UNWANTED)
    await up(single)  # a fleet without any Pods proves nothing
    await single.rounds(single.recovery(), 400)
    assert (await single.row(planned)).state is RunnerState.GONE
    assert (await single.verdict(planned))["ending"] == "left"


async def claimed(yard: Yard) -> Runner:
    """A state that a backup taken during the mint may leave: its row knows nothing that came after.
    The Pod got its JIT and does not poll again."""
    idle = await up(yard)
    await yard.world.queue(yard.account, yard.key, 1)
    [claim] = (await yard.world.store.match([waiting(idle)])).claims
    found = await read_runner(yard.world.store, claim.runner)
    assert found is not None
    return found


async def test_a_claim_is_not_released_under_a_runner_at_work(single: Yard) -> None:
    """I70: otherwise its account would get one runner too many."""
    runner = await claimed(single)
    single.says(runner, "Running job: build")
    await single.rounds(single.recovery(), 900)
    assert (await single.row(runner)).state is RunnerState.CLAIMED
    assert single.deleted == []
    assert {rule for rule, _ in await single.actions()} == {"executing"}


async def test_a_claim_is_not_released_while_its_outcome_is_unknown(
    single: Yard,
) -> None:
    """I70"""
    runner = await claimed(single)
    single.github.down = True
    single.says(runner, "Listening for Jobs")
    await single.rounds(single.recovery(), 900)
    assert (await single.row(runner)).state is RunnerState.CLAIMED
    assert single.deleted == []


async def test_a_stale_claim_of_one_that_shows_no_job_is_given_up(single: Yard) -> None:
    runner = await claimed(single)
    single.says(runner, '{"at": "2026-01-05T09:00:00Z", "event": "polling"}')
    await single.rounds(single.recovery(), 600)
    assert (await single.row(runner)).state is RunnerState.GONE
    assert set(single.deleted) == {runner.pod_name}
    assert ("claim-in-doubt", "done") in await single.actions()
