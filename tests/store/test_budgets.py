"""Budgets in rows: a token that one replica spends is spent for all."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from paddock.domain.accounts import MintBudget
from paddock.domain.allocation import Withheld
from paddock.domain.github.budgets import Bucket, BudgetKey, BudgetLimits, BudgetSpent
from paddock.domain.github.objects import AppKey, GitHubAppId, GitHubHost, InstallationId, Operation
from paddock.domain.ids import AccountId
from paddock.store.budgets import PgBudget
from paddock.store.database import Database
from tests.support.world import World

HOST = GitHubHost("github.com")
APP = AppKey(host=HOST, app=GitHubAppId(1))
DELETES = BudgetKey(bucket=Bucket.POINTS, host=HOST, app=APP.app, operation=Operation.DELETE_RUNNER)
QUOTA = BudgetKey(bucket=Bucket.REST, host=HOST, app=APP.app, installation=InstallationId(5))
MINTS = BudgetKey(bucket=Bucket.MINT, host=HOST, app=APP.app, installation=InstallationId(5))

WAITING_FOR_A_ROW = """
SELECT count(DISTINCT l.pid) AS sessions FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE NOT l.granted AND a.datname = current_database()
"""


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin(mints=MintBudget())


def budget(world: World, limits: BudgetLimits = BudgetLimits()) -> PgBudget:
    return PgBudget(world.database, clock=world.clock, apps={APP: (world.app, limits)})


async def test_two_replicas_spend_from_one_bucket(world: World) -> None:
    one, other = (budget(world, BudgetLimits(rest_per_hour=10)) for _ in range(2))
    taken = await asyncio.gather(
        *(replica.take(QUOTA, 1) for replica in (one, other) for _ in range(8)),
        return_exceptions=True,
    )
    assert sum(result is None for result in taken) == 10
    assert {type(result) for result in taken if result is not None} == {BudgetSpent}


async def test_a_short_wait_is_waited_and_a_long_one_is_said(world: World) -> None:
    replica = budget(world, BudgetLimits(points_per_minute=90))  # 30 at once, then one a second
    await replica.take(DELETES, 30)
    before = world.clock.monotonic()
    await replica.take(DELETES, 2)
    assert world.clock.monotonic() - before == pytest.approx(2, abs=0.1)
    with pytest.raises(BudgetSpent) as spent:
        await replica.take(DELETES, 30)
    assert spent.value.seconds > 5


async def test_only_what_is_in_the_bucket_is_given_to_those_who_waited_for_its_row(
    world: World,
) -> None:
    """The bucket is empty. Requests wait for its row, and meanwhile two tokens are added."""
    replica = budget(world, BudgetLimits(rest_per_hour=4))
    await replica.take(QUOTA, 4)
    async with world.database.transaction() as other:
        await other.execute("SELECT FROM budgets FOR UPDATE")
        takers = [asyncio.create_task(replica.take(QUOTA, 1)) for _ in range(4)]
        # Read outside this transaction, which would get the same answer again and again.
        while (await world.rows(WAITING_FOR_A_ROW))[0]["sessions"] < len(takers):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        world.clock.advance(1800)
    taken = await asyncio.gather(*takers, return_exceptions=True)
    assert sum(result is None for result in taken) == 2
    assert {type(result) for result in taken if result is not None} == {BudgetSpent}


async def test_what_github_says_is_left_is_believed_downwards_only(world: World) -> None:
    replica = budget(world, BudgetLimits(rest_per_hour=100))
    await replica.observe(QUOTA, remaining=3)
    await replica.observe(QUOTA, remaining=90)
    await replica.take(QUOTA, 3)
    with pytest.raises(BudgetSpent):
        await replica.take(QUOTA, 1)


async def test_a_spent_mint_quota_stops_the_matcher_until_it_is_reset(world: World) -> None:
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 1)
    await world.queue(account, key, 1)
    mints = replace(MINTS, installation=await installation_of(world, account))
    await budget(world).observe(mints, remaining=0, resets_in_s=600)

    assert (await world.store.match(pods)).withheld == {key: Withheld.MINT_BUDGET}
    world.clock.advance(601)
    assert len((await world.store.match(pods)).claims) == 1


async def installation_of(world: World, account: AccountId) -> InstallationId:
    [row] = await world.rows("SELECT github_id FROM installations WHERE account_id = $1", account)
    return InstallationId(row["github_id"])


@pytest.mark.parametrize("limit", [{"per_minute": 3}, {"per_hour": 30}], ids=str)
async def test_each_installation_has_mints_of_its_own(
    database: Database, limit: dict[str, int]
) -> None:
    """I26: GitHub counts for an installation, so what one account mints takes nothing from others."""
    world = await World(database).begin(
        mints=MintBudget(**{"per_minute": None, "per_hour": None, **limit})
    )
    pool = await world.pool()
    keys = []
    for _ in range(3):
        account = await world.account()
        keys.append(await world.key(account, pool))
        await world.queue(account, keys[-1], 5)
    pods = await world.idle_pods(pool, 15)

    match = await world.store.match(pods)

    assert Counter(claim.key for claim in match.claims) == dict.fromkeys(keys, 3)
    claimed = {claim.runner for claim in match.claims}
    again = await world.store.match([pod for pod in pods if pod.id not in claimed])
    assert again.withheld == dict.fromkeys(keys, Withheld.MINT_BUDGET)


async def test_one_installations_spent_mints_stop_no_other(world: World) -> None:
    """I26"""
    accounts, pool = [await world.account() for _ in range(2)], await world.pool()
    spent, other = [await world.key(account, pool) for account in accounts]
    for account, key in zip(accounts, (spent, other), strict=True):
        await world.queue(account, key, 1)
    mints = replace(MINTS, installation=await installation_of(world, accounts[0]))
    await budget(world).observe(mints, remaining=0, resets_in_s=600)

    match = await world.store.match(await world.idle_pods(pool, 2))

    assert [claim.key for claim in match.claims] == [other]
    assert match.withheld == {spent: Withheld.MINT_BUDGET}


async def test_an_app_without_an_hourly_limit_is_told_nothing_about_mints(
    database: Database,
) -> None:
    world = await World(database).begin()
    await budget(world).observe(MINTS, remaining=0, resets_in_s=600)
    assert await world.rows("SELECT * FROM budgets") == []


async def test_a_changed_size_holds_for_what_there_is(world: World) -> None:
    await budget(world).observe(MINTS, remaining=5)
    await world.store.ensure_app(world.host, 1, mints=MintBudget(per_hour=20))
    [row] = await world.rows("SELECT capacity, tokens FROM budgets")
    assert tuple(row) == (2, 2)
    await world.store.ensure_app(world.host, 1, mints=MintBudget(per_hour=None))
    assert await world.rows("SELECT * FROM budgets") == []


async def test_points_are_counted_for_each_installation(world: World) -> None:
    """I26: a pause that GitHub orders for one installation stops no other, nor the App itself."""
    replica = budget(world)
    slow = replace(DELETES, installation=InstallationId(5))
    await replica.observe(slow, remaining=0, resets_in_s=600)
    with pytest.raises(BudgetSpent):
        await replica.take(slow, 5)
    for free in (InstallationId(6), None):
        await replica.take(replace(DELETES, installation=free), 5)


async def test_a_mint_the_matcher_has_paid_for_is_not_paid_for_again(world: World) -> None:
    before = await world.rows("SELECT * FROM budgets ORDER BY installation_id, bucket")
    await budget(world).take(MINTS, 1)
    points = BudgetKey(bucket=Bucket.POINTS, host=HOST, app=APP.app, operation=Operation.MINT)
    await budget(world).take(points, 5)
    assert await world.rows("SELECT * FROM budgets ORDER BY installation_id, bucket") == before


async def test_each_installations_quota_is_told_by_itself(world: World) -> None:
    """I26: an installation's spent quota says nothing about another's."""
    replica = budget(world, BudgetLimits(rest_per_hour=100))
    assert await replica.quotas_left(APP) == {}
    await replica.take(QUOTA, 75)
    await replica.take(BudgetKey(bucket=Bucket.REST, host=HOST, app=APP.app), 10)
    await replica.take(DELETES, 5)
    assert await replica.quotas_left(APP) == {
        5: pytest.approx(0.25),
        None: pytest.approx(0.9),
    }
