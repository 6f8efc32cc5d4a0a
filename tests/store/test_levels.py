"""The levels of the metrics, read from rows at each scrape."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from paddock.domain.accounts import MintBudget
from paddock.domain.ids import AccountId, KeyId, PoolId
from paddock.domain.reading.overview import Levels
from paddock.domain.runners.runner import Runner
from paddock.domain.states import JobState
from paddock.listener import CLOSED
from paddock.store.database import Database
from paddock.web.metrics import REMEMBERED, Metrics
from tests.support.world import World, executor


class Watched:
    def __init__(self, world: World, account: AccountId, pool: PoolId, key: KeyId) -> None:
        self.world = world
        self.account = account
        self.pool = pool
        self.key = key
        self._metrics = Metrics(world.reading, world.clock)

    async def scrape(self) -> dict[tuple[str, ...], float]:
        self.world.clock.advance(REMEMBERED + 1)
        response = await self._metrics.respond(Request({"type": "http"}))
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(bytes(response.body).decode())
            for sample in family.samples
        }


@pytest.fixture
async def watched(database: Database) -> Watched:
    world = await World(database).begin(mints=MintBudget(per_minute=None, per_hour=100))
    account, pool = await world.account(), await world.pool()
    return Watched(world, account, pool, await world.key(account, pool))


async def test_while_the_database_hangs_no_answer_is_kept(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger can have as many requests wait as there are connections. So an answer is made when it
    is sent, and has what was counted meanwhile."""
    asked, answers = asyncio.Event(), asyncio.Event()

    async def hang() -> Levels:
        asked.set()
        await answers.wait()
        raise TimeoutError

    monkeypatch.setattr(watched.world.reading, "levels", hang)
    scrape = asyncio.create_task(watched.scrape())
    await asked.wait()
    CLOSED.labels("test").inc()
    answers.set()
    assert (await scrape)["paddock_connections_closed_total", "test"] == 1


async def test_queues_are_told_by_length_and_age(watched: Watched) -> None:
    await watched.world.queue(watched.account, watched.key, 3)
    watched.world.clock.advance(600)
    seen = await watched.scrape()
    assert seen["paddock_queued_jobs", "org-1", "linux"] == 3
    age = seen["paddock_oldest_queued_seconds", "org-1", "linux"]
    assert age == pytest.approx(600 + REMEMBERED + 1)


async def test_runners_are_told_by_pool_and_state_and_none_is_zero(watched: Watched) -> None:
    await watched.world.idle_pods(watched.pool, 2)
    seen = await watched.scrape()
    assert seen["paddock_runners", "linux", "idle"] == 2
    assert seen["paddock_runners", "linux", "busy"] == 0


async def test_a_pool_tells_what_it_may_have_and_how_much_of_it_is_suspect(
    watched: Watched,
) -> None:
    [pod, _] = await watched.world.idle_pods(watched.pool, 2)
    await watched.world.rows("UPDATE pools SET max_runners = 7")
    await watched.world.rows("UPDATE runners SET suspect_at = now() WHERE id = $1", pod.id)
    seen = await watched.scrape()
    assert seen["paddock_pool_max_runners", "linux"] == 7
    assert seen["paddock_suspect_runners", "linux"] == 1
    assert ("paddock_pool_target_runners", "linux") not in seen


async def test_the_series_of_a_deleted_pool_disappear(watched: Watched) -> None:
    """I61"""
    assert ("paddock_runners", "linux", "idle") in await watched.scrape()
    await watched.world.rows("UPDATE pools SET state = 'deleted'")
    assert ("paddock_runners", "linux", "idle") not in await watched.scrape()


async def test_a_leak_cannot_hide_its_own_metric(watched: Watched) -> None:
    """I61: no code counted this name as owed; its row is enough."""
    world = watched.world
    await world.queue(watched.account, watched.key, 1)
    [claim] = (await world.store.match(await world.idle_pods(watched.pool, 1))).claims
    assert (await watched.scrape())["paddock_github_debts",] == 0
    await world.store.release_runner(
        claim.runner, generation=claim.generation, why="lost", no_record_because=None
    )
    assert (await watched.scrape())["paddock_github_debts",] == 1


async def test_what_is_left_of_the_mints_is_told(watched: Watched) -> None:
    world, mints = watched.world, ("paddock_github_budget_left_ratio", "1", "mint")
    assert mints not in await watched.scrape(), "nothing was spent"
    await world.queue(watched.account, watched.key, 10)
    await world.store.match(await world.idle_pods(watched.pool, 10))
    assert (await watched.scrape())[mints] < 0.5
    other = await world.account()
    await world.queue(other, await world.key(other, watched.pool), 1)
    await world.store.match(await world.idle_pods(watched.pool, 1))
    assert (await watched.scrape())[mints] < 0.5, "of the installation that has the least"


async def test_what_alarms_count_begins_at_zero(watched: Watched) -> None:
    """The step from no series to 3 is no increase."""
    seen = await watched.scrape()
    assert ("paddock_runner_endings_total", "host-oom") in seen
    assert ("paddock_mints_total", "not accessible") in seen


async def test_levels_that_cannot_be_read_are_absent_and_the_rest_is_told(
    watched: Watched, database: Database
) -> None:
    assert ("paddock_github_debts",) in await watched.scrape()
    await database.close()
    seen = await watched.scrape()
    assert ("paddock_github_debts",) not in seen
    assert ("process_start_time_seconds",) in seen


async def test_each_step_of_a_dispatch_has_its_time(watched: Watched) -> None:
    world = watched.world
    [job] = await world.queue(watched.account, watched.key, 1)
    began = world.clock.now()
    world.clock.advance(2)
    [claim] = (await world.store.match(await world.idle_pods(watched.pool, 1))).claims
    world.clock.advance(3)
    armed = await world.arm(claim.runner, claim.generation)
    assert isinstance(armed, Runner)
    world.clock.advance(5)
    await world.acknowledge(armed)
    world.clock.advance(7)
    facts = world.facts(job, JobState.IN_PROGRESS, executor=executor(armed))
    await world.report(watched.account, watched.key, facts)
    now = world.clock.now()

    [steps] = await world.store.steps(after=began, until=now)
    assert (steps.pool, steps.claimed, steps.armed) == ("linux", 2, 3)
    assert (steps.acknowledged, steps.in_progress) == (5, 7)
    assert await world.store.steps(after=now, until=now + timedelta(hours=1)) == []
