"""Pods of one container, which polls and then runs: `started` is true from boot, and says nothing.

What such a Pod is at, and how it ended, is told by what its row was given, by its polls, by GitHub
and by its log (S1's last paragraph).
"""

from __future__ import annotations

import json

import pytest

from paddock.domain.endings import Retired
from paddock.domain.runners import Runner
from paddock.domain.states import RunnerState
from tests.support.recovery import Yard


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
    """In the gated shape the same sight is a runner at work that its row knows nothing of (I34)."""
    runner, recovery = await up(single), single.recovery()
    uid = single.fleet.pods[runner.pod_name].uid
    for _ in range(30):
        await single.world.store.hear_pod(runner.pod_name, pod_uid=uid)
        await single.rounds(recovery, 20)
    assert (await single.row(runner)).state is RunnerState.IDLE
    assert await single.actions() == []


async def test_one_that_failed_while_it_waited_is_a_crash_without_a_job(single: Yard) -> None:
    """Its exit code is the poller's; that its container had started is no sign of a job."""
    ending, evidence = await ended(single, await up(single), 1)
    assert ending == "crash"
    assert (evidence["started"], evidence["job"]) == ("unknown", "no")


async def test_one_that_was_sent_away_while_it_waited_has_left(single: Yard) -> None:
    runner = await single.fenced(await up(single), retired=Retired.UNWANTED)
    ending, _ = await ended(single, runner, 79)
    assert ending == "left"


async def test_one_that_ended_with_its_jit_may_have_had_a_job(single: Yard) -> None:
    """Nobody knows yet: GitHub is asked later."""
    runner = await single.running()
    _, evidence = await ended(single, runner, 0)
    assert (evidence["started"], evidence["job"]) == ("unknown", "unknown")
