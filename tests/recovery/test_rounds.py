"""Rounds: recovery finds what is stuck, asks about it, and repairs a limited number at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from paddock.domain.ids import GitHubRunnerId, JobId
from paddock.domain.jobs.facts import Executor
from paddock.domain.pods.pod import Phase
from paddock.domain.recovery.evidence import JobWord
from paddock.domain.runners.runner import Runner
from paddock.domain.states import JobState, RunnerState
from tests.support.recovery import Yard, waiting
from tests.support.runner_rows import read_runner
from tests.support.world import executor

S = RunnerState
HOUR = 3600.0


async def never_registered(scene: Yard) -> Runner:
    """Its container is up; GitHub calls it offline."""
    runner = await scene.running()
    scene.github.say(runner, status="offline")
    scene.fleet.logs[runner.pod_name] = "paddock: starting the runner (actions)\n"
    return runner


async def states(scene: Yard, *runners: Runner) -> list[RunnerState]:
    return [(await scene.row(each)).state for each in runners]


async def job_states(scene: Yard) -> list[str]:
    return [row["state"] for row in await scene.world.rows("SELECT state FROM jobs ORDER BY id")]


async def serve(scene: Yard) -> int:
    return len((await scene.world.store.match([waiting(await scene.idle())])).claims)


async def test_a_runner_that_leaves_because_we_removed_its_record_has_not_crashed(
    scene: Yard,
) -> None:
    """Real runners do that: they exit before paddock deletes their Pods."""
    runner = await never_registered(scene)
    assert runner.hint is not None
    scene.github.job(runner.hint, "queued", scene.world.clock.now())
    recovery = scene.recovery()
    await scene.rounds(recovery, 310)
    assert (await scene.row(runner)).deregistered_at is not None
    scene.world.clock.advance(5)
    scene.fleet.end_runner(runner.pod_name, exit_code=1, reason="Error")
    await scene.rounds(recovery, 200)
    assert (await scene.verdict(runner))["ending"] == "never-registered"


async def test_a_job_whose_run_was_deleted_does_not_wait_for_ever(scene: Yard) -> None:
    """No runner is on its way to it: only a comparison noticed that GitHub no longer has it."""
    [queued] = await scene.world.queue(scene.account, scene.key, 1)
    await scene.world.store.note_job_check(scene.world.host, queued, answer=JobWord.ABSENT)
    recovery = scene.recovery()
    await scene.rounds(recovery, 60)
    assert await job_states(scene) == ["queued"]
    await scene.rounds(recovery, 120)
    assert await job_states(scene) == ["completed"]
    assert ("job-deleted", "done") in await scene.actions()


async def test_without_suspects_github_is_not_asked(scene: Yard) -> None:
    """S2: no candidates, no calls."""
    await scene.idle()
    await scene.running()
    await scene.rounds(scene.recovery(), 30)
    assert not scene.github.calls
    assert scene.fleet.calls["log_tail"] == 0


async def test_a_job_whose_runner_never_registered_is_served_again_within_a_minute(
    scene: Yard,
) -> None:
    """S2: `queued`. It stops being supply; nothing is killed yet."""
    runner = await never_registered(scene)
    assert runner.hint is not None
    scene.github.job(runner.hint, "queued", scene.world.clock.now())
    recovery = scene.recovery()
    await scene.rounds(recovery, 70)
    assert await states(scene, runner) == [S.RUNNING]
    assert (await scene.row(runner)).suspect_at is not None
    assert await serve(scene) == 1

    await scene.rounds(recovery, 600)
    assert (await scene.verdict(runner))["ending"] == "never-registered"
    assert runner.pod_name not in scene.fleet.pods


async def test_a_container_that_never_starts_costs_its_job_less_than_a_minute(scene: Yard) -> None:
    """S2: no events from the kubelet at all, and no registration."""
    runner = await scene.running(started=False)
    recovery = scene.recovery()
    await scene.rounds(recovery, 50)
    assert (await scene.row(runner)).suspect_at is not None
    assert await serve(scene) == 1


async def test_a_job_in_progress_on_it_makes_it_busy(scene: Yard) -> None:
    """S2: `in_progress` is left alone."""
    runner = await never_registered(scene)
    assert runner.hint is not None
    scene.github.job(
        runner.hint,
        "in_progress",
        scene.world.clock.now(),
        runner_id=runner.github_id,
        runner_name=runner.name,
    )
    await scene.rounds(scene.recovery(), 900)
    assert await states(scene, runner) == [S.BUSY]
    assert (await scene.row(runner)).job == runner.hint
    assert scene.deleted == []


async def test_a_job_completed_elsewhere_is_completed_here(scene: Yard) -> None:
    """S2: `completed` goes the way of a webhook."""
    runner = await never_registered(scene)
    assert runner.hint is not None
    scene.github.job(runner.hint, "completed", scene.world.clock.now(), runner_id=999_999)
    await scene.rounds(scene.recovery(), 400)
    [job] = await scene.world.rows("SELECT state FROM jobs")
    assert job["state"] == "completed"


async def test_a_failed_look_up_touches_nothing(scene: Yard) -> None:
    """S2: 502"""
    runner = await never_registered(scene)
    scene.github.down = True
    await scene.rounds(scene.recovery(), 900)
    assert await states(scene, runner) == [S.RUNNING]
    assert scene.deleted == []
    assert await scene.actions() == []


async def test_questions_are_few_while_github_does_not_answer(scene: Yard) -> None:
    runners = [await never_registered(scene) for _ in range(10)]
    scene.github.down = True
    scene.world.clock.advance(400)
    recovery = scene.recovery()
    await scene.rounds(recovery)
    assert sum(scene.github.calls.values()) <= 2
    assert len(runners) == 10


async def test_a_round_asks_no_more_than_it_may(scene: Yard) -> None:
    for _ in range(10):
        await never_registered(scene)
    scene.world.clock.advance(400)
    await scene.rounds(scene.recovery(questions=3))
    assert sum(scene.github.calls.values()) == 3


async def test_a_storm_of_suspects_is_not_replaced(scene: Yard) -> None:
    """I74: GitHub is slow; half of what a scope was given is late."""
    for _ in range(6):
        await never_registered(scene)
    await scene.rounds(scene.recovery(), 120)
    [suspects] = await scene.world.rows(
        "SELECT count(*) AS n FROM runners WHERE suspect_at IS NOT NULL"
    )
    assert suspects["n"] == 3
    assert ("too-many-suspects", "done") in await scene.actions()


async def test_a_suspect_that_registers_after_all_is_supply_again(scene: Yard) -> None:
    runner = await never_registered(scene)
    recovery = scene.recovery()
    await scene.rounds(recovery, 70)
    scene.github.say(runner)
    await scene.rounds(recovery, 300)
    assert (await scene.row(runner)).suspect_at is None


async def test_busy_at_github_is_busy_here(scene: Yard) -> None:
    """I22: its in_progress was lost."""
    runner = await scene.running()
    scene.github.say(runner, busy=True)
    await scene.rounds(scene.recovery(), 70)
    assert await states(scene, runner) == [S.BUSY]


async def test_a_runner_whose_record_vanished_is_retired(scene: Yard) -> None:
    """I38"""
    runner = await scene.running()
    assert runner.github_id is not None
    assert runner.hint is not None
    del scene.github.records[runner.github_id]
    scene.github.job(runner.hint, "queued", scene.world.clock.now())
    await scene.rounds(scene.recovery(), 400)
    assert await states(scene, runner) == [S.GONE]


async def test_a_long_job_is_never_ended_by_age(scene: Yard) -> None:
    """I27"""
    runner = await scene.running()
    scene.github.say(runner, busy=True)
    scene.says(runner, "Running job: build")
    await scene.rounds(scene.recovery(), 6 * 3600, every=600)
    assert await states(scene, runner) == [S.BUSY]
    assert scene.deleted == []


async def test_surplus_goes_and_what_is_needed_stays(scene: Yard) -> None:
    """I24"""
    first, second = await scene.running(), await scene.running()
    for each in (first, second):
        assert each.hint is not None
        scene.github.job(each.hint, "queued", scene.world.clock.now())
    assert first.hint is not None
    await scene.world.report(
        scene.account, scene.key, scene.world.facts(first.hint, JobState.COMPLETED)
    )
    await scene.rounds(scene.recovery(), 600)
    found = await states(scene, first, second)
    assert sorted(found) == [S.GONE, S.RUNNING]
    gone = first if found[0] is S.GONE else second
    assert (await scene.verdict(gone))["ending"] == "surplus"


async def test_a_stale_claim_is_released_and_its_name_stays_a_debt(scene: Yard) -> None:
    """I41: the replica that minted is dead, and its Pod does not ask again."""
    idle = await scene.idle()
    await scene.world.queue(scene.account, scene.key, 1)
    [claim] = (await scene.world.store.match([waiting(idle)])).claims
    with capture_logs() as logs:
        await scene.rounds(scene.recovery(), 310)
    row = await read_runner(scene.world.store, claim.runner)
    assert row is not None
    assert row.state is S.IDLE
    [released] = [log for log in logs if log["event"] == "claim.released"]
    assert (released["runner"], released["pod"]) == (claim.name, idle.pod_name)
    assert released["why"].startswith("stale-claim: ")
    [mint] = await scene.world.rows("SELECT state FROM mints")
    assert mint["state"] == "chosen"


async def test_a_job_that_was_cancelled_before_its_approval_is_completed(scene: Yard) -> None:
    """Nothing else tells of it when its webhook is lost: it is in none of GitHub's lists."""
    await scene.world.report(scene.account, scene.key, scene.world.facts(77, JobState.WAITING))
    scene.github.job(JobId(77), "completed", scene.world.clock.now(), conclusion="cancelled")
    await scene.rounds(scene.recovery(), 800)
    assert scene.github.calls["get_job"] == 0, "there is no need to hurry"
    await scene.rounds(scene.recovery(), 200)
    [row] = await scene.world.rows("SELECT state, conclusion FROM jobs WHERE id = 77")
    assert (row["state"], row["conclusion"]) == ("completed", "cancelled")


