"""Loops that only one replica needs to run.

The replica that holds a loop's advisory lock is the loop's leader and runs it. It holds the lock in a
session of its own: when the process or its connection dies, PostgreSQL releases the lock and another
replica takes over. After a lost connection two replicas may run a loop for a moment. The loops are safe
then; the lock only avoids duplicate work.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from paddock.ports import Clock
from paddock.ports.errors import DatabaseUnavailable
from paddock.store.database import Connection, Database

_log = structlog.get_logger()

#: The first half of the two-part lock numbers of leaders; the second is the loop's.
_LEADERS: Final = 1885430635 + 1
#: How often a follower tries to take the lock, so how soon it notices that the leader is gone.
_LOOK_AGAIN: Final = 2.0
#: A leader learns at once that the server has ended its session, and from the heartbeat that the server
#: is silent. It also sends a query this often, in case it learned neither.
_ALIVE: Final = 15.0


def led(
    name: str, run: Callable[[], Awaitable[None]], *, database: Database, clock: Clock
) -> Callable[[], Awaitable[None]]:
    """`run`, on the replica that leads `name`."""

    async def follow() -> None:
        while True:
            async with leading(name, database) as connection:
                if connection is not None:
                    _log.info("leader.acquired", loop=name)
                    await _while_connected(connection, run)
            await clock.sleep(_LOOK_AGAIN)

    return follow


@asynccontextmanager
async def leading(name: str, database: Database) -> AsyncIterator[Connection | None]:
    """The session that holds the lock of `name` until the end of the block; `None` if another replica
    holds the lock."""
    number = zlib.crc32(name.encode()) - 2**31
    async with database.acquire() as connection:
        mine = await connection.fetchval("SELECT pg_try_advisory_lock($1, $2)", _LEADERS, number)
        yield connection if mine else None


async def _while_connected(connection: Connection, run: Callable[[], Awaitable[None]]) -> None:
    ended = asyncio.Event()
    connection.add_termination_listener(lambda _: ended.set())
    task = asyncio.ensure_future(run())
    ending = asyncio.ensure_future(ended.wait())
    try:
        while not task.done():
            await asyncio.wait({task, ending}, timeout=_ALIVE, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await connection.execute("SELECT 1")
                if ended.is_set():
                    raise DatabaseUnavailable("The session by which this replica leads has ended.")
        await task
    finally:
        ending.cancel()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
