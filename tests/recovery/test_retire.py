"""Retire: three sources must agree before a live Pod is killed, and a crash at any step is
recovered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddock.domain.github.objects import RunnerRecord
from paddock.domain.ids import GitHubRunnerId
from paddock.domain.names import runner_name
from paddock.domain.pods.pod import Phase
from paddock.domain.runners.endings import Retired
from paddock.domain.runners.runner import Runner
from paddock.domain.runners.vitals import VitalsReport
from paddock.domain.states import JobState, RunnerState
from paddock.recovery.retire import Retirement, RetireStep
from paddock.recovery.search import RunnerSearch
from tests.support.recovery import HOST, Yard, waiting
from tests.support.runner_rows import read_runner
from tests.support.world import executor


def retirement(scene: Yard, search: RunnerSearch | None = None) -> Retirement:
    """A new one each time: only the row may keep its state."""
    world = scene.world
    return Retirement(
        store=world.store,
        fleet=scene.fleet,
        github=scene.github,
        clock=world.clock,
        ids=world.ids,
        search=search or searching(scene),
    )


def searching(scene: Yard) -> RunnerSearch:
    world = scene.world
    return RunnerSearch(store=world.store, github=scene.github, clock=world.clock, apps=scene.apps)


async def step(
    scene: Yard, runner: Runner, *, looked: bool = True, search: RunnerSearch | None = None
) -> RetireStep:
    """One round, with or without a newer reading of the fleet."""
    row = await scene.row(runner)
    assert row.state is RunnerState.RETIRING
    seen_at = scene.world.clock.now()
    if looked:
        scene.world.clock.advance(1)
        seen_at = scene.world.clock.now()
    places = await scene.world.store.key_places([] if row.key is None else [row.key])
    return await retirement(scene, search).go_on(
        row, scene.fleet.pods[row.pod_name], seen_at=seen_at, places=places
    )


async def steps(
    scene: Yard,
    runner: Runner,
    count: int,
    *,
    pause: float = 0,
    search: RunnerSearch | None = None,
) -> list[RetireStep]:
    taken = []
    for _ in range(count):
        taken.append(await step(scene, runner, search=search))
        scene.world.clock.advance(pause)
    return taken


async def searched(scene: Yard, runner: Runner) -> RunnerSearch:
    """The retirement has waited for a search, and its two lists have been read since."""
    search = searching(scene)
    assert await step(scene, runner, search=search) is RetireStep.STOPPED
    for _ in range(2):
        await search.round()
        scene.world.clock.advance(60)
    return search


async def test_a_pod_for_which_no_name_was_chosen_is_deleted_at_once(scene: Yard) -> None:
    runner = await scene.fenced(await scene.idle(), retired=Retired.UNWANTED)

    assert await step(scene, runner) is RetireStep.DELETED
    assert scene.deleted == [runner.pod_name]
    assert not scene.github.calls


async def test_github_is_asked_before_the_fleet(scene: Yard) -> None:
    """I35"""
    runner = await scene.fenced(await scene.armed())

    assert await step(scene, runner) is RetireStep.DEREGISTERED
    assert scene.deleted == []
    assert await step(scene, runner) is RetireStep.DELETED
    assert scene.github.records == {}


async def test_a_runner_github_calls_busy_lives(scene: Yard) -> None:
    """I35: 422"""
    runner = await scene.running()
    scene.github.say(runner, busy=True)
    runner = await scene.fenced(runner)

    assert await step(scene, runner) is RetireStep.BUSY
    row = await scene.row(runner)
    assert (row.state, row.job) == (RunnerState.BUSY, None)
    assert scene.deleted == []


async def test_a_runner_that_started_is_proved_idle_twice(scene: Yard) -> None:
    """I65"""
    runner = await scene.fenced(await scene.running())

    assert await steps(scene, runner, 4, pause=40) == [
        RetireStep.DEREGISTERED,
        RetireStep.PROVED,
        RetireStep.WAITS,
        RetireStep.WAITS,
    ]
    assert scene.deleted == []
    assert await step(scene, runner) is RetireStep.DELETED


async def test_a_job_that_github_denied_is_seen_in_the_log(scene: Yard) -> None:
    """I65: GitHub calls a busy runner idle, and deletes its record."""
    runner = await scene.running()
    scene.github.say(runner, busy=True)
    scene.github.lies = True
    scene.says(runner, "Running job: build")
    runner = await scene.fenced(runner)

    assert await steps(scene, runner, 2) == [RetireStep.DEREGISTERED, RetireStep.BUSY]
    assert scene.deleted == []


ACT_BUSY = "runner-1 ( https://github.com/acme ): Running Job 'build'"


async def test_a_busy_third_party_runner_that_github_forgot_goes_on(scene: Yard) -> None:
    """I89, I65: it has other words for a job than actions/runner."""
    runner = await scene.running()
    scene.github.say(runner, busy=True)
    scene.github.lies = True
    scene.fleet.logs[runner.pod_name] = (
        "paddock: starting the runner (act-runner)\n"
        "Listening for Jobs: runner-1 ( https://github.com/acme )\n"
    )
    scene.says(runner, ACT_BUSY)
    runner = await scene.fenced(runner)

    assert await steps(scene, runner, 2) == [RetireStep.DEREGISTERED, RetireStep.BUSY]
    assert scene.deleted == []


async def test_an_idle_third_party_runner_is_deleted_after_two_proofs(scene: Yard) -> None:
    runner = await scene.running()
    scene.fleet.logs[runner.pod_name] = "paddock: starting the runner (act-runner)\n"
    runner = await scene.fenced(runner)

    taken = await steps(scene, runner, 3, pause=90)
    assert taken == [RetireStep.DEREGISTERED, RetireStep.PROVED, RetireStep.DELETED]


@pytest.mark.parametrize("log", ["ready\n", "paddock: starting the runner (unknown)\nbegins\n"])
async def test_a_runner_whose_program_is_unknown_is_never_deleted_as_idle(
    scene: Yard, log: str
) -> None:
    """I89: it may execute a job, and tell of it in words that paddock does not know."""
    runner = await scene.running()
    scene.fleet.logs[runner.pod_name] = log
    runner = await scene.fenced(runner)

    taken = await steps(scene, runner, 6, pause=90)
    assert taken == [RetireStep.DEREGISTERED, *[RetireStep.STOPPED] * 5]
    assert scene.deleted == []


async def test_a_job_that_begins_between_the_two_proofs_is_seen(scene: Yard) -> None:
    """I65"""
    runner = await scene.fenced(await scene.running())
    await steps(scene, runner, 2)
    scene.says(runner, "Running job: build")
    scene.world.clock.advance(90)

    assert await step(scene, runner) is RetireStep.BUSY
    assert scene.deleted == []


async def test_a_job_that_the_sidecar_marked_is_believed(scene: Yard) -> None:
    runner = await scene.running()
    report = VitalsReport(
        pod_name=runner.pod_name,
        pod_uid=runner.pod_uid or "",
        samples=[],
        job_started_at=scene.world.clock.now(),
    )
    await scene.world.store.add_vitals([report])
    runner = await scene.fenced(runner)

    assert await steps(scene, runner, 2) == [RetireStep.DEREGISTERED, RetireStep.BUSY]
    assert scene.deleted == []


@pytest.mark.parametrize("why", ["the fleet is away", "there is no log"])
async def test_a_log_that_cannot_be_read_stops_it(scene: Yard, why: str) -> None:
    """I29"""
    runner = await scene.fenced(await scene.running())
    if why == "there is no log":
        del scene.fleet.logs[runner.pod_name]
    else:
        scene.fleet.fail("log_tail")

    assert await steps(scene, runner, 3, pause=90) == [
        RetireStep.DEREGISTERED,
        RetireStep.STOPPED,
        RetireStep.STOPPED,
    ]
    assert scene.deleted == []


async def test_no_answer_from_github_stops_it(scene: Yard) -> None:
    """I29"""
    runner = await scene.fenced(await scene.armed())
    scene.github.down = True

    assert await steps(scene, runner, 2) == [RetireStep.STOPPED, RetireStep.STOPPED]
    scene.github.down = False
    assert await steps(scene, runner, 2) == [RetireStep.DEREGISTERED, RetireStep.DELETED]


async def test_a_look_from_before_the_deregistration_proves_nothing(scene: Yard) -> None:
    """Its container may have started since that reading."""
    runner = await scene.fenced(await scene.armed())
    await step(scene, runner)

    assert await step(scene, runner, looked=False) is RetireStep.WAITS
    assert scene.deleted == []


async def test_a_runner_that_finished_is_left_ten_minutes(scene: Yard) -> None:
    runner = await scene.running()
    scene.says(runner, "Running job: build")
    [job] = await scene.world.rows("SELECT id FROM jobs")
    facts = scene.world.facts(job["id"], JobState.COMPLETED, executor=executor(runner))
    await scene.world.report(scene.account, scene.key, facts)
    done = await read_runner(scene.world.store, runner.id)
    assert done is not None
    assert done.state is RunnerState.DONE
    runner = await scene.fenced(done, retired=Retired.FINISHED)

    assert await step(scene, runner) is RetireStep.WAITS
    scene.world.clock.advance(600)
    assert await steps(scene, runner, 2) == [RetireStep.DEREGISTERED, RetireStep.DELETED]


async def test_another_pod_of_the_same_name_is_left_alone(scene: Yard) -> None:
    """I36"""
    runner = await scene.fenced(await scene.idle())
    old = scene.fleet.pods[runner.pod_name]
    del scene.fleet.pods[runner.pod_name]
    scene.fleet.pods[runner.pod_name] = type(old)(
        name=old.name, uid="another", pool=old.pool, phase=old.phase, created_at=old.created_at
    )

    assert await step(scene, runner) is RetireStep.OVERTAKEN
    assert scene.deleted == []


async def test_a_row_from_a_restored_backup_kills_nothing(scene: Yard) -> None:
    """I70: the row says idle; since the backup the Pod was claimed, and it executes a job."""
    runner = await scene.idle()
    scene.fleet.end_poller(runner.pod_name)
    scene.says(runner, "Running job: build")
    runner = await scene.fenced(runner)

    taken = await steps(scene, runner, 6, pause=90)

    assert RetireStep.DELETED not in taken
    assert scene.deleted == []


async def test_a_row_from_a_restored_backup_leaves_no_record_at_github(scene: Yard) -> None:
    """I41: its poller had its JIT, its runner never started, and the row knows of neither."""
    runner = await scene.idle()
    scene.fleet.keep_runner_waiting(runner.pod_name, "CreateContainerError")
    scene.github.records[GitHubRunnerId(9)] = RunnerRecord(
        host=HOST,
        id=GitHubRunnerId(9),
        name=runner_name(runner.pod_name, runner.generation + 1),
        status="offline",
        busy=False,
        labels=(),
    )
    runner = await scene.fenced(runner)

    search = await searched(scene, runner)
    taken = await steps(scene, runner, 3, search=search)
    assert taken == [RetireStep.IDENTIFIED, RetireStep.DEREGISTERED, RetireStep.DELETED]
    assert scene.github.records == {}


async def test_a_row_from_a_restored_backup_learns_its_name_from_github(scene: Yard) -> None:
    """I70: GitHub knows a busy runner of the name that the Pod's next claim had."""
    runner = await scene.idle()
    scene.fleet.end_poller(runner.pod_name)
    scene.github.records[GitHubRunnerId(9)] = RunnerRecord(
        host=HOST,
        id=GitHubRunnerId(9),
        name=runner_name(runner.pod_name, runner.generation + 1),
        status="online",
        busy=True,
        labels=(),
    )
    runner = await scene.fenced(runner)

    search = await searched(scene, runner)
    assert await steps(scene, runner, 2, search=search) == [RetireStep.IDENTIFIED, RetireStep.BUSY]
    row = await scene.row(runner)
    assert (row.state, row.github_id, row.account) == (RunnerState.BUSY, 9, scene.account)
    assert scene.deleted == []


