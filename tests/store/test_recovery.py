"""What recovery stores: absences, a retirement's progress, supply_graces, suspects, actions."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from paddock.domain.github.debts import MintOutcome
from paddock.domain.ids import GitHubRunnerId, HostId, JobId, RunnerId
from paddock.domain.jobs.facts import Executor
from paddock.domain.names import PodName
from paddock.domain.pods.pod import Phase, Pod
from paddock.domain.recovery.evidence import JobWord
from paddock.domain.recovery.records import ActionOutcome, ActionTaken, DoubtTerms, FoundRecord
from paddock.domain.runners.endings import Ending, Retired
from paddock.domain.runners.runner import Conflict, Runner
from paddock.domain.states import JobState, RunnerState
from paddock.store.database import Database
from tests.support.recovery import Yard, waiting, yard
from tests.support.runner_rows import conclude_runner
from tests.support.world import executor

S = RunnerState


@pytest.fixture
async def scene(database: Database) -> Yard:
    return await yard(database)


async def conclude(
    scene: Yard, runner: Runner, *, with_grace: bool = False, evidence: str | None = None
) -> Runner:
    gone = await conclude_runner(
        scene.world.store,
        runner.id,
        generation=runner.generation,
        state=runner.state,
        ending=Ending.COMPLETED,
        why="test",
        ended_at=scene.world.clock.now(),
        evidence=evidence,
        supply_grace_until=scene.world.clock.now() + timedelta(minutes=2) if with_grace else None,
    )
    assert isinstance(gone, Runner)
    return gone


async def serve(scene: Yard) -> int:
    return len((await scene.world.store.match([waiting(await scene.idle())])).claims)


async def test_a_runner_turns_busy_also_without_the_name_of_its_job(scene: Yard) -> None:
    runner = await scene.fenced(await scene.running())
    busy = await scene.world.store.occupy_runner(
        runner.id, generation=runner.generation, job=None, why="GitHub refused to delete it"
    )
    assert isinstance(busy, Runner)
    assert (busy.state, busy.job) == (S.BUSY, None)


async def test_what_a_retirement_found_out_is_out_of_date_after_the_next_fence(
    scene: Yard,
) -> None:
    """I32: a runner that turned out to be busy is proved anew when it is fenced again."""
    store = scene.world.store
    runner = await scene.fenced(await scene.running())
    await store.note_deregistered(
        runner.id, generation=runner.generation, settled=MintOutcome.REMOVED
    )
    await store.note_proved(runner.id, generation=runner.generation)
    busy = await store.occupy_runner(
        runner.id, generation=runner.generation, job=None, why="its log says so"
    )
    assert isinstance(busy, Runner)
    again = await scene.fenced(busy)
    assert (again.deregistered_at, again.proved_at) == (None, None)


async def test_progress_is_noted_for_the_fence_it_was_made_for(scene: Yard) -> None:
    """I16, I32"""
    store = scene.world.store
    runner = await scene.running()
    fenced = await scene.fenced(runner)
    for late in (
        await store.note_deregistered(runner.id, generation=runner.generation, settled=None),
        await store.note_proved(runner.id, generation=runner.generation),
        await store.note_deletion(runner.id, generation=runner.generation, started=None),
    ):
        assert late == Conflict(S.RETIRING, fenced.generation)
    row = await scene.row(runner)
    assert (row.deregistered_at, row.proved_at, row.deletion_asked_at) == (None, None, None)


async def test_a_proof_before_the_deregistration_cannot_be_noted(scene: Yard) -> None:
    runner = await scene.fenced(await scene.running())
    early = await scene.world.store.note_proved(runner.id, generation=runner.generation)
    assert isinstance(early, Conflict)
    with pytest.raises(asyncpg.CheckViolationError):
        await scene.world.rows(
            "UPDATE runners SET proved_at = since, deregistered_at = since + interval '1 s'"
            " WHERE id = $1 RETURNING 1",
            runner.id,
        )


async def test_noting_something_is_no_step_and_no_event(scene: Yard) -> None:
    runner = await scene.fenced(await scene.running())
    [before] = await scene.world.rows("SELECT count(*) AS n FROM events")
    await scene.world.store.note_deregistered(
        runner.id, generation=runner.generation, settled=MintOutcome.REMOVED
    )
    await scene.world.store.note_pods([], read_at=scene.world.clock.now() + timedelta(seconds=1))
    [after] = await scene.world.rows("SELECT count(*) AS n FROM events")
    assert before["n"] == after["n"]


async def test_a_pod_gives_its_uid_to_the_row_that_was_planned_for_it(scene: Yard) -> None:
    [planned] = await scene.world.store.plan_runners(
        scene.pool, [(RunnerId(scene.world.ids.uuid()), "linux-new")], why="test"
    )
    pod = Pod(
        name=PodName("linux-new"),
        uid="u1",
        pool="linux",
        phase=Phase.PENDING,
        node="node-7",
        created_at=scene.world.clock.now(),
    )
    await scene.world.store.note_pods([pod], read_at=scene.world.clock.now())
    row = await scene.row(planned)
    assert (row.pod_uid, row.node, row.started) == ("u1", "node-7", False)


async def test_that_a_container_started_once_stays_so(scene: Yard) -> None:
    runner = await scene.running()
    pod = scene.fleet.pods[runner.pod_name]
    await scene.world.store.note_pods([pod], read_at=scene.world.clock.now())
    bare = Pod(name=pod.name, uid=pod.uid, pool="linux", phase=pod.phase, created_at=pod.created_at)
    await scene.world.store.note_pods([bare], read_at=scene.world.clock.now())
    assert (await scene.row(runner)).started is True


async def test_a_suspect_is_no_supply(scene: Yard) -> None:
    """I31: it keeps its place of the account's capacity, and its job is served again."""
    runner = await scene.running()
    assert await serve(scene) == 0
    suspect = await scene.world.store.suspect_runner(runner.id, generation=runner.generation)
    assert isinstance(suspect, Runner)
    assert await serve(scene) == 1
    [account] = await scene.world.store.list_accounts()
    assert account.used.runners == 2


