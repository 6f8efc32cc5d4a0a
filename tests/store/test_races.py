"""A hundred Pods, two matchers, one free slot (I25), and the mutant that this must catch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import pytest

from paddock.domain.ids import RunnerId
from paddock.domain.limits import Limits
from paddock.domain.runners.runner import WaitingPod
from paddock.ports.errors import DatabaseUnavailable
from paddock.store.base import MATCHER_LOCK
from paddock.store.database import Database, Hold
from paddock.store.sql import queries
from paddock.store.store import PgStore
from tests.support.world import World

DEMAND = queries("matching")["demand"]
HOLDERS = """
SELECT count(*) FROM pg_locks
 WHERE locktype = 'advisory' AND (classid, objid) = (1885430635, 1) AND granted
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
WAITERS = HOLDERS.replace("AND granted", "AND NOT granted")


async def one_pod_and_its_job(database: Database) -> tuple[World, Sequence[WaitingPod]]:
    world = await World(database).begin()
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 1)
    await world.queue(account, key, 1)
    return world, pods


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


async def test_with_each_default_isolation_of_the_database(
    database: Database, database_url: str
) -> None:
    """I25: a snapshot from before the lock would lack the claims of its previous holder."""
    name = database_url.partition("?")[0].rpartition("/")[2]
    async with database.statement() as session:
        await session.execute(
            f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"
        )
    strict = await Database.connect(database_url)
    try:
        made, allowed = await race_for_one_slot(database_url, strict, PgStore)
    finally:
        await strict.close()
    assert made == allowed


class LimitCheckedOutsideTheLock(PgStore):
    """The mutant: it reads and decides, and takes the lock only to write."""

    async def _take_turn(self, hold: Hold, pods: int) -> str:
        read: str = await hold.take(DEMAND, pods, None, self._clock.now(), None)
        return read

    async def _claim(
        self, hold: Hold, chosen: Sequence[Any], now: datetime
    ) -> Collection[RunnerId]:
        await asyncio.sleep(0.3)  # the others read meanwhile, as they well may
        await hold.connection.execute("SELECT pg_advisory_lock(1885430635, 1)")
        return await super()._claim(hold, chosen, now)


async def test_a_matcher_that_checks_the_limit_outside_the_lock_is_caught(
    database: Database, database_url: str
) -> None:
    made, allowed = await race_for_one_slot(database_url, database, LimitCheckedOutsideTheLock)
    with pytest.raises(AssertionError):
        assert made == allowed


async def test_what_a_match_returns_is_on_the_disk(database: Database, database_url: str) -> None:
    """No JIT is minted for a claim that a crash could undo. The server also writes to its log by
    itself: some of the checks may fail for that reason, but not most."""
    world = await World(database).begin()
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    # Only this test waits for the disk.
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


async def test_a_matcher_that_stalls_in_its_turn_is_thrown_out(
    database: Database, database_url: str
) -> None:
    """I72: the stalled matcher holds the lock and sends nothing; the other one goes on all the
    same."""
    world, pods = await one_pod_and_its_job(database)
    other = await Database.connect(database_url)
    try:
        async with other.hold() as stalled:
            await stalled.take(DEMAND, 1, None, world.clock.now(), other.stalled_matcher)
            assert await world.rows(HOLDERS) == [(1,)]
            match = await asyncio.wait_for(world.store.match(pods), 120)
    finally:
        await other.close()

    assert len(match.claims) == 1


async def test_a_match_waits_for_changes_to_what_may_be_claimed(database: Database) -> None:
    """I25: the changes take the lock for a transaction, the match for a session, and it is the same
    lock."""
    world, pods = await one_pod_and_its_job(database)
    async with database.transaction() as connection:
        await connection.execute(MATCHER_LOCK)
        matching = asyncio.create_task(world.store.match(pods))
        async with asyncio.timeout(30):
            while not await connection.fetchval(WAITERS):  # noqa: ASYNC110 -- the server's doing
                await asyncio.sleep(0.01)
        assert not matching.done()
    assert len((await matching).claims) == 1


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("a failure", RuntimeError),
        ("a cancellation", asyncio.CancelledError),
        ("an end of the connection", DatabaseUnavailable),
    ],
)
async def test_a_match_that_does_not_come_to_its_end_lets_the_lock_go(
    database: Database, how: str, error: type[BaseException]
) -> None:
    """The lock is the session's: what is left of it would stop every matcher there is (I72)."""
    world, pods = await one_pod_and_its_job(database)
    broken = BreaksOff(database, clock=world.clock, ids=world.ids, actor="replica-1")
    broken.how, broken.deciding = how, asyncio.Event()

    matching = asyncio.create_task(broken.match(pods))
    if how == "a cancellation":
        await broken.deciding.wait()
        matching.cancel()
    with pytest.raises(error):
        await matching

    match = await asyncio.wait_for(world.store.match(pods), 120)
    assert len(match.claims) == 1
    assert await world.rows(HOLDERS) == [(0,)]