async def test_a_pod_of_one_container_is_proved_when_it_may_have_a_jit(scene: Yard) -> None:
    """Its container is up from its first second: that says nothing about jobs."""
    await scene.world.rows("UPDATE pools SET shape = 'single' RETURNING 1")
    runner = await scene.armed()
    scene.fleet.logs[runner.pod_name] = "Listening for Jobs\n"
    runner = await scene.fenced(runner)

    assert await steps(scene, runner, 2) == [RetireStep.DEREGISTERED, RetireStep.PROVED]
    assert scene.deleted == []


async def test_a_pod_of_one_container_that_polls_after_the_fence_goes_at_once(scene: Yard) -> None:
    await scene.world.rows("UPDATE pools SET shape = 'single' RETURNING 1")
    runner = await scene.idle()
    pod = scene.fleet.end_poller(runner.pod_name)  # looks like a container that runs
    await scene.fenced(runner)
    scene.world.clock.advance(1)
    await scene.world.store.hear_pod(runner.pod_name, pod_uid=pod.uid)

    assert await step(scene, await scene.row(runner)) is RetireStep.DELETED


async def test_a_poll_before_the_fence_proves_nothing_of_a_pod_of_one_container(
    scene: Yard,
) -> None:
    """I70: its row may be from before it got its JIT."""
    await scene.world.rows("UPDATE pools SET shape = 'single' RETURNING 1")
    runner = await scene.idle()
    scene.fleet.end_poller(runner.pod_name)
    runner = await scene.fenced(runner)

    assert await step(scene, runner) is not RetireStep.DELETED
    assert scene.deleted == []


