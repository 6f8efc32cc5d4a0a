"""Ends: recorded before the reap, with the last words of those that ended abnormally (S3, S4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from paddock.domain.github.backoffs import BackOffCause
from paddock.domain.ids import JobId
from paddock.domain.jobs.facts import Executor
from paddock.domain.names import PodName
from paddock.domain.runners.endings import LOG_WANTED_FOR, Ending, Retired
from paddock.domain.runners.runner import Runner
from paddock.domain.states import JobState, RunnerState
from paddock.forensics.conclusion import Conclusion
from paddock.forensics.masking import mask
from paddock.ports import Circumstances, FleetUnavailable
from tests.support.recovery import Yard, waiting
from tests.support.world import executor


async def test_the_end_is_recorded_before_the_pod_is_deleted(scene: Yard) -> None:
    """I30, I58"""
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.end_runner(runner.pod_name, exit_code=137, reason="OOMKilled")
    scene.fleet.fail("reap")
    await scene.rounds(recovery)

    verdict = await scene.verdict(runner)
    assert (verdict["ending"], verdict["exit_code"], verdict["reason"]) == (
        "host-oom",
        137,
        "OOMKilled",
    )
    assert (await scene.row(runner)).state is RunnerState.GONE
    assert runner.pod_name in scene.fleet.pods

    scene.fleet.fail("reap", times=0)
    scene.world.clock.advance(30)
    await scene.rounds(scene.recovery())
    assert runner.pod_name not in scene.fleet.pods


async def test_a_look_at_the_pods_that_changed_finds_their_ends(scene: Yard) -> None:
    ended, other, recovery = await scene.running(), await scene.running(), scene.recovery()
    await scene.viewed.refresh()
    await recovery.ends(whole=False)
    scene.fleet.end_runner(ended.pod_name, exit_code=0)
    await scene.viewed.refresh()
    await recovery.ends(whole=False)
    assert (await scene.row(ended)).state is RunnerState.GONE
    assert (await scene.row(other)).state is RunnerState.RUNNING
    assert ended.pod_name not in scene.fleet.pods


async def test_an_end_that_such_a_look_missed_is_found_by_a_whole_one(scene: Yard) -> None:
    """I28"""
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.end_runner(runner.pod_name, exit_code=0)
    await scene.viewed.refresh()
    assert [pod.name for pod in scene.viewed.take_changed()] == [runner.pod_name]
    await recovery.ends(whole=False)
    assert (await scene.row(runner)).state is RunnerState.RUNNING
    await recovery.ends()
    assert (await scene.row(runner)).state is RunnerState.GONE


async def test_an_end_whose_row_had_moved_on_is_found_by_the_next_look(
    scene: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I80: GitHub's report of its job's end was written at the same moment."""
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.end_runner(runner.pod_name, exit_code=0)
    await scene.viewed.refresh()

    async def moved_on(_ends: object) -> list[Runner]:
        monkeypatch.undo()
        return []

    monkeypatch.setattr(scene.world.store, "conclude_runners", moved_on)
    await recovery.ends(whole=False)
    assert (await scene.row(runner)).state is RunnerState.RUNNING
    await recovery.ends(whole=False)
    assert (await scene.row(runner)).state is RunnerState.GONE


@pytest.mark.parametrize(
    ("program", "spec_hash", "ending"),
    [
        ("act-runner", "v1", "crash"),
        ("actions", "v1", "completed"),
        ("act-runner", "v2", "completed"),
    ],
)
async def test_an_exit_code_is_read_in_the_words_of_the_pools_program(
    scene: Yard, program: str, spec_hash: str, ending: str
) -> None:
    """Unless the pool was changed since: then its Pods may run another program."""
    runner = await scene.running()
    await scene.world.rows(
        "UPDATE pools SET runner = $1, spec_hash = $2 RETURNING id", program, spec_hash
    )
    scene.fleet.end_runner(runner.pod_name, exit_code=102)
    await scene.rounds(scene.recovery())

    verdict = await scene.verdict(runner)
    assert verdict["ending"] == ending


async def test_an_end_is_one_line_in_the_log(scene: Yard) -> None:
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    with capture_logs() as lines:
        await scene.rounds(recovery)

    [line] = [each for each in lines if each["event"] == "runner.ended"]
    assert (line["pod"], line["pool"], line["exit_code"], line["ending"]) == (
        runner.pod_name,
        "linux",
        139,
        "crash",
    )
    assert {"signal", "reason"} <= line.keys()