async def test_a_suspect_that_is_trusted_again_is_supply(scene: Yard) -> None:
    runner = await scene.running()
    await scene.world.store.suspect_runner(runner.id, generation=runner.generation)
    await scene.world.store.trust_runner(runner.id, generation=runner.generation)
    assert await serve(scene) == 0


async def test_a_suspect_that_got_a_job_is_none(scene: Yard) -> None:
    runner = await scene.running()
    await scene.world.store.suspect_runner(runner.id, generation=runner.generation)
    assert runner.hint is not None
    await scene.world.report(
        scene.account,
        scene.key,
        scene.world.facts(runner.hint, JobState.IN_PROGRESS, executor=executor(runner)),
    )
    assert (await scene.row(runner)).suspect_at is None


async def test_an_ended_runner_counts_as_supply_until_its_time_is_up(scene: Yard) -> None:
    """I68"""
    await conclude(scene, await scene.running(), with_grace=True)
    assert await serve(scene) == 0
    scene.world.clock.advance(121)
    assert await serve(scene) == 1


async def test_an_ended_runner_stops_counting_when_github_was_asked(scene: Yard) -> None:
    runner = await conclude(scene, await scene.running(), with_grace=True)
    [grace] = await scene.world.store.supply_graces()
    assert (grace.runner, grace.hint, grace.host) == (runner.id, runner.hint, scene.world.host)
    await scene.world.store.end_supply_grace(runner.id)
    assert await serve(scene) == 1


async def test_an_event_that_names_an_ended_runner_ends_its_echo(scene: Yard) -> None:
    """I68: its job is known; the next job does not wait for it."""
    runner = await conclude(scene, await scene.running(), with_grace=True)
    assert runner.hint is not None
    await scene.world.report(
        scene.account,
        scene.key,
        scene.world.facts(runner.hint, JobState.COMPLETED, executor=executor(runner)),
    )
    assert await scene.world.store.supply_graces() == []
    await scene.world.queue(scene.account, scene.key, 1)
    assert await serve(scene) == 1


async def test_supply_and_demand_are_counted_per_key(scene: Yard) -> None:
    runner = await scene.running()
    await scene.running()
    await scene.world.store.suspect_runner(runner.id, generation=runner.generation)
    balance = (
        await scene.world.store.balances(recent=scene.world.clock.now() - timedelta(minutes=1))
    )[scene.key]
    assert (balance.supply, balance.suspects, balance.recent) == (1, 1, 2)
    assert balance.queued == 2


