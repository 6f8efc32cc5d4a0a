"""History is deleted in small batches; live rows are not."""

from __future__ import annotations

import pytest

from paddock.dispatch.housekeeping import Housekeeping
from paddock.domain.accounts import MintBudget
from paddock.domain.retention import BATCH, History
from paddock.domain.runners.endings import Ending
from paddock.domain.states import JobState, RunnerState
from paddock.store.database import Database
from tests.support.runner_rows import conclude_runner
from tests.support.world import World

DAY = 24 * 3600


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


def housekeeping(world: World) -> Housekeeping:
    return Housekeeping(store=world.store, clock=world.clock)


async def test_what_is_over_is_forgotten_in_its_time_and_what_lives_is_kept(world: World) -> None:
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    await world.queue(account, key, 3)
    claims = (await world.store.match(await world.idle_pods(pool, 2))).claims
    ended, living = claims
    await world.store.release_runner(
        ended.runner, generation=1, why="test", no_record_because="refused"
    )
    await conclude_runner(
        world.store,
        ended.runner,
        generation=1,
        state=RunnerState.IDLE,
        ending=Ending.UNKNOWN,
        why="test",
        ended_at=world.clock.now(),
    )
    await world.report(account, key, world.facts(1, JobState.COMPLETED))
    world.clock.advance(31 * DAY)

    gone = await housekeeping(world).round()

    assert gone[History.RUNNERS] == 1
    assert gone[History.JOBS] == 1
    assert gone[History.EVENTS] > 0
    [runner] = await world.rows("SELECT id FROM runners")
    assert runner["id"] == living.runner
    [name] = await world.rows("SELECT runner_id FROM mints")
    assert name["runner_id"] == living.runner
    [jobs] = await world.rows("SELECT count(*) FROM jobs")
    assert jobs[0] == 3


async def test_a_runner_with_an_unsettled_name_is_remembered(world: World) -> None:
    """I41: only its row records the debt at GitHub."""
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    await world.queue(account, key, 1)
    [claim] = (await world.store.match(await world.idle_pods(pool, 1))).claims
    await conclude_runner(
        world.store,
        claim.runner,
        generation=1,
        state=RunnerState.CLAIMED,
        ending=Ending.UNKNOWN,
        why="test",
        ended_at=world.clock.now(),
    )
    world.clock.advance(31 * DAY)
    assert (await housekeeping(world).round())[History.RUNNERS] == 0


async def test_a_runner_of_an_account_that_removed_the_app_is_forgotten(world: World) -> None:
    """Its name can never be settled: nothing can be asked about the account any more."""
    accounts = [await world.account() for _ in range(2)]
    pool = await world.pool()
    for account in accounts:
        await world.queue(account, await world.key(account, pool), 1)
    for claim in (await world.store.match(await world.idle_pods(pool, 2))).claims:
        await conclude_runner(
            world.store,
            claim.runner,
            generation=claim.generation,
            state=RunnerState.CLAIMED,
            ending=Ending.HARD_DELETED,
            why="test",
            ended_at=world.clock.now(),
        )
    await world.store.remove_installation(world.host, 1001)
    world.clock.advance(31 * DAY)
    assert (await housekeeping(world).round())[History.RUNNERS] == 1
    [left] = await world.rows("SELECT account_id FROM runners")
    assert left["account_id"] == accounts[1]


async def test_one_call_takes_one_batch(world: World) -> None:
    await world.rows(
        "INSERT INTO deliveries"
        " (guid, host_id, app_id, event, received_at, not_before, state, settled_at)"
        " SELECT n::text, $1, $4, 'ping', $2, $2, 'applied', $2"
        " FROM generate_series(1, $3) n RETURNING 1",
        world.host,
        world.clock.now(),
        BATCH + 10,
        world.app,
    )
    world.clock.advance(15 * DAY)
    now = world.clock.now()
    assert await world.store.forget(History.DELIVERIES, before=now) == BATCH
    assert (await housekeeping(world).round())[History.DELIVERIES] == 10


async def test_a_guid_is_remembered_for_longer_than_github_redelivers(world: World) -> None:
    """I6"""
    await world.rows(
        "INSERT INTO deliveries"
        " (guid, host_id, app_id, event, received_at, not_before, state, settled_at, payload)"
        " VALUES ('g', $1, $3, 'ping', $2, $2, 'applied', $2, '{}') RETURNING 1",
        world.host,
        world.clock.now(),
        world.app,
    )
    world.clock.advance(4 * DAY)  # GitHub's window is three days
    await housekeeping(world).round()
    [row] = await world.rows("SELECT guid, payload FROM deliveries")
    assert tuple(row) == ("g", None)


async def test_a_dead_delivery_is_forgotten_later_than_an_applied_one(world: World) -> None:
    """An operator can still retry it when applied ones are deleted."""
    for guid, state in (("dead", "dead"), ("done", "applied")):
        await world.rows(
            "INSERT INTO deliveries"
            " (guid, host_id, app_id, event, received_at, not_before, state, settled_at, payload, note)"
            " VALUES ($4, $1, $3, 'ping', $2, $2, $5::delivery_state, $2, '{}', 'test') RETURNING 1",
            world.host,
            world.clock.now(),
            world.app,
            guid,
            state,
        )
    world.clock.advance(15 * DAY)
    assert (await housekeeping(world).round())[History.DELIVERIES] == 1
    assert [row["guid"] for row in await world.rows("SELECT guid FROM deliveries")] == ["dead"]
    assert await world.store.retry_deliveries(None) == 1

    await world.rows("UPDATE deliveries SET state = 'dead', settled_at = $1", world.clock.now())
    world.clock.advance(29 * DAY)
    assert (await housekeeping(world).round())[History.DEAD] == 0
    world.clock.advance(2 * DAY)
    assert (await housekeeping(world).round())[History.DEAD] == 1


async def test_the_decision_in_force_is_remembered_however_old_it_is(world: World) -> None:
    """I53: a new leader begins with it."""
    pool = await world.pool()
    for wanted in (1, 2, 3):
        await world.rows(
            "INSERT INTO pool_decisions (pool_id, at, wanted, target, terms, why)"
            " VALUES ($1, $2, $3, $3, '{}', 'test')",
            pool,
            world.clock.now(),
            wanted,
        )
    world.clock.advance(3 * DAY)
    assert (await housekeeping(world).round())[History.DECISIONS] == 2
    assert [row["wanted"] for row in await world.rows("SELECT * FROM pool_decisions")] == [3]


async def test_a_bucket_that_is_full_again_is_forgotten_and_one_in_use_is_kept(
    database: Database,
) -> None:
    world = await World(database).begin(mints=MintBudget(per_minute=10, per_hour=10))
    pool = await world.pool()
    for _ in ("left the App", "stays"):
        world.clock.advance(2 * DAY)
        account = await world.account()
        await world.queue(account, await world.key(account, pool), 1)
        assert (await world.store.match(await world.idle_pods(pool, 2))).claims
    [before] = await world.rows("SELECT max(installation_id) AS newest FROM budgets")

    assert (await housekeeping(world).round())[History.BUDGETS] == 1
    [left] = await world.rows("SELECT installation_id FROM budgets")
    assert left["installation_id"] == before["newest"]