async def test_a_job_that_waits_for_its_approval_is_left_waiting(scene: Yard) -> None:
    """I12"""
    await scene.world.report(scene.account, scene.key, scene.world.facts(77, JobState.WAITING))
    scene.github.job(JobId(77), "waiting", scene.world.clock.now())
    await scene.rounds(scene.recovery(), 3 * 86_400, every=900)
    [row] = await scene.world.rows("SELECT state FROM jobs WHERE id = 77")
    assert row["state"] == "waiting"


async def test_a_job_whose_run_was_deleted_before_its_approval_is_stale(scene: Yard) -> None:
    await scene.world.report(scene.account, scene.key, scene.world.facts(77, JobState.WAITING))
    await scene.rounds(scene.recovery(), 1200)
    [row] = await scene.world.rows("SELECT state, conclusion FROM jobs WHERE id = 77")
    assert (row["state"], row["conclusion"]) == ("completed", "stale")
    assert ("job-deleted", "done") in await scene.actions()


async def test_a_job_that_github_took_back_from_an_unknown_runner_is_served_again(
    scene: Yard,
) -> None:
    """I37: its row may be lost with a backup; then paddock cannot know that its runner is gone."""
    other = Executor(github_id=GitHubRunnerId(999), name="forgotten")
    facts = scene.world.facts(77, JobState.IN_PROGRESS, executor=other)
    await scene.world.report(scene.account, scene.key, facts)
    scene.github.job(JobId(77), "in_progress", scene.world.clock.now(), runner_id=999)
    await scene.rounds(scene.recovery(), 2000)
    [row] = await scene.world.rows("SELECT state FROM jobs WHERE id = 77")
    assert row["state"] == "in_progress"
    scene.github.job(JobId(77), "queued", scene.world.clock.now())
    await scene.rounds(scene.recovery(), 1200)
    [row] = await scene.world.rows("SELECT state FROM jobs WHERE id = 77")
    assert row["state"] == "queued"
    assert ("given-back", "done") in await scene.actions()