async def test_a_key_that_no_app_serves_has_no_place(scene: Yard) -> None:
    assert list(await scene.world.store.key_places([scene.key])) == [scene.key]
    await scene.world.rows("UPDATE installations SET state = 'suspended' RETURNING 1")
    assert await scene.world.store.key_places([scene.key]) == {}


async def test_an_adopted_runner_is_found_by_the_events_that_name_it(scene: Yard) -> None:
    """I70"""
    pod = Pod(
        name=PodName("linux-old"),
        uid="u9",
        pool="linux",
        phase=Phase.RUNNING,
        created_at=scene.world.clock.now(),
    )
    record = FoundRecord(
        key=scene.key,
        name="linux-old-1",  # type: ignore[arg-type]
        generation=1,
        github_id=GitHubRunnerId(99),
    )
    ids = scene.world.ids
    adopted = await scene.world.store.adopt_pod(
        pod, runner=RunnerId(ids.uuid()), delivery=ids.uuid(), record=record, why="test"
    )
    assert adopted is not None
    [job] = await scene.world.queue(scene.account, scene.key, 1)
    await scene.world.report(
        scene.account,
        scene.key,
        scene.world.facts(job, JobState.IN_PROGRESS, executor=executor(adopted)),
    )
    row = await scene.row(adopted)
    assert (row.state, row.job) == (S.BUSY, job)


async def test_a_pod_is_adopted_once(scene: Yard) -> None:
    """I15"""
    pod = scene.fleet.pods[(await scene.idle()).pod_name]
    ids = scene.world.ids
    again = await scene.world.store.adopt_pod(
        pod, runner=RunnerId(ids.uuid()), delivery=ids.uuid(), record=None, why="test"
    )
    assert again is None


def doubts(scene: Yard) -> DoubtTerms:
    now = scene.world.clock.now()
    return DoubtTerms(
        gone_before=now,
        asked_before=now - timedelta(seconds=60),
        waiting_before=now - timedelta(seconds=60),
        expired_before=now - timedelta(hours=24),
        running_before=now - timedelta(hours=1),
        unheard_before=now - timedelta(minutes=15),
    )


async def in_doubt(scene: Yard) -> list[JobId]:
    return [job.id for job in await scene.world.store.jobs_in_doubt(doubts(scene), limit=100)]


async def test_a_job_that_waits_beside_supply_is_in_doubt_once_a_minute(scene: Yard) -> None:
    runner = await scene.running()
    assert runner.hint is not None
    assert await in_doubt(scene) == []
    scene.world.clock.advance(61)
    assert await in_doubt(scene) == [runner.hint]
    await scene.world.store.note_job_check(scene.world.host, runner.hint, answer=JobWord.QUEUED)
    assert await in_doubt(scene) == []
    scene.world.clock.advance(61)
    assert await in_doubt(scene) == [runner.hint]


async def test_a_job_on_a_runner_that_lives_is_in_doubt_after_an_hour(scene: Yard) -> None:
    """I27: from then on GitHub is asked about it, and nothing else is done."""
    runner = await scene.running()
    assert runner.hint is not None
    await scene.world.report(
        scene.account,
        scene.key,
        scene.world.facts(runner.hint, JobState.IN_PROGRESS, executor=executor(runner)),
    )
    scene.world.clock.advance(3000)
    assert await in_doubt(scene) == []
    scene.world.clock.advance(1000)
    assert await in_doubt(scene) == [runner.hint]


async def test_a_job_that_waits_for_approval_is_in_doubt_every_quarter_of_an_hour(
    scene: Yard,
) -> None:
    await scene.world.report(scene.account, scene.key, scene.world.facts(77, JobState.WAITING))
    scene.world.clock.advance(800)
    assert await in_doubt(scene) == []
    scene.world.clock.advance(200)
    assert await in_doubt(scene) == [77]
    await scene.world.store.note_job_check(scene.world.host, JobId(77), answer=JobWord.WAITING)
    scene.world.clock.advance(800)
    assert await in_doubt(scene) == []
    scene.world.clock.advance(200)
    assert await in_doubt(scene) == [77]
    await scene.world.store.note_job_check(scene.world.host, JobId(77), answer=JobWord.ABSENT)
    scene.world.clock.advance(61)
    assert await in_doubt(scene) == [77], "one that GitHub does not know is asked for sooner"