async def test_the_last_words_of_an_abnormal_end_are_kept_and_told(scene: Yard) -> None:
    """S4: captured, and tagged with pod, pool and end."""
    runner, recovery = await scene.running(), scene.recovery()
    scene.says(runner, "Segmentation fault")
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    with capture_logs() as lines:
        await scene.rounds(recovery)

    assert "Segmentation fault" in (await scene.verdict(runner))["log_tail"]
    [line] = [each for each in lines if "log" in each]
    assert (line["pod"], line["pool"]) == (runner.pod_name, "linux")
    assert line["ended_at"] == scene.world.clock.now().isoformat()
    assert "Segmentation fault" in line["log"]


REFUSED_AT_ITS_POLL = (
    "An error occured: Error: Forbidden Runner version v2.330.0 is deprecated and cannot receive "
    "messages."
)
REFUSED_AT_ITS_SESSION = "Failed to create session. Error: Forbidden"


@pytest.mark.parametrize("said", [REFUSED_AT_ITS_POLL, REFUSED_AT_ITS_SESSION])
@pytest.mark.parametrize("known", [True, False])
async def test_a_refusal_that_only_the_log_shows_stops_the_version(
    scene: Yard, said: str, known: bool
) -> None:
    """The exit code 1 has many reasons. Without a known version the key waits, for that reason."""
    version = "2.330.0" if known else None
    runners = [await scene.running() for _ in range(4)]
    await scene.world.rows("UPDATE runners SET runner_version = $1 RETURNING id", version)
    for runner in runners:
        scene.says(runner, said)
        scene.fleet.end_runner(runner.pod_name, exit_code=1)
        await scene.rounds(scene.recovery())

    stopped = await scene.world.rows("SELECT version, refusals FROM version_schedules")
    assert [tuple(row) for row in stopped] == ([(version, 1)] if known else [])
    waits = await scene.world.rows("SELECT scope, cause FROM backoffs")
    assert [tuple(row) for row in waits] == (
        [] if known else [("key", BackOffCause.VERSION_REFUSED)]
    )
    # That no job was on it is no sign against the refusal.
    await scene.rounds(scene.recovery(), 180)
    still = "version_schedules WHERE refused_at IS NOT NULL" if known else "backoffs"
    assert len(await scene.world.rows(f"SELECT FROM {still}")) == 1


async def test_the_name_of_a_job_stops_no_version(scene: Yard) -> None:
    """A job ends its runner before any webhook tells of it."""
    runner = await scene.running()
    await scene.world.rows("UPDATE runners SET runner_version = '2.330.0' RETURNING id")
    scene.says(runner, f"Running job: {REFUSED_AT_ITS_POLL}")
    scene.fleet.end_runner(runner.pod_name, exit_code=137)
    await scene.rounds(scene.recovery())
    assert (await scene.verdict(runner))["log_tail"]
    assert await scene.world.rows("SELECT FROM version_schedules") == []


@pytest.mark.parametrize("known", [True, False])
async def test_what_a_job_writes_stops_a_version_no_longer_than_until_its_webhook(
    scene: Yard, known: bool
) -> None:
    """A job can fill its runner's log until the line that shows it is gone, kill its runner, and all of
    it before any webhook tells of the job."""
    runner, recovery = await scene.running(), scene.recovery()
    if known:
        await scene.world.rows("UPDATE runners SET runner_version = '2.330.0' RETURNING id")
    scene.says(runner, REFUSED_AT_ITS_POLL)
    scene.fleet.end_runner(runner.pod_name, exit_code=137)
    await scene.rounds(recovery)
    stopped = "version_schedules WHERE refused_until IS NOT NULL" if known else "backoffs"
    assert len(await scene.world.rows(f"SELECT FROM {stopped}")) == 1

    await report(scene, runner, ended_for=timedelta(seconds=1))
    scene.world.clock.advance(10)
    await scene.rounds(recovery)
    assert await scene.world.rows(f"SELECT FROM {stopped}") == []


async def test_a_job_that_is_known_before_the_log_is_read_stops_no_version(scene: Yard) -> None:
    runner, recovery = await scene.running(), scene.recovery()
    await scene.world.rows("UPDATE runners SET runner_version = '2.330.0' RETURNING id")
    scene.says(runner, REFUSED_AT_ITS_POLL)
    scene.fleet.fail("log_tail")
    scene.fleet.end_runner(runner.pod_name, exit_code=137)
    await scene.rounds(recovery)
    assert (await scene.row(runner)).state is RunnerState.GONE

    await report(scene, runner, ended_for=timedelta(seconds=1))
    scene.fleet.fail("log_tail", times=0)
    scene.world.clock.advance(10)
    await scene.rounds(recovery, 20)
    assert (await scene.verdict(runner))["log_tail"]
    assert await scene.world.rows("SELECT FROM version_schedules") == []