async def test_silence_counts_only_while_others_are_answered(scene: Yard) -> None:
    """I29: when no Pod is heard, the cause is the server and not the Pods."""
    silent, other = await scene.idle(), await scene.idle()
    recovery = scene.recovery()
    await scene.rounds(recovery, 400)
    assert await states(scene, silent, other) == [S.IDLE, S.IDLE]

    for _ in range(20):
        await scene.world.store.hear_pod(other.pod_name, pod_uid=other.pod_uid or "")
        await scene.rounds(recovery, 10)
    assert await states(scene, other) == [S.IDLE]
    assert (await states(scene, silent))[0] in (S.RETIRING, S.GONE)


async def test_after_an_outage_no_poller_is_silent_before_all_could_ask(scene: Yard) -> None:
    """The first Pod that polls again makes no other one late."""
    silent, other = await scene.idle(), await scene.idle()
    recovery = scene.recovery()
    scene.world.clock.advance(600)
    await scene.world.store.hear_pod(other.pod_name, pod_uid=other.pod_uid or "")
    await scene.rounds(recovery, 60)
    assert await states(scene, silent, other) == [S.IDLE, S.IDLE]


async def test_an_armed_runner_whose_pod_does_not_ask_is_retired(scene: Yard) -> None:
    runner, other = await scene.armed(), await scene.idle()
    recovery = scene.recovery()
    for _ in range(30):
        await scene.world.store.hear_pod(other.pod_name, pod_uid=other.pod_uid or "")
        await scene.rounds(recovery, 10)
    assert await states(scene, runner) == [S.GONE]


