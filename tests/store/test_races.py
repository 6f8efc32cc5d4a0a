"""A hundred Pods, two matchers, one free slot (I25), and the mutant that this must catch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import pytest

from paddock.domain.limits import Limits
from paddock.domain.runners import Claim
from paddock.store.base import MATCHER_LOCK
from paddock.store.database import Connection, Database
from paddock.store.store import PgStore
from tests.support.world import World


async def race_for_one_slot(
    database_url: str, database: Database, kind: type[PgStore]
) -> tuple[int, int]:
    """How many claims were made, and how many there may be."""
    world = await World(database).begin()
    account, pool = await world.account(limits=Limits(runners=1)), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 100)
    await world.queue(account, key, 100)
    other = await Database.connect(database_url)
    try:
        replicas = [
            kind(each, clock=world.clock, ids=world.ids, actor=f"replica-{number}")
            for number, each in enumerate((database, other))
        ]
        await asyncio.gather(*(replicas[n % 2].match(pods[n * 5 : n * 5 + 5]) for n in range(20)))
    finally:
        await other.close()
    [held] = await world.rows("SELECT count(*) FROM runners WHERE state = 'claimed'")
    return held[0], 1


async def test_two_matchers_and_one_free_slot_make_one_claim(
    database: Database, database_url: str
) -> None:
    """I25"""
    made, allowed = await race_for_one_slot(database_url, database, PgStore)
    assert made == allowed


class LimitCheckedOutsideTheLock(PgStore):
    """The mutant: it reads and decides, and takes the lock only to write."""

    @asynccontextmanager
    async def _matching(self) -> AsyncIterator[Connection]:
        async with self._database.transaction() as connection:
            yield connection

    async def _claim(
        self, connection: Connection, claims: Sequence[Claim], now: datetime
    ) -> tuple[Claim, ...]:
        await asyncio.sleep(0.3)  # the others read meanwhile, as they well may
        await connection.execute(MATCHER_LOCK)
        return await super()._claim(connection, claims, now)


async def test_a_matcher_that_checks_the_limit_outside_the_lock_is_caught(
    database: Database, database_url: str
) -> None:
    made, allowed = await race_for_one_slot(database_url, database, LimitCheckedOutsideTheLock)
    with pytest.raises(AssertionError):
        assert made == allowed


async def test_what_a_match_returns_is_on_the_disk(database: Database, database_url: str) -> None:
    """Nothing is minted for a claim that a crash could take back. The server writes to its log by
    itself too: some of the looks may be unlucky, and not most."""
    world = await World(database).begin()
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    # Tests wait for no disk, but this one.
    name = database_url.partition("?")[0].rpartition("/")[2]
    await world.rows(f"ALTER DATABASE {name} SET synchronous_commit = on")
    other = await Database.connect(database_url)
    store = PgStore(other, clock=world.clock, ids=world.ids, actor="replica-1")
    flushed = 0
    for pod in await world.idle_pods(pool, 20):
        await world.queue(account, key, 1)
        assert (await store.match([pod])).claims
        [look] = await world.rows(
            "SELECT pg_current_wal_insert_lsn() <= pg_current_wal_flush_lsn()"
        )
        flushed += look[0]
    await other.close()
    assert flushed > 10


async def test_a_matcher_that_stalls_in_its_transaction_is_thrown_out(
    database: Database, database_url: str
) -> None:
    """I72: the stalled one holds the lock and says nothing; the other goes on all the same."""
    world = await World(database).begin()
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 1)
    await world.queue(account, key, 1)
    other = await Database.connect(database_url)
    stalled = other.transaction()
    try:
        connection = await stalled.__aenter__()
        await connection.execute(MATCHER_LOCK)
        match = await asyncio.wait_for(world.store.match(pods), 120)
    finally:
        await other.close()

    assert len(match.claims) == 1