async def test_other_failures_to_open_a_session_stop_no_version(scene: Yard) -> None:
    runner = await scene.running()
    await scene.world.rows("UPDATE runners SET runner_version = '2.330.0' RETURNING id")
    scene.says(runner, "Failed to create session. Error: Conflict")
    scene.fleet.end_runner(runner.pod_name, exit_code=5)
    await scene.rounds(scene.recovery())
    assert await scene.world.rows("SELECT FROM version_schedules") == []


async def test_a_clean_exit_leaves_no_last_words(scene: Yard) -> None:
    """S4: not on a clean exit, so a failing test suite does not count."""
    runner, recovery = await scene.running(), scene.recovery()
    scene.says(runner, "Job build completed with result: Failed")
    scene.fleet.end_runner(runner.pod_name, exit_code=102)
    with capture_logs() as lines:
        await scene.rounds(recovery)

    assert (await scene.verdict(runner))["log_tail"] is None
    assert not [each for each in lines if "log" in each]
    assert scene.fleet.calls["log_tail"] == 0


async def test_last_words_are_captured_once_for_each_pod(scene: Yard) -> None:
    """S4: also by two leaders at once, and when the Pod lingers."""
    runner = await scene.running()
    first, second = scene.recovery(), scene.recovery()
    scene.says(runner, "Segmentation fault")
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    scene.fleet.fail("reap")
    with capture_logs() as lines:
        for recovery in (first, second, scene.recovery()):
            await scene.rounds(recovery, 30)

    assert len([each for each in lines if "log" in each]) == 1
    assert len([each for each in lines if each["event"] == "runner.ended"]) == 1


@pytest.mark.parametrize("away", [10, 100, 200, 4000])
async def test_no_log_is_given_up_for_the_time_in_which_no_leader_could_ask(
    scene: Yard, away: int
) -> None:
    """S4, I79: the server and the API server are away after the verdicts were written; right after
    their return the node does not answer yet."""
    runners = [await scene.running() for _ in range(3)]
    for runner in runners:
        scene.says(runner, "Segmentation fault")
        scene.fleet.end_runner(runner.pod_name, exit_code=139)
    scene.fleet.fail("log_tail", times=3)
    await scene.rounds(scene.recovery())
    assert len(await scene.world.store.logs_wanted()) == len(runners)
    scene.world.clock.advance(away)

    second = scene.recovery()
    scene.fleet.fail("log_tail", times=2)
    await scene.rounds(second, 120, every=5)
    for runner in runners:
        assert "Segmentation fault" in (await scene.verdict(runner))["log_tail"]
        assert runner.pod_name not in scene.fleet.pods


async def test_a_log_that_cannot_be_read_delays_nothing(scene: Yard) -> None:
    """S4, I57, I80: the end is recorded and its capacity free at once."""
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.fail("log_tail")
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    await scene.rounds(recovery)
    assert (await scene.verdict(runner))["ending"] == "crash"
    [account] = await scene.world.store.list_accounts()
    assert account.used.runners == 0


async def test_a_log_that_cannot_be_read_now_is_asked_for_again(scene: Yard) -> None:
    """I79: until then every leader keeps its Pod."""
    runner, recovery = await scene.running(), scene.recovery()
    scene.says(runner, "Segmentation fault")
    scene.fleet.fail("log_tail")
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    await scene.rounds(recovery, 60)
    assert runner.pod_name in scene.fleet.pods
    scene.fleet.fail("log_tail", times=0)
    with capture_logs() as lines:
        await scene.rounds(scene.recovery())
    assert "Segmentation fault" in (await scene.verdict(runner))["log_tail"]
    assert runner.pod_name not in scene.fleet.pods
    assert len([each for each in lines if "log" in each]) == 1


async def test_a_log_that_cannot_be_read_is_given_up_after_two_minutes(scene: Yard) -> None:
    """I79, I75: nothing is kept for longer."""
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.fail("log_tail")
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    await scene.rounds(recovery, 110)
    assert runner.pod_name in scene.fleet.pods
    assert scene.fleet.calls["log_tail"] >= 10
    with capture_logs() as lines:
        await scene.rounds(recovery, 20)
    assert runner.pod_name not in scene.fleet.pods
    assert (await scene.verdict(runner))["log_tail"] is None
    assert [each["pod"] for each in lines if each["event"] == "log.given_up"] == [runner.pod_name]


async def test_a_pod_whose_log_is_wanted_has_no_place_in_its_pool(scene: Yard) -> None:
    """I40: nor does it keep its pool from being deleted (I75)."""
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.fail("log_tail")
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    await scene.rounds(recovery)
    assert runner.pod_name in scene.fleet.pods
    now = scene.world.clock.now()
    survey = await scene.world.store.survey_pools(ended=[runner.pod_name], since=now)
    assert [(pool.live, pool.present, pool.occupied) for pool in survey.pools] == [(0, 0, 0)]