async def test_a_dry_run_writes_down_what_it_would_do_once(scene: Yard) -> None:
    runner = await never_registered(scene)
    assert runner.hint is not None
    scene.github.job(runner.hint, "queued", scene.world.clock.now())
    recovery = scene.recovery(dry_run=True)
    await scene.rounds(recovery, 200)
    assert await states(scene, runner) == [S.RUNNING]
    assert (await scene.row(runner)).suspect_at is None
    assert await scene.actions() == [("suspect", "dry-run")]


async def test_one_rule_can_be_tried_out_by_itself(scene: Yard) -> None:
    runner = await never_registered(scene)
    assert runner.hint is not None
    scene.github.job(runner.hint, "queued", scene.world.clock.now())
    recovery = scene.recovery(dry_run_rules=frozenset({"never-registered"}))
    await scene.rounds(recovery, 600)
    assert await states(scene, runner) == [S.RUNNING]
    assert (await scene.row(runner)).suspect_at is not None
    assert ("never-registered", "dry-run") in await scene.actions()


async def test_every_action_is_stored_with_its_evidence(scene: Yard) -> None:
    runner = await never_registered(scene)
    await scene.rounds(scene.recovery(), 70)
    [row] = await scene.world.rows(
        "SELECT runner_id, why, evidence ->> 'record' AS record FROM actions WHERE rule = 'suspect'"
    )
    assert (row["runner_id"], row["record"]) == (runner.id, "offline")
    assert "GitHub" in row["why"]


async def test_what_a_rule_may_do_at_once_is_limited(scene: Yard) -> None:
    """I29"""
    runners = [await scene.running(started=False) for _ in range(5)]
    scene.world.clock.advance(40)
    recovery = scene.recovery(per_rule=2)
    await scene.rounds(recovery)
    suspects = [(await scene.row(each)).suspect_at for each in runners]
    assert len(suspects) - suspects.count(None) == 2


