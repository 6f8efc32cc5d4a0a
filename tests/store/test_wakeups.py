"""NOTIFY, sent by the tables themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paddock.domain.limits import Limits
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState
from paddock.ports import Topic
from paddock.store.database import Database
from paddock.store.wakeups import PgWakeups
from paddock.system import SystemClock
from tests.support.runner_rows import conclude_runner
from tests.support.world import World


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


@pytest.fixture
async def wakeups(database: Database) -> AsyncIterator[PgWakeups]:
    async with PgWakeups.listening(database, SystemClock()) as wakeups:
        yield wakeups


async def test_a_queued_job_wakes_the_matchers(world: World, wakeups: PgWakeups) -> None:
    account = await world.account()
    key = await world.key(account, await world.pool())
    subscription = wakeups.subscribe(Topic.DEMAND)
    await world.queue(account, key, 3)
    assert await subscription.wait(30) == {Topic.DEMAND}


async def test_capacity_that_comes_free_wakes_the_matchers(
    world: World, wakeups: PgWakeups
) -> None:
    account, pool = await world.account(limits=Limits(runners=1)), await world.pool()
    key = await world.key(account, pool)
    await world.queue(account, key, 2)
    [claim] = (await world.store.match(await world.idle_pods(pool, 1))).claims
    subscription = wakeups.subscribe(Topic.DEMAND)
    await conclude_runner(
        world.store,
        claim.runner,
        generation=claim.generation,
        state=RunnerState.CLAIMED,
        ending=Ending.UNKNOWN,
        why="test",
        ended_at=world.clock.now(),
    )
    assert await subscription.wait(30) == {Topic.DEMAND}


async def test_a_topic_without_subscribers_wakes_no_loop(world: World, wakeups: PgWakeups) -> None:
    account = await world.account()
    key = await world.key(account, await world.pool())
    others, mine = wakeups.subscribe(Topic.DELIVERIES), wakeups.subscribe(Topic.DEMAND)
    await world.queue(account, key, 1)
    await mine.wait(30)
    assert await others.wait(0) == frozenset()


async def test_a_runners_steps_between_its_claim_and_its_end_wake_no_loop(
    world: World, wakeups: PgWakeups
) -> None:
    """Each would hold the lock of all notifications until its commit is on the disk."""
    account, pool = await world.account(), await world.pool()
    await world.queue(account, await world.key(account, pool), 1)
    pods = await world.idle_pods(pool, 1)
    await asyncio.sleep(0.2)
    subscription, others = wakeups.subscribe(Topic.RUNNERS), wakeups.subscribe(Topic.DELIVERIES)
    [claim] = (await world.store.match(pods)).claims
    assert await subscription.wait(30)
    assert isinstance(await world.arm(claim.runner, claim.generation), Runner)
    await world.rows("SELECT pg_notify('paddock', 'deliveries')")
    assert await others.wait(30)
    assert not await subscription.wait(0)


async def test_a_lost_listener_comes_back_and_wakes_all_loops(
    world: World, wakeups: PgWakeups
) -> None:
    subscription = wakeups.subscribe(Topic.DEMAND)
    await world.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
    )
    assert await subscription.wait(30) == {Topic.DEMAND}


async def test_many_wakeups_are_one(world: World, wakeups: PgWakeups) -> None:
    account = await world.account()
    key = await world.key(account, await world.pool())
    subscription = wakeups.subscribe(Topic.DEMAND)
    for _ in range(5):
        await world.queue(account, key, 1)
    await asyncio.sleep(0.2)
    assert await subscription.wait(30)
    assert not await subscription.wait(0)


async def test_a_job_that_loses_its_pool_wakes_those_who_judge_it_anew(
    world: World, wakeups: PgWakeups
) -> None:
    """Another pool may take it, and was described before."""
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    await world.store.delete_pool(pool, why="test")
    await asyncio.sleep(0.2)
    subscription = wakeups.subscribe(Topic.POOLS)
    await world.queue(account, key, 1)
    assert await world.store.refuse_jobs_of([pool]) == 1
    assert await subscription.wait(30) == {Topic.POOLS}
    assert await world.store.refuse_jobs_of([pool]) == 0
    await world.rows("SELECT pg_notify('paddock', 'deliveries')")
    assert not await subscription.wait(0.2)