async def test_a_pod_that_is_gone_for_good_is_not_waited_for(scene: Yard) -> None:
    runner, recovery = await scene.running(), scene.recovery()
    del scene.fleet.logs[runner.pod_name]
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    await scene.rounds(recovery)
    assert runner.pod_name not in scene.fleet.pods
    assert await scene.world.store.logs_wanted() == []


@dataclass
class Cluster:
    """A cluster that keeps a runner's log from before its container was deleted."""

    heard: str | None = "Running job: build, with ghs_0123456789abcdefghijABCDEFGHIJ0123456789\n"
    answers: bool = True

    async def circumstances(self, *, uid: str, node: str | None) -> Circumstances:
        if not self.answers:
            return Circumstances(("not known: no answer",), complete=False)
        return Circumstances(("it was evicted",))

    async def captured_log(self, *, uid: str) -> str | None:
        return self.heard


@pytest.mark.parametrize("end", ["evicted", "vanished"])
async def test_words_that_went_with_the_container_were_heard_before(scene: Yard, end: str) -> None:
    """S4: and are masked like any others."""
    runner, recovery = await scene.running(), scene.recovery(end_records=Cluster())
    await scene.running()
    await scene.rounds(recovery)
    del scene.fleet.logs[runner.pod_name]
    if end == "evicted":
        scene.fleet.end_runner(runner.pod_name, exit_code=137, pod_reason="Evicted")
    else:
        scene.fleet.vanish(runner.pod_name)
    await scene.rounds(recovery, 30)
    verdict = await scene.verdict(runner)
    assert "Running job: build" in verdict["log_tail"]
    assert "ghs_" not in verdict["log_tail"]
    assert "it was evicted" in verdict["evidence"]


async def test_what_can_still_be_read_is_more_than_what_was_heard(scene: Yard) -> None:
    runner, recovery = await scene.running(), scene.recovery(end_records=Cluster())
    scene.says(runner, "Segmentation fault")
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    await scene.rounds(recovery)
    assert "Segmentation fault" in (await scene.verdict(runner))["log_tail"]


async def test_circumstances_that_cannot_be_read_now_are_asked_for_again(scene: Yard) -> None:
    """I79: the log is kept at once, and told once."""
    cluster = Cluster(answers=False)
    runner, recovery = await scene.running(), scene.recovery(end_records=cluster)
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    with capture_logs() as lines:
        await scene.rounds(recovery, 30)
        assert (await scene.verdict(runner))["log_tail"] is not None
        assert runner.pod_name in scene.fleet.pods
        cluster.answers = True
        await scene.rounds(scene.recovery(end_records=cluster))
    assert "it was evicted" in (await scene.verdict(runner))["evidence"]
    assert runner.pod_name not in scene.fleet.pods
    assert len([each for each in lines if "log" in each]) == 1


async def test_late_news_leave_the_circumstances_as_they_are(scene: Yard) -> None:
    cluster = Cluster()
    runner, recovery = await scene.running(), scene.recovery(end_records=cluster)
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    await scene.rounds(recovery)
    await scene.world.store.refine_verdict(
        runner.id, ending=Ending.CRASH, why="test", evidence='{"job": "yes"}'
    )
    assert "it was evicted" in (await scene.verdict(runner))["evidence"]