async def test_a_job_whose_runner_is_gone_is_queued_again_when_github_says_so(
    scene: Yard,
) -> None:
    runner = await scene.running()
    assert runner.hint is not None
    await scene.world.report(
        scene.account,
        scene.key,
        scene.world.facts(runner.hint, JobState.IN_PROGRESS, executor=executor(runner)),
    )
    scene.github.job(runner.hint, "in_progress", scene.world.clock.now())
    scene.fleet.end_runner(runner.pod_name, exit_code=137)
    recovery = scene.recovery()
    await scene.rounds(recovery, 120)
    [job] = await scene.world.rows("SELECT state FROM jobs")
    assert job["state"] == "in_progress"

    scene.github.job(runner.hint, "queued", scene.world.clock.now())
    await scene.rounds(recovery, 120)
    [job] = await scene.world.rows("SELECT state, demotions FROM jobs")
    assert (job["state"], job["demotions"]) == ("queued", 1)


async def lost(scene: Yard) -> JobId:
    """A job in progress on a runner that has ended."""
    runner = await scene.running()
    assert runner.hint is not None
    begun = scene.world.facts(runner.hint, JobState.IN_PROGRESS, executor=executor(runner))
    await scene.world.report(scene.account, scene.key, begun)
    scene.github.job(runner.hint, "in_progress", scene.world.clock.now())
    scene.fleet.end_runner(runner.pod_name, exit_code=137)
    await scene.rounds(scene.recovery(), 30)
    scene.github.not_found.add("org-1/repo")
    return runner.hint


async def test_a_job_of_a_deleted_repository_is_ended_when_its_runner_is_gone(scene: Yard) -> None:
    """I29, I37, I66: three answers, each with the installation's own list beside it."""
    job = await lost(scene)
    scene.github.listed = [99]
    await scene.rounds(scene.recovery(), 100)
    assert await job_states(scene) == ["in_progress"]
    await scene.rounds(scene.recovery(), 200)
    [row] = await scene.world.rows("SELECT state, conclusion, why FROM jobs WHERE id = $1", job)
    assert (row["state"], row["conclusion"]) == ("completed", "stale")
    assert row["why"].startswith("repository-deleted")
    assert ("repository-deleted", "done") in await scene.actions()
    asked = scene.github.calls["get_job"]
    await scene.rounds(scene.recovery(), 600)
    assert scene.github.calls["get_job"] == asked


@pytest.mark.parametrize("listed", [[3001], []], ids=["listed", "suspended"])
async def test_a_repository_that_is_not_proven_to_be_deleted_ends_nothing(
    scene: Yard, listed: list[int]
) -> None:
    """I66: GitHub answers 404 for it, but lists it still, or lists nothing at all."""
    await lost(scene)
    scene.github.listed, scene.github.suspended = listed, not listed
    await scene.rounds(scene.recovery(), 3 * HOUR, every=30)
    assert await job_states(scene) == ["in_progress"]


async def test_the_only_repository_of_an_account_can_be_deleted(scene: Yard) -> None:
    """The list is empty, and the App is told that the installation is active."""
    await lost(scene)
    await scene.rounds(scene.recovery(), 300)
    assert await job_states(scene) == ["completed"]


async def test_a_404_of_one_repository_keeps_no_other_from_being_asked_for(scene: Yard) -> None:
    """I17: the scope that the failure names backs off, and nothing beside it."""
    await lost(scene)
    scene.github.listed = [3001]
    recovery = scene.recovery()
    await scene.rounds(recovery, 90)
    runner = await never_registered(scene)
    await scene.rounds(recovery, 90)
    assert (await scene.row(runner)).suspect_at is not None