async def test_what_a_deregistration_settled_is_no_debt(scene: Yard) -> None:
    """I41"""
    runner = await scene.fenced(await scene.armed())
    await step(scene, runner)

    [mint] = await scene.world.rows("SELECT state, outcome FROM mints")
    assert (mint["state"], mint["outcome"]) == ("settled", "removed")


async def test_the_name_of_a_mint_under_way_stays_a_debt(scene: Yard) -> None:
    """I41: GitHub may be making the record at this moment."""
    idle = await scene.idle()
    await scene.world.queue(scene.account, scene.key, 1)
    [claim] = (await scene.world.store.match([waiting(idle)])).claims
    claimed = await read_runner(scene.world.store, claim.runner)
    assert claimed is not None
    runner = await scene.fenced(claimed)

    assert await steps(scene, runner, 2) == [RetireStep.DEREGISTERED, RetireStep.DELETED]
    [mint] = await scene.world.rows("SELECT state FROM mints")
    assert mint["state"] == "chosen"


async def test_a_runner_whose_process_is_over_needs_no_proof(scene: Yard) -> None:
    """Its log shows a job, which ended with it; another container keeps the Pod."""
    runner = await scene.fenced(await scene.running(), retired=Retired.UNWANTED)
    scene.says(runner, "Running job: build")
    ended = scene.fleet.end_runner(runner.pod_name, exit_code=100)
    scene.fleet.pods[runner.pod_name] = replace(ended, phase=Phase.RUNNING)

    assert await steps(scene, runner, 2) == [RetireStep.DEREGISTERED, RetireStep.DELETED]


