"""A reading that finds no change writes nothing and wakes no matcher (I84)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from paddock.domain.accounts import InstallationFacts
from paddock.domain.ids import AccountId
from paddock.domain.jobs.facts import RepositoryFacts
from paddock.domain.limits import Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.states import JobState
from paddock.store.database import Database
from tests.support.world import World

#: Everything that a periodic read of GitHub, or of the pools' descriptions, writes to.
_TABLES = ("accounts", "installations", "repositories", "pools", "pool_groups", "terms", "events")


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


async def written(world: World) -> dict[str, list[tuple[str, str]]]:
    """Where each row is stored, and which transaction wrote it: a rewritten row has moved."""
    found = {}
    for table in _TABLES:
        rows = await world.rows(
            f"SELECT ctid::text AS place, xmin::text AS writer FROM {table} ORDER BY ctid"
        )
        found[table] = [(row["place"], row["writer"]) for row in rows]
    return found


@asynccontextmanager
async def heard(database_url: str) -> AsyncIterator[list[str]]:
    """The notifications that replicas get meanwhile."""
    told: list[str] = []
    connection = await asyncpg.connect(database_url)
    await connection.add_listener("paddock", lambda *said: told.append(str(said[-1])))
    try:
        yield told
        # Notifications are delivered in the order of commits: this one is the last.
        async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool:
            await pool.execute("SELECT pg_notify('paddock', 'the end')")
        while "the end" not in told:
            await connection.execute("SELECT 1")
        told.remove("the end")
    finally:
        await connection.close()


def installation(world: World, number: int) -> InstallationFacts:
    return InstallationFacts(
        host=world.host,
        app=world.app,
        id=1000 + number,
        account_id=20000 + number,
        login=f"org-{number}",
        kind="organization",
        state="active",
        all_repositories=False,
    )


async def read_installation(world: World, number: int) -> AccountId:
    account = await world.store.record_installation(installation(world, number))
    chosen = [
        RepositoryFacts(github_id=100 * number + each, full_name=f"org-{number}/repo-{each}")
        for each in range(3)
    ]
    await world.store.record_repositories(world.host, account, chosen)
    return account


def pool(**changed: object) -> PoolFacts:
    facts: dict[str, object] = {
        "name": "grouped",
        "labels": ("self-hosted", "grouped"),
        "shape": "gated",
        "cost": Resources(vcpu_milli=1000),
        "max_runners": 5,
        "spec": '{"labels": ["grouped"]}',
        "spec_hash": "v1",
        "runner_group": "builders",
    }
    return PoolFacts(**{**facts, **changed})  # type: ignore[arg-type]


async def test_a_hundred_unchanged_installations_cost_no_write(
    world: World, database_url: str
) -> None:
    """I84: the matchers keep their terms, no row is written, no replica is woken."""
    many = range(1, 101)
    for number in many:
        await read_installation(world, number)
    before = await written(world)
    world.clock.advance(900.0)
    async with heard(database_url) as told:
        for number in many:
            await read_installation(world, number)
    assert told == []
    assert await written(world) == before


async def test_unchanged_runner_groups_cost_no_write(world: World, database_url: str) -> None:
    """I84"""
    account = await read_installation(world, 1)
    grouped = await world.store.apply_pool(pool())
    await world.store.set_groups(account, {grouped: 7})
    before = await written(world)
    async with heard(database_url) as told:
        await world.store.set_groups(account, {grouped: 7})
    assert told == []
    assert await written(world) == before
    async with heard(database_url) as told:
        await world.store.set_groups(account, {})
    assert "demand" in told


async def test_a_pool_described_as_before_costs_no_write(world: World, database_url: str) -> None:
    """I84"""
    first = await world.store.apply_pool(pool())
    before = await written(world)
    world.clock.advance(60.0)
    async with heard(database_url) as told:
        assert await world.store.apply_pool(pool()) == first
    assert told == []
    assert await written(world) == before
    async with heard(database_url) as told:
        await world.store.apply_pool(pool(max_runners=6))
    assert "demand" in told


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "suspended"},
        {"login": "renamed"},
        {"all_repositories": True},
        {"id": 1999},
    ],
    ids=["suspended", "renamed", "all repositories", "installed anew"],
)
async def test_an_installation_that_changed_is_written(
    world: World, changed: dict[str, object]
) -> None:
    await read_installation(world, 1)
    before = await written(world)
    known = installation(world, 1)
    facts = {name: getattr(known, name) for name in known.__slots__}
    await world.store.record_installation(InstallationFacts(**{**facts, **changed}))
    assert await written(world) != before


async def test_a_repository_that_changed_is_written(world: World) -> None:
    account = await read_installation(world, 1)
    await world.store.record_repositories(
        world.host, account, [RepositoryFacts(github_id=100, full_name="org-1/renamed")]
    )
    rows = await world.rows("SELECT full_name, accessible FROM repositories ORDER BY github_id")
    assert [tuple(row) for row in rows] == [
        ("org-1/renamed", True),
        ("org-1/repo-1", False),
        ("org-1/repo-2", False),
    ]
    await read_installation(world, 1)
    rows = await world.rows("SELECT DISTINCT accessible FROM repositories")
    assert [row["accessible"] for row in rows] == [True]


async def test_news_of_a_job_that_is_known_already_wakes_no_matcher(
    world: World, database_url: str
) -> None:
    """I84: a redelivered `queued` is not new demand."""
    account = await world.account()
    key = await world.key(account, await world.pool())
    facts = world.facts(1, JobState.QUEUED)
    await world.report(account, key, facts)
    async with heard(database_url) as told:
        await world.report(account, key, facts)
    assert told == []