async def test_a_queued_job_has_a_hard_end(scene: Yard) -> None:
    """I37"""
    [job] = await scene.world.queue(scene.account, scene.key, 1)
    recovery = scene.recovery()
    scene.world.clock.advance(timedelta(hours=23).total_seconds())
    await scene.rounds(recovery)
    assert scene.github.calls["get_job"] == 0
    scene.world.clock.advance(timedelta(hours=2).total_seconds())
    await scene.rounds(recovery)
    [row] = await scene.world.rows("SELECT state, conclusion FROM jobs WHERE id = $1", job)
    assert (row["state"], row["conclusion"]) == ("completed", "stale")


async def test_a_job_approved_after_days_is_not_expired(scene: Yard) -> None:
    """I76: 60 hours for an approval are no time in the queue; its hard end comes two days later."""
    world = scene.world
    created = world.clock.now()
    await world.report(scene.account, scene.key, world.facts(77, JobState.WAITING, waited=True))
    world.clock.advance(60 * HOUR)
    approved = world.facts(77, created_at=created, known_queued_at=world.clock.now())
    await world.report(scene.account, scene.key, approved)
    scene.github.job(JobId(77), "queued", created)
    recovery = scene.recovery()
    await scene.rounds(recovery, 600)
    [row] = await world.rows("SELECT state FROM jobs WHERE id = 77")
    assert row["state"] == "queued"

    world.clock.advance(49 * HOUR)
    await scene.rounds(recovery, 120)
    [row] = await world.rows("SELECT state, conclusion FROM jobs WHERE id = 77")
    assert (row["state"], row["conclusion"]) == ("completed", "stale")


async def test_a_job_given_back_after_days_is_not_expired(scene: Yard) -> None:
    """I76: it is queued again since its runner was lost, and late webhooks make it no older."""
    world = scene.world
    begun = world.facts(
        77, JobState.IN_PROGRESS, executor=Executor(github_id=GitHubRunnerId(999), name="lost")
    )
    await world.report(scene.account, scene.key, begun)
    world.clock.advance(60 * HOUR)
    assert await world.store.demote_job(world.host, JobId(77), why="test")
    scene.github.job(JobId(77), "queued", begun.created_at)
    await world.report(scene.account, scene.key, replace(begun, state=JobState.QUEUED))
    await scene.rounds(scene.recovery(), 600)
    [row] = await world.rows("SELECT state FROM jobs WHERE id = 77")
    assert row["state"] == "queued"


async def test_a_job_that_github_does_not_assign_is_explained(scene: Yard) -> None:
    runner = await scene.running()
    assert runner.hint is not None
    scene.github.job(runner.hint, "queued", scene.world.clock.now())
    await scene.rounds(scene.recovery(), 300)
    [check] = await scene.world.rows("SELECT waits_because FROM job_checks")
    assert "runner group" in check["waits_because"]


async def test_a_job_that_github_does_not_assign_keeps_no_other_of_its_key_waiting(
    scene: Yard,
) -> None:
    """I17: the job waits, and not its key; it is tried again later."""
    recovery = scene.recovery()
    job = None
    for number in range(3):
        runner = await scene.running()
        job = job or runner.hint
        assert job is not None
        for each in await scene.world.rows("SELECT id FROM jobs WHERE id <> $1", job):
            ended = scene.world.facts(each["id"], JobState.COMPLETED)
            await scene.world.report(scene.account, scene.key, ended)
        scene.github.job(job, "queued", scene.world.clock.now())
        await scene.rounds(recovery, 1200)
        assert (await scene.row(runner)).state is S.GONE
        if number == 0:
            assert await scene.world.store.refused_jobs(10) == [], "it is withheld for 15 minutes"
    assert await scene.world.rows("SELECT FROM backoffs") == []
    [row] = await scene.world.rows("SELECT refusal, state FROM jobs WHERE id = $1", job)
    assert (row["refusal"], row["state"]) == ("not assigned", "queued")
    await scene.world.queue(scene.account, scene.key, 1)
    assert await serve(scene) == 1

    assert [each.facts.id for each in await scene.world.store.refused_jobs(10)] == [job]


