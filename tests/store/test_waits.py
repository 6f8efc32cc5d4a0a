"""Lists give each job's reason to wait: the same as `paddock why`, in one read per page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from paddock.cli.top import drawn
from paddock.domain.jobs.facts import JobReport, Refusal
from paddock.domain.limits import Limits
from paddock.domain.reading.details import JobDetails
from paddock.domain.reading.filters import JobFilter, Page, Paging
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.states import JobState
from paddock.store.database import Database
from paddock.store.reading import PgReading
from paddock.stories import tell
from paddock.web.explanations import Explanations
from tests.support.world import World

EVERYTHING = Paging(limit=200)


class Counted:
    """A database whose statements are counted."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.statements = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @asynccontextmanager
    async def transaction(self, **how: str) -> AsyncIterator[Any]:
        async with self._database.transaction(**how) as connection:
            yield _CountedConnection(self, connection)


class _CountedConnection:
    def __init__(self, counted: Counted, connection: Any) -> None:
        self._counted, self._connection = counted, connection

    def __getattr__(self, name: str) -> Any:
        if name in ("execute", "fetch", "fetchrow", "fetchval"):
            self._counted.statements += 1
        return getattr(self._connection, name)


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


async def listed(world: World, reading: PgReading | None = None) -> Page[Any]:
    explanations = Explanations(reading or world.reading, world.clock, Thresholds())
    return await explanations.list_jobs(JobFilter(), EVERYTHING)


async def story(world: World, job: int) -> str:
    """What `paddock why` says."""
    [details] = await world.reading.find(str(job))
    assert isinstance(details, JobDetails)
    return tell(details, now=world.clock.now()).why


async def many_reasons(world: World) -> None:
    """Jobs that wait for as many different reasons as possible."""
    pool = await world.pool()
    paused, limited, served = (
        await world.account(),
        await world.account(limits=Limits(runners=0)),
        await world.account(),
    )
    for account in (paused, limited, served):
        await world.queue(account, await world.key(account, pool), 5)
    await world.store.pause_account(paused, why="abuse report 4711")
    # Two runners are on their way to the served account: one claimed, one with its JIT.
    match = await world.store.match(await world.idle_pods(pool, 2))
    assert len(match.claims) == 2
    await world.arm(match.claims[0].runner, match.claims[0].generation)
    unwanted = world.facts(9_001)
    refusal = Refusal(reason="near-miss", detail="no pool has the label linus")
    await world.store.apply_jobs(
        [
            JobReport(
                facts=unwanted,
                account=paused,
                repository=world.repository_facts[paused],
                served=refusal,
            )
        ],
        why="test",
    )
    await world.report(
        served, await world.key(served, pool), world.facts(9_002, JobState.COMPLETED)
    )


async def test_a_list_says_of_each_job_what_its_story_says(world: World) -> None:
    await many_reasons(world)
    jobs = (await listed(world)).items
    waiting = [job for job in jobs if job.status is JobState.QUEUED]
    assert len(waiting) == 16
    assert {job.id: job.waits_because for job in waiting} == {
        job.id: await story(world, job.id) for job in waiting
    }
    reasons = {job.waits_because for job in waiting}
    assert len(reasons) == 6
    for words in (
        "The account org-1 has been paused by test since",
        "The account org-2 has reached its limit",
        "has not acknowledged it yet",
        "its JIT is being minted",
        "No runner of the pool linux is idle",
        "No pool takes it (near-miss)",
    ):
        assert any(words in reason for reason in reasons), words
    assert [job.waits_because for job in jobs if job not in waiting] == [None]


async def test_the_overview_and_top_say_it_too(world: World) -> None:
    await many_reasons(world)
    seen = await Explanations(world.reading, world.clock, Thresholds()).overview()
    assert seen.oldest
    assert {job.id: job.waits_because for job in seen.oldest} == {
        job.id: await story(world, job.id) for job in seen.oldest
    }
    shown = "\n".join("".join(map(str, line)) for line in drawn(seen, None))
    assert all(job.waits_because and job.waits_because in shown for job in seen.oldest)


async def test_a_page_costs_one_read_however_many_jobs_are_on_it(world: World) -> None:
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)

    async def statements() -> int:
        counted = Counted(world.database)
        database = cast("Database", counted)
        reading = PgReading(database, world.clock)
        assert all(job.waits_because for job in (await listed(world, reading)).items)
        return counted.statements

    await world.queue(account, key, 1)
    alone = await statements()
    await world.queue(account, key, 60)
    assert await statements() == alone