CRASHES = ("delete_runner", "note_deregistered", "note_proved", "note_deletion", "delete_live_pod")


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("call", CRASHES)
async def test_a_crash_between_any_two_steps_is_resumed(
    scene: Yard, call: str, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next leader has only the row."""
    runner = await scene.fenced(await scene.running())
    owner = {"delete_runner": scene.github, "delete_live_pod": scene.fleet}.get(
        call, scene.world.store
    )
    real = getattr(owner, call)

    class Crash(Exception): ...

    async def crash(*args: object, **kwargs: object) -> object:
        if not before:
            await real(*args, **kwargs)
        raise Crash

    monkeypatch.setattr(owner, call, crash, raising=False)
    for _ in range(10):
        try:
            await step(scene, runner)
        except Crash:
            break
        scene.world.clock.advance(90)
    else:
        raise AssertionError(f"{call} was never called")
    monkeypatch.undo()

    for _ in range(6):
        if scene.fleet.pods[runner.pod_name].phase.terminal:
            break
        await step(scene, runner)
        scene.world.clock.advance(90)
    row = await scene.row(runner)
    assert scene.fleet.pods[runner.pod_name].phase.terminal
    assert row.deregistered_at is not None
    assert row.proved_at is not None


async def test_a_fleet_that_is_away_is_asked_again(scene: Yard) -> None:
    runner = await scene.fenced(await scene.idle())
    scene.fleet.fail("delete_live_pod", times=1)

    assert await step(scene, runner) is RetireStep.STOPPED
    scene.world.clock.advance(30)
    assert await step(scene, runner) is RetireStep.DELETED