async def test_the_stamp_comes_when_the_poller_has_ended(scene: Yard) -> None:
    """I56: not while the JIT is on its way."""
    runner, recovery = await scene.armed(), scene.recovery()
    await scene.rounds(recovery)
    assert scene.fleet.pods[runner.pod_name].owner is None
    scene.fleet.end_poller(runner.pod_name)
    await scene.rounds(recovery)
    assert scene.fleet.pods[runner.pod_name].owner == str(scene.account)


async def test_a_stamp_that_fails_changes_nothing_else(scene: Yard) -> None:
    runner, recovery = await scene.running(), scene.recovery()
    scene.fleet.fail("stamp")
    await scene.rounds(recovery)
    assert await states(scene, runner) == [S.RUNNING]
    assert scene.fleet.calls["stamp"] == 3


async def test_two_leaders_at_once_do_no_harm(scene: Yard) -> None:
    runner = await never_registered(scene)
    assert runner.hint is not None
    scene.github.job(runner.hint, "queued", scene.world.clock.now())
    first = scene.recovery()
    view = scene.viewed
    second = scene.recovery()
    for _ in range(60):
        await view.refresh()
        await first.ends()
        await first.round()
        await scene.rounds(second, 5)
        scene.world.clock.advance(5)
    assert await states(scene, runner) == [S.GONE]
    [verdicts] = await scene.world.rows("SELECT count(*) AS n FROM verdicts")
    assert verdicts["n"] == 1


@pytest.mark.parametrize("call", ["list", "delete_live_pod", "reap", "log_tail", "stamp"])
async def test_a_fleet_that_fails_stops_no_round(scene: Yard, call: str) -> None:
    """I57"""
    await scene.running()
    await scene.fenced(await scene.idle())
    ended = await scene.running()
    scene.fleet.end_runner(ended.pod_name, exit_code=1)
    recovery = scene.recovery()
    await scene.viewed.refresh()
    scene.fleet.fail(call)  # type: ignore[arg-type]
    await scene.rounds(recovery, 30)
    assert await states(scene, ended) == [S.GONE]


async def test_a_pod_that_something_beside_its_ended_runner_keeps_is_let_go_ten_minutes_later(
    scene: Yard,
) -> None:
    """Its log shows a job, and its process has ended: no job needs protection. Until then its Pod
    keeps the evidence of what its exit code means."""
    runner = await scene.running()
    scene.says(runner, "Running job: build")
    await scene.world.store.occupy_runner(
        runner.id, generation=runner.generation, job=runner.hint, why="test"
    )
    ended = scene.fleet.end_runner(runner.pod_name, exit_code=0)
    scene.fleet.pods[runner.pod_name] = replace(ended, phase=Phase.RUNNING)
    assert runner.github_id is not None
    del scene.github.records[runner.github_id]
    recovery = scene.recovery()
    await scene.rounds(recovery, 580)
    assert scene.deleted == []
    await scene.rounds(recovery, 320)
    assert await states(scene, runner) == [S.GONE]


async def test_a_fleet_that_waits_and_is_heard_is_left_alone_until_something_changes(
    scene: Yard,
) -> None:
    runner = await scene.idle()
    recovery = scene.recovery()
    await scene.rounds(recovery, 10)
    quiet = await recovery._gatherer.glance()
    assert quiet.quiet

    scene.world.clock.advance(71)
    assert not (await recovery._gatherer.glance()).quiet, "its poller may have fallen silent"
    await scene.world.store.hear_pod(runner.pod_name, pod_uid=runner.pod_uid or "")
    assert (await recovery._gatherer.glance()).quiet

    other = await scene.running()
    assert not (await recovery._gatherer.glance()).quiet, f"{other.pod_name} is at work"