class BreaksOff(PgStore):
    """Breaks off between its two messages, with the lock held."""

    how: str
    deciding: asyncio.Event

    async def _claim(
        self, hold: Hold, chosen: Sequence[Any], now: datetime
    ) -> Collection[RunnerId]:
        self.deciding.set()
        match self.how:
            case "a failure":
                raise RuntimeError(self.how)
            case "a cancellation":
                await asyncio.sleep(60)
            case _:
                await hold.connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return await super()._claim(hold, chosen, now)


class StallsOnce(PgStore):
    """Stalls with the lock held, for longer than the server allows."""

    stalls_before_it_hears = False
    stalls = 0

    async def _take_turn(self, hold: Hold, pods: int) -> str:
        if self.stalls_before_it_hears and not self.stalls:
            self.stalls += 1
            asyncio.get_running_loop().call_soon(time.sleep, 2)  # when the message has been sent
        return await super()._take_turn(hold, pods)

    async def _claim(
        self, hold: Hold, chosen: Sequence[Any], now: datetime
    ) -> Collection[RunnerId]:
        if not self.stalls:
            self.stalls += 1
            time.sleep(2)  # noqa: ASYNC251 - that is what a stall is
        return await super()._claim(hold, chosen, now)


@pytest.mark.parametrize("before_it_hears", [False, True])
async def test_a_match_that_stalled_is_made_again(
    database: Database, before_it_hears: bool
) -> None:
    """The matcher knows that nothing was written, so it matches the Pods again and leaves none for
    later."""
    world, pods = await one_pod_and_its_job(database)
    await world.store.match([])  # its statements are known to the session, and sent as one message
    stalling = StallsOnce(database, clock=world.clock, ids=world.ids, actor="replica-1")
    stalling.stalls_before_it_hears = before_it_hears

    match = await stalling.match(pods)

    assert stalling.stalls == 1
    assert [claim.runner for claim in match.claims] == [pods[0].id]
    assert await world.rows(HOLDERS) == [(0,)]


async def test_a_session_that_has_matched_may_be_silent_again(database: Database) -> None:
    """The time-out of a stalled matcher is for its turn, and not for the session's rest in the pool."""
    world = await World(database).begin()
    account, pool = await world.account(), await world.pool()
    await world.key(account, pool)
    [pod] = await world.idle_pods(pool, 1)

    assert not (await world.store.match([pod])).claims

    async with database.statement() as session:
        assert await session.fetchval("SHOW idle_session_timeout") == "0"


@pytest.mark.parametrize("how", ["retiring", "claimed by another for another account"])
async def test_a_pod_that_is_no_longer_idle_is_left_out_of_its_batch(
    database: Database, how: str
) -> None:
    """Also one whose claim has the very name that this one would have had (I16)."""
    world = await World(database).begin()
    pool = await world.pool()
    first, second = await world.account(), await world.account()
    keys = [await world.key(account, pool) for account in (first, second)]
    pods = await world.idle_pods(pool, 3)
    taken = pods[1]
    if how == "retiring":
        await world.rows(
            "UPDATE runners SET state = 'retiring', version = version + 1, retiring_at = since,"
            " retire_reason = 'scale-down' WHERE id = $1",
            taken.id,
        )
    else:
        await world.queue(first, keys[0], 1)
        assert len((await world.store.match([taken])).claims) == 1
    before = (await world.rows("SELECT count(*) FROM mints"))[0][0]
    await world.queue(second, keys[1], 3)

    match = await world.store.match(pods)

    assert [claim.runner for claim in match.claims] == [pods[0].id, pods[2].id]
    assert await world.rows("SELECT count(*) FROM mints") == [(before + 2,)]
