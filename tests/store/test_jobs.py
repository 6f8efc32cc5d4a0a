"""Jobs in the store: the database merges as the domain does, and a state never falls."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from datetime import timedelta
from functools import reduce

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.domain.ids import GitHubRunnerId, JobId
from paddock.domain.jobs.facts import Executor, JobFacts, JobReport, Refusal, merge
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Runner
from paddock.domain.states import JobState
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from tests.support.database import Loop, fresh_database
from tests.support.runner_rows import conclude_runner, read_runner
from tests.support.world import World, executor

_jobs = itertools.count(10_000)


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


@pytest.fixture(scope="module")
def loop(postgres: EmbeddedPostgres) -> Iterator[Loop]:
    with fresh_database(postgres) as loop:
        yield loop


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[dict[str, object]], list[list[int]]]:
    """Events of one job, and batches in which they arrive: any order, any duplication."""
    count = draw(st.integers(1, 6))
    events = [
        {
            "state": draw(st.sampled_from(JobState)),
            "minute": draw(st.integers(0, 4)),
            "runner": draw(st.integers(1, 3)),
            "conclusion": draw(st.sampled_from(["success", "failure", "cancelled"])),
        }
        for _ in range(count)
    ]
    arrivals = draw(
        st.lists(st.lists(st.integers(0, count - 1), min_size=1, max_size=3), max_size=6)
    )
    rest = set(range(count)) - {index for batch in arrivals for index in batch}
    return events, [*arrivals, *[[index] for index in sorted(rest)]]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories())
def test_any_order_and_duplication_of_events_ends_in_the_same_row(
    loop: Loop, history: tuple[list[dict[str, object]], list[list[int]]]
) -> None:
    """I2, I3: the row equals the domain's merge of the set of events, arriving in concurrent
    batches from several connections."""
    events, arrivals = history

    async def scenario(database: Database) -> None:
        world = await World(database).begin()
        account = await world.account()
        pool = await world.pool()
        key = await world.key(account, pool)
        job = next(_jobs)
        facts = [_facts(world, job, event) for event in events]
        await asyncio.gather(
            *(world.report(account, key, *(facts[index] for index in batch)) for batch in arrivals)
        )
        [row] = await world.rows("SELECT * FROM jobs WHERE id = $1", job)
        expected = reduce(merge, facts)
        assert _seen(row) == _told(expected)
        states = await world.rows(
            "SELECT before, after FROM events WHERE job_id = $1 ORDER BY id", job
        )
        ranks = [JobState(event["after"]).rank for event in states]
        assert ranks == sorted(set(ranks))

    loop.run(scenario)


def _facts(world: World, job: int, event: dict[str, object]) -> JobFacts:
    state = JobState(str(event["state"]))
    minute, runner = int(str(event["minute"])), int(str(event["runner"]))
    at = world.clock.now().replace(minute=minute)
    begun = state in (JobState.IN_PROGRESS, JobState.COMPLETED)
    return world.facts(
        job,
        state,
        created_at=at,
        waited=state is JobState.WAITING,
        known_queued_at=None if state is JobState.WAITING else at + timedelta(hours=runner * 20),
        **(
            {"executor": Executor(github_id=GitHubRunnerId(runner), name=f"runner-{runner}")}
            if begun
            else {}
        ),
        **({"conclusion": event["conclusion"]} if state is JobState.COMPLETED else {}),
    )


def _seen(row: asyncpg.Record) -> tuple[object, ...]:
    return tuple(
        row[name]
        for name in (
            "state",
            "queued_at",
            "started_at",
            "completed_at",
            "conclusion",
            "executor_id",
            "executor_name",
        )
    )


def _told(facts: JobFacts) -> tuple[object, ...]:
    return (
        facts.state.value,
        facts.queued_at,
        facts.started_at,
        facts.completed_at,
        facts.conclusion,
        facts.executor and facts.executor.github_id,
        facts.executor and facts.executor.name,
    )


async def test_batches_that_overlap_in_other_orders_do_not_deadlock(world: World) -> None:
    account = await world.account()
    key = await world.key(account, await world.pool())
    jobs = list(range(1, 40))
    shuffled = random.Random(1)
    batches = [shuffled.sample(jobs, len(jobs)) for _ in range(8)]
    await asyncio.gather(
        *(world.report(account, key, *(world.facts(job) for job in batch)) for batch in batches)
    )
    [count] = await world.rows("SELECT count(*) FROM jobs")
    assert count[0] == len(jobs)


@pytest.mark.parametrize("state", [JobState.WAITING, JobState.QUEUED, JobState.IN_PROGRESS])
async def test_completed_is_final(world: World, state: JobState) -> None:
    """I2: late `queued` redeliveries resurrect nothing, and the schema refuses it too."""
    account = await world.account()
    key = await world.key(account, await world.pool())
    await world.report(account, key, world.facts(1, JobState.COMPLETED))
    await world.report(account, key, world.facts(1, state))
    [row] = await world.rows("SELECT state FROM jobs")
    assert row["state"] == "completed"
    with pytest.raises(asyncpg.CheckViolationError):
        await world.rows(f"UPDATE jobs SET state = '{state}' RETURNING 1")


async def test_a_job_that_waits_for_approval_is_not_demand(world: World) -> None:
    """I12"""
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    await world.report(account, key, world.facts(1, JobState.WAITING))
    assert (await world.store.match(await world.idle_pods(pool, 1))).claims == ()


async def test_a_refused_job_keeps_its_reason_and_is_not_demand(world: World) -> None:
    account, pool = await world.account(), await world.pool()
    refusal = Refusal(reason="ambiguous", detail="fits pools a and b")
    await world.store.apply_jobs(
        [
            JobReport(
                facts=world.facts(1),
                account=account,
                repository=world.repository_facts[account],
                served=refusal,
            )
        ],
        why="test",
    )
    assert (await world.store.match(await world.idle_pods(pool, 1))).claims == ()
    [row] = await world.rows("SELECT refusal, refusal_detail FROM jobs")
    assert tuple(row) == (refusal.reason, refusal.detail)


async def in_progress(world: World) -> Runner:
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    [job] = await world.queue(account, key, 1)
    [claim] = (await world.store.match(await world.idle_pods(pool, 1))).claims
    runner = await world.arm(claim.runner, claim.generation)
    assert isinstance(runner, Runner)
    await world.report(
        account, key, world.facts(job, JobState.IN_PROGRESS, executor=executor(runner))
    )
    busy = await read_runner(world.store, runner.id)
    assert busy is not None
    assert busy.job == job
    return busy


async def test_a_runner_that_was_busy_by_its_own_word_learns_its_job(world: World) -> None:
    """I73: it counts for one of the queued jobs until GitHub names its job."""
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    [job] = await world.queue(account, key, 1)
    [claim] = (await world.store.match(await world.idle_pods(pool, 1))).claims
    runner = await world.arm(claim.runner, claim.generation)
    assert isinstance(runner, Runner)
    await world.store.occupy_runner(
        runner.id, generation=runner.generation, job=None, why="its own log says so"
    )
    await world.report(
        account, key, world.facts(job, JobState.IN_PROGRESS, executor=executor(runner))
    )
    busy = await read_runner(world.store, runner.id)
    assert busy is not None
    assert busy.job == job


async def test_a_job_may_fall_back_to_queued_once_its_runner_is_gone(world: World) -> None:
    runner = await in_progress(world)
    assert runner.job is not None
    await conclude_runner(
        world.store,
        runner.id,
        generation=runner.generation,
        state=runner.state,
        ending=Ending.CRASH,
        why="test",
        ended_at=world.clock.now(),
    )
    assert await world.store.demote_job(world.host, runner.job, why="GitHub says queued")
    [row] = await world.rows("SELECT state, runner_id, executor_id FROM jobs")
    assert tuple(row) == ("queued", None, None)


async def test_a_job_that_falls_back_finds_its_pool_deleted(world: World) -> None:
    """The pool was deleted while it executed: it waits for any pool that fits, not for that one."""
    runner = await in_progress(world)
    assert runner.job is not None
    await conclude_runner(
        world.store,
        runner.id,
        generation=runner.generation,
        state=runner.state,
        ending=Ending.CRASH,
        why="test",
        ended_at=world.clock.now(),
    )
    await world.store.delete_pool(runner.pool, why="test")
    assert await world.store.demote_job(world.host, runner.job, why="GitHub says queued")
    [row] = await world.rows("SELECT state, key_id, refusal FROM jobs")
    assert tuple(row) == ("queued", None, "pool deleted")


async def test_a_job_does_not_fall_while_its_runner_lives(world: World) -> None:
    """I32: GitHub was asked, and the job began on another. The schema would refuse it, too."""
    runner = await in_progress(world)
    assert runner.job is not None
    assert not await world.store.demote_job(world.host, runner.job, why="GitHub says queued")
    with pytest.raises(asyncpg.CheckViolationError):
        await world.rows("UPDATE jobs SET state = 'queued', demotions = demotions + 1 RETURNING 1")


async def test_a_job_that_is_not_in_progress_is_not_demoted(world: World) -> None:
    assert not await world.store.demote_job(world.host, JobId(1), why="test")