async def test_a_log_that_takes_long_holds_up_no_other_node(
    scene: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I57, I80: nor an end of the same node; nor is the log asked for a second time meanwhile."""
    monkeypatch.setattr("paddock.forensics.post_mortem.TIMEOUT", 600.0)
    crashed, other = await scene.running(), await scene.running()
    recovery = scene.recovery()
    concluding = [
        asyncio.create_task(recovery._conclude_for_ever()),
        asyncio.create_task(recovery._post_mortem.run()),
    ]
    try:
        with scene.fleet.stalled("log_tail"):
            scene.fleet.end_runner(crashed.pod_name, exit_code=139)
            await scene.viewed.refresh()
            await until(lambda: scene.fleet.calls["log_tail"])
            assert (await scene.row(crashed)).state is RunnerState.GONE
            scene.fleet.end_runner(other.pod_name)
            await scene.viewed.refresh()
            await until(lambda: other.pod_name not in scene.fleet.pods)
            assert crashed.pod_name in scene.fleet.pods
        await until(lambda: crashed.pod_name not in scene.fleet.pods)
        # Written down when its end is on record.
        while len(await scene.actions()) < 2:  # noqa: ASYNC110 -- another's doing
            await asyncio.sleep(0.01)
    finally:
        for task in concluding:
            task.cancel()
        await asyncio.gather(*concluding, return_exceptions=True)
    assert scene.fleet.calls["log_tail"] == 1
    assert await scene.actions() == [("pod-ended", "done")] * 2


async def test_a_dead_node_is_asked_for_one_log_at_a_time(scene: Yard) -> None:
    """I57: its Pods do not use up the time of others. Each is given up all the same."""
    runners = [await scene.running() for _ in range(5)]
    recovery = scene.recovery()
    scene.fleet.fail("log_tail")
    for each in runners:
        scene.fleet.end_runner(each.pod_name, exit_code=139)
    await scene.rounds(recovery)
    assert scene.fleet.calls["log_tail"] == 1
    await scene.rounds(recovery, 130)
    assert not scene.fleet.pods


async def test_a_log_that_cannot_be_read_costs_no_other_pod_its_log(
    scene: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I79: the Pods end together on one node, and the unreadable log is requested first."""
    runners = [await scene.running() for _ in range(4)]
    unreadable = runners[0].pod_name
    read = scene.fleet.log_tail

    async def fail_for_one(name: PodName, **how: Any) -> str | None:
        if name == unreadable:
            raise FleetUnavailable("this one log cannot be read")
        return await read(name, **how)

    monkeypatch.setattr(scene.fleet, "log_tail", fail_for_one)
    recovery = scene.recovery()
    for each in runners:
        scene.fleet.end_runner(each.pod_name, exit_code=139)
    await scene.rounds(recovery, 130)

    tails = [(await scene.verdict(each))["log_tail"] for each in runners]
    assert tails[0] is None
    assert None not in tails[1:]
    assert not scene.fleet.pods


async def test_a_log_whose_time_is_up_is_requested_a_last_time(
    scene: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I79: also after the log of another Pod on its node could not be read in the same pass."""
    unreadable, late = await scene.running(), await scene.running()
    recovery = scene.recovery()
    time_is_up = scene.world.clock.now() + LOG_WANTED_FOR
    read = scene.fleet.log_tail

    async def fail_until_then(name: PodName, **how: Any) -> str | None:
        if name == unreadable.pod_name or scene.world.clock.now() < time_is_up:
            raise FleetUnavailable("it cannot be read now")
        return await read(name, **how)

    monkeypatch.setattr(scene.fleet, "log_tail", fail_until_then)
    for each in (unreadable, late):
        scene.fleet.end_runner(each.pod_name, exit_code=139)
    await scene.rounds(recovery, 140)
    assert (await scene.verdict(late))["log_tail"] is not None
    assert not scene.fleet.pods


async def until(seen: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not seen():  # noqa: ASYNC110 -- another's doing
            await asyncio.sleep(0.01)


async def test_last_words_are_bounded_and_masked(scene: Yard) -> None:
    runner, recovery = await scene.running(), scene.recovery()
    for number in range(500):
        scene.says(runner, f"{number} " + "words " * 100)
    scene.says(runner, "token ghs_0123456789abcdefghijABCDEFGHIJ0123456789 and \0 more")
    scene.fleet.end_runner(runner.pod_name, exit_code=139)
    await scene.rounds(recovery)

    tail = (await scene.verdict(runner))["log_tail"]
    assert len(tail.splitlines()) <= 200
    assert len(tail.encode()) <= 64 * 1024
    assert "ghs_" not in tail
    assert "499 words" in tail


async def test_capacity_is_free_as_soon_as_the_end_is_recorded(scene: Yard) -> None:
    """I46, I57: although its Pod cannot be deleted."""
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.fail("reap")
    scene.fleet.end_runner(runner.pod_name)
    await scene.rounds(recovery)
    [account] = await scene.world.store.list_accounts()
    assert account.used.runners == 0


async def test_a_pod_that_vanished_is_hard_deleted_after_three_reads(scene: Yard) -> None:
    """I29, S3"""
    runner, recovery = await scene.running(), scene.recovery()
    await scene.running()
    await scene.rounds(recovery)
    scene.fleet.vanish(runner.pod_name)
    scene.world.clock.advance(10)
    await scene.rounds(recovery, 10)
    assert (await scene.row(runner)).state is RunnerState.RUNNING

    await scene.rounds(recovery, 10)
    assert (await scene.verdict(runner))["ending"] == "hard-deleted"


async def test_an_empty_list_is_not_the_end_of_all_runners(scene: Yard) -> None:
    """I29"""
    runners = [await scene.running() for _ in range(3)]
    recovery = scene.recovery()
    await scene.rounds(recovery)
    scene.fleet.view = "empty"
    scene.world.clock.advance(10)
    await scene.rounds(recovery, 20)
    assert {(await scene.row(each)).state for each in runners} == {RunnerState.RUNNING}


async def test_the_ends_that_no_list_showed_are_limited(scene: Yard) -> None:
    """I29: if the reading is wrong, its harm is slow."""
    runners = [await scene.running() for _ in range(5)]
    stays = await scene.running()
    recovery = scene.recovery(per_rule=2)
    for each in runners:
        scene.fleet.vanish(each.pod_name)
    for _ in range(3):
        scene.world.clock.advance(1)
        await scene.rounds(recovery)
    states = [(await scene.row(each)).state for each in runners]
    assert states.count(RunnerState.GONE) == 2
    assert ("pod-gone", "limited") in await scene.actions()
    assert (await scene.row(stays)).state is RunnerState.RUNNING


async def test_what_we_sent_away_left(scene: Yard) -> None:
    runner, recovery = await scene.idle(), scene.recovery()
    await scene.fenced(runner, retired=Retired.UNWANTED)
    await scene.rounds(recovery, 20)
    assert (await scene.verdict(runner))["ending"] == "left"
    assert runner.pod_name not in scene.fleet.pods


@pytest.mark.parametrize("exit_code", [0, 1])
@pytest.mark.parametrize(
    ("retired", "ending"),
    [(Retired.SURPLUS, "surplus"), (Retired.UNWANTED, "left"), (Retired.GIVEN_UP, "never-ran")],
)
async def test_a_runner_whose_record_we_removed_ended_because_of_that(
    scene: Yard, exit_code: int, retired: Retired, ending: str
) -> None:
    """Before its Pod is deleted. actions/runner exits with 1, or with 0 if it is told at a poll."""
    runner, recovery = await scene.running(), scene.recovery()
    await scene.fenced(runner, retired=retired)
    await scene.rounds(recovery)
    assert (await scene.row(runner)).deregistered_at is not None
    scene.world.clock.advance(2)
    scene.fleet.end_runner(runner.pod_name, exit_code=exit_code)
    await scene.rounds(recovery, 180)
    assert (await scene.verdict(runner))["ending"] == ending


async def test_a_runner_that_finished_its_job_without_its_record_completed(scene: Yard) -> None:
    """I65: GitHub called it idle, and paddock removed its record. Other programs exit with 0 then."""
    runner, recovery = await scene.running(), scene.recovery()
    await scene.fenced(runner, retired=Retired.GIVEN_UP)
    await scene.rounds(recovery)
    assert (await scene.row(runner)).deregistered_at is not None
    scene.world.clock.advance(2)
    scene.fleet.end_runner(runner.pod_name, exit_code=0)
    await scene.rounds(recovery)
    assert (await scene.verdict(runner))["ending"] == "completed"
    await report(scene, runner, ended_for=timedelta(seconds=1))
    scene.world.clock.advance(10)
    await scene.rounds(recovery)
    assert (await scene.verdict(runner))["ending"] == "completed"


async def test_a_poller_that_was_told_to_leave_left(scene: Yard) -> None:
    """Its Pod ends before paddock deletes it."""
    runner, recovery = await scene.idle(), scene.recovery()
    await scene.fenced(runner, retired=Retired.UNWANTED)
    scene.fleet.end_poller(runner.pod_name, exit_code=1)
    await scene.rounds(recovery)
    assert (await scene.verdict(runner))["ending"] == "left"


@pytest.mark.parametrize("asked", [False, True], ids=["before", "after"])
async def test_one_that_was_to_leave_and_vanished_was_hard_deleted(
    scene: Yard, asked: bool
) -> None:
    """S3: before paddock asked it to go, and also after that: it would have stayed visible."""
    runner, recovery = await scene.idle(), scene.recovery()
    await scene.idle()
    await scene.rounds(recovery)
    scene.fleet.obedient = False
    await scene.fenced(runner, retired=Retired.UNWANTED)
    if asked:
        await scene.rounds(recovery)
        assert scene.fleet.pods[runner.pod_name].deletion_requested_at is not None
    scene.fleet.vanish(runner.pod_name)
    await scene.rounds(recovery, 40)
    assert (await scene.verdict(runner))["ending"] == "hard-deleted"


async def test_a_fenced_runner_that_ends_by_itself_ended_by_itself(scene: Yard) -> None:
    runner, recovery = await scene.running(), scene.recovery()
    scene.github.down = True
    await scene.fenced(runner, retired=Retired.SURPLUS)
    await scene.rounds(recovery)
    scene.fleet.end_runner(runner.pod_name, exit_code=100)
    await scene.rounds(recovery)
    assert (await scene.verdict(runner))["ending"] == "completed"


async def test_one_that_ended_by_itself_when_our_request_arrived_ended_by_itself(
    scene: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I30: the request destroys no evidence, so its end can still be read."""
    runner, recovery = await scene.running(), scene.recovery()
    delete_live_pod = scene.fleet.delete_live_pod

    async def too_late(name: PodName, *, uid: str) -> None:
        if not scene.fleet.pods[name].phase.terminal:
            scene.fleet.end_runner(name, exit_code=139)
            scene.world.clock.advance(1)
        await delete_live_pod(name, uid=uid)

    monkeypatch.setattr(scene.fleet, "delete_live_pod", too_late)
    await scene.fenced(runner, retired=Retired.SURPLUS)
    await scene.rounds(recovery, 150)
    verdict = await scene.verdict(runner)
    assert (verdict["ending"], verdict["exit_code"]) == ("crash", 139)
    assert runner.pod_name not in scene.fleet.pods


@pytest.mark.parametrize(("earlier", "ending"), [(1, "left"), (3, "terminated")])
async def test_the_client_that_asked_first_ended_it(
    scene: Yard, earlier: float, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another component asked just before us: the Pod's deletion time shows that, as far as two clocks
    can tell."""
    runner, recovery = await scene.idle(), scene.recovery()
    before = scene.world.clock.now() - timedelta(seconds=earlier)
    delete_live_pod = scene.fleet.delete_live_pod

    async def after_another(name: PodName, *, uid: str) -> None:
        scene.fleet.note_deletion(name, at=before)
        await delete_live_pod(name, uid=uid)

    monkeypatch.setattr(scene.fleet, "delete_live_pod", after_another)
    await scene.fenced(runner, retired=Retired.UNWANTED)
    await scene.rounds(recovery)
    await scene.rounds(recovery)
    assert (await scene.verdict(runner))["ending"] == ending


async def test_a_runner_that_never_started_is_told_apart(scene: Yard) -> None:
    runner, recovery = await scene.running(started=False), scene.recovery()
    scene.fleet.keep_runner_waiting(runner.pod_name, "CreateContainerError")
    await scene.rounds(recovery, 300)
    assert (await scene.verdict(runner))["ending"] == "never-started"


async def test_a_late_webhook_makes_a_silent_end_a_completed_one(scene: Yard) -> None:
    """I68"""
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.end_runner(runner.pod_name, exit_code=0)
    scene.github.down = True
    await scene.rounds(recovery)
    scene.world.clock.advance(200)
    # By now paddock has asked GitHub, which still had the record.
    scene.github.down = False
    await scene.rounds(recovery)
    assert (await scene.verdict(runner))["ending"] == "never-ran"

    await report(scene, runner, ended_for=timedelta(seconds=1))
    scene.world.clock.advance(10)
    await scene.rounds(recovery)
    verdict = await scene.verdict(runner)
    assert verdict["ending"] == "completed"
    assert verdict["refined_at"] is not None


async def test_a_job_reported_as_lost_after_a_clean_exit_is_a_failed_handshake(
    scene: Yard,
) -> None:
    """S3: a clean exit, and GitHub waits for the lease to run out."""
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.end_runner(runner.pod_name, exit_code=0)
    await scene.rounds(recovery)
    scene.world.clock.advance(600)
    await report(scene, runner, ended_for=timedelta(seconds=600), conclusion="failure")
    scene.world.clock.advance(10)
    await scene.rounds(recovery)
    assert (await scene.verdict(runner))["ending"] == "handshake-failed"


async def test_a_job_reported_as_lost_long_after_its_container_ended_is_a_failed_handshake(
    scene: Yard,
) -> None:
    """The same, and something beside the runner kept its Pod until GitHub had given the job up."""
    runner = await scene.running()
    scene.fleet.end_runner(runner.pod_name, exit_code=0)
    scene.world.clock.advance(600)
    await report(scene, runner, ended_for=timedelta(seconds=600), conclusion="failure")
    assert (await scene.row(runner)).done_at is not None
    recovery = scene.recovery()
    await scene.rounds(recovery, 20)
    assert (await scene.verdict(runner))["ending"] == "handshake-failed"


async def test_exit_0_without_a_reported_job_is_never_ran_when_github_has_its_record(
    scene: Yard,
) -> None:
    """I39"""
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.end_runner(runner.pod_name, exit_code=0)
    await scene.rounds(recovery)
    assert (await scene.verdict(runner))["ending"] == "completed"
    await scene.rounds(recovery, 180)
    assert (await scene.verdict(runner))["ending"] == "never-ran"


@pytest.mark.parametrize(("exit_code", "ending"), [(0, "completed"), (79, "crash")])
async def test_one_container_that_ends_as_no_poller_does_had_a_jit_even_if_its_row_knows_none(
    scene: Yard, exit_code: int, ending: str
) -> None:
    """I70: the row is of a backup from before its claim."""
    runner = replace(await scene.idle(), shape="single")
    pod = scene.fleet.end_poller(runner.pod_name)
    pod = scene.fleet.end_runner(pod.name, exit_code=exit_code)
    conclusion = Conclusion(store=scene.world.store, fleet=scene.fleet, clock=scene.world.clock)
    [concluded] = await conclusion.conclude([(runner, pod)])
    assert concluded.ending == ending


async def test_a_job_whose_runner_ended_unreported_is_not_served_twice(scene: Yard) -> None:
    """I68: it was done, and its webhooks are late."""
    runner, recovery = await scene.running(), scene.recovery()
    scene.github.down = True
    scene.fleet.end_runner(runner.pod_name, exit_code=100)
    await scene.rounds(recovery)

    pod = waiting(await scene.idle())
    assert (await scene.world.store.match([pod])).claims == ()
    scene.world.clock.advance(121)
    assert len((await scene.world.store.match([pod])).claims) == 1


async def test_a_job_whose_runner_ended_busy_by_its_own_word_is_not_served_twice(
    scene: Yard,
) -> None:
    """I68: its log told of a job, and no webhook has said yet which."""
    runner, recovery = await scene.running(), scene.recovery()
    busy = await scene.world.store.occupy_runner(
        runner.id, generation=runner.generation, job=None, why="its log says so"
    )
    assert isinstance(busy, Runner)
    scene.world.clock.advance(180)
    scene.github.down = True
    scene.fleet.end_runner(runner.pod_name, exit_code=0)
    await scene.rounds(recovery)

    pod = waiting(await scene.idle())
    assert (await scene.world.store.match([pod])).claims == ()
    scene.world.clock.advance(121)
    assert len((await scene.world.store.match([pod])).claims) == 1


async def test_a_job_whose_runner_vanished_before_it_was_seen_to_start_is_not_served_twice(
    scene: Yard,
) -> None:
    """I68: the last reading, in which it had not started, is outdated."""
    await scene.idle()
    runner, recovery = await scene.running(started=False), scene.recovery()
    await scene.rounds(recovery)
    assert (await scene.row(runner)).started is False
    scene.github.down = True
    scene.fleet.vanish(runner.pod_name)
    await scene.rounds(recovery, 30)

    assert (await scene.row(runner)).state is RunnerState.GONE
    assert (await scene.world.store.match([waiting(await scene.idle())])).claims == ()


async def test_a_job_whose_runner_ended_is_served_again_once_github_was_asked(
    scene: Yard,
) -> None:
    """I31"""
    runner, recovery = await scene.running(), scene.recovery()
    assert runner.hint is not None
    scene.github.job(runner.hint, "queued", scene.world.clock.now())
    scene.fleet.end_runner(runner.pod_name, exit_code=1)
    await scene.rounds(recovery)

    assert ("stale-queued", "done") in await scene.actions()
    assert len((await scene.world.store.match([waiting(await scene.idle())])).claims) == 1


async def test_a_job_that_github_has_completed_is_not_served_again(scene: Yard) -> None:
    """I68"""
    runner, recovery = await scene.running(), scene.recovery()
    assert runner.hint is not None
    scene.github.job(
        runner.hint,
        "completed",
        scene.world.clock.now(),
        runner_id=runner.github_id,
        runner_name=runner.name,
    )
    scene.fleet.end_runner(runner.pod_name, exit_code=100)
    await scene.rounds(recovery)

    [job] = await scene.world.rows("SELECT state FROM jobs")
    assert job["state"] == "completed"
    assert (await scene.world.store.match([waiting(await scene.idle())])).claims == ()


async def report(
    scene: Yard, runner: Runner, *, ended_for: timedelta, conclusion: str = "success"
) -> None:
    assert runner.hint is not None
    ran: Executor = executor(runner)
    facts = scene.world.facts(
        JobId(runner.hint),
        JobState.COMPLETED,
        executor=ran,
        created_at=scene.world.clock.now() - timedelta(hours=1),
        completed_at=scene.world.clock.now()
        if ended_for > timedelta(seconds=60)
        else (await scene.verdict(runner))["ended_at"],
        conclusion=conclusion,
    )
    await scene.world.report(scene.account, scene.key, facts)


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "github_pat_11ABCDEFG0123456789_abcdefghijklmnopqrstuvwxyz",
        "Authorization: Bearer abcdefghijklmnopqrstuvwxyz012345",
        "eyJ" + "QWxsIHlvdXIgYmFzZTY0" * 20,
        "AABF3JGZDX3P5PMEXLND6TS6FCWO6",
        "https://x-access-token:abcdefghijklmnop0123@github.com/acme/site",
    ],
)
def test_secrets_are_masked(secret: str) -> None:
    masked = mask(f"before {secret} after")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert "***" in masked
    assert secret[-12:] not in masked or "github.com" in secret


def test_ordinary_words_are_left_as_they_are() -> None:
    line = (
        "2026-01-05 09:00:00Z: Running job: build (ubuntu-24.04, 3.12) in /home/runner/_work/site"
    )
    assert mask(line) == line