async def test_a_job_on_a_runner_that_is_not_ours_is_in_doubt_every_quarter_of_an_hour(
    scene: Yard,
) -> None:
    other = Executor(github_id=GitHubRunnerId(999), name="another")
    facts = scene.world.facts(77, JobState.IN_PROGRESS, executor=other)
    await scene.world.report(scene.account, scene.key, facts)
    scene.world.clock.advance(800)
    assert await in_doubt(scene) == []
    scene.world.clock.advance(200)
    assert await in_doubt(scene) == [77]
    await scene.world.store.note_job_check(scene.world.host, JobId(77), answer=JobWord.IN_PROGRESS)
    scene.world.clock.advance(800)
    assert await in_doubt(scene) == []
    scene.world.clock.advance(200)
    await scene.world.store.note_job_check(scene.world.host, JobId(77), answer=JobWord.QUEUED)
    scene.world.clock.advance(61)
    assert await in_doubt(scene) == [77], "one that GitHub calls queued is asked for sooner"


async def test_answers_that_repeat_are_counted(scene: Yard) -> None:
    [job] = await scene.world.queue(scene.account, scene.key, 1)
    host, store = scene.world.host, scene.world.store
    assert await store.note_job_check(host, job, answer=JobWord.QUEUED) == 1
    assert await store.note_job_check(host, job, answer=JobWord.QUEUED) == 2
    assert await store.note_job_check(host, job, answer=JobWord.ABSENT) == 1


async def test_an_unknown_job_cannot_be_checked(scene: Yard) -> None:
    store = scene.world.store
    assert await store.note_job_check(HostId(1), JobId(404), answer=JobWord.QUEUED) == 0


async def test_only_a_waiting_job_expires(scene: Yard) -> None:
    """I37: in_progress is never force-completed."""
    runner = await scene.running()
    assert runner.hint is not None
    await scene.world.report(
        scene.account,
        scene.key,
        scene.world.facts(runner.hint, JobState.IN_PROGRESS, executor=executor(runner)),
    )
    expired = await scene.world.store.expire_job(
        scene.world.host, runner.hint, state=JobState.QUEUED, why="test"
    )
    assert not expired


async def test_actions_keep_their_evidence(scene: Yard) -> None:
    runner = await scene.idle()
    await scene.world.store.record_action(
        ActionTaken(
            rule="silent",
            action="fence",
            outcome=ActionOutcome.DRY_RUN,
            why="test",
            evidence='{"state": "idle"}',
            runner=runner.id,
            pod_name=runner.pod_name,
        )
    )
    [row] = await scene.world.rows("SELECT rule, outcome, evidence ->> 'state' AS s FROM actions")
    assert (row["rule"], row["outcome"], row["s"]) == ("silent", "dry-run", "idle")


async def test_a_verdict_is_looked_at_again_when_its_job_is_named(scene: Yard) -> None:
    store, now = scene.world.store, scene.world.clock.now()
    runner = await conclude(
        scene, await scene.running(), evidence='{"job": "unknown", "lost_communication": "unknown"}'
    )
    since = now - timedelta(hours=1)
    assert await store.late_news(since=since, limit=10) == []
    [open_verdict] = await store.open_verdicts(after=since, until=now, limit=10)
    assert open_verdict.runner == runner.id

    assert runner.hint is not None
    await scene.world.report(
        scene.account,
        scene.key,
        scene.world.facts(runner.hint, JobState.COMPLETED, executor=executor(runner)),
    )
    [news] = await store.late_news(since=since, limit=10)
    assert (news.runner, news.job_state) == (runner.id, JobState.COMPLETED)
    assert await store.open_verdicts(after=since, until=now, limit=10) == []
    await store.refine_verdict(
        runner.id,
        ending=Ending.COMPLETED,
        why="test",
        evidence='{"job": "yes", "lost_communication": "no"}',
    )
    assert await store.late_news(since=since, limit=10) == []


async def test_why_it_was_fenced_is_in_the_row(scene: Yard) -> None:
    fenced = await scene.fenced(await scene.idle(), retired=Retired.UNWANTED)
    assert (fenced.retired, fenced.retire_reason) == (Retired.UNWANTED, "test")
