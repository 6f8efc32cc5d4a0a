"""Loops that only one replica needs to run.

The replica that holds a loop's advisory lock is the loop's leader and runs it. It holds the lock in a
session of its own: when the process or its connection dies, PostgreSQL releases the lock and another
replica takes over.

PostgreSQL may not learn of that death: a proxy keeps its half of the connection, or an answer is never
confirmed and TCP repeats it for a quarter of an hour. So the server ends a leader's session that is
silent. After a lost connection two replicas may run a loop for a moment. The loops are safe then; the
lock only avoids duplicate work.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final

import structlog

from paddock.ports import Clock
from paddock.ports.errors import DatabaseUnavailable
from paddock.store.database import Database, RawSession

_log = structlog.get_logger()

#: The first half of the two-part lock numbers of leaders; the second is the loop's.
_LEADERS: Final = 1885430635 + 1
#: How often a follower tries to take the lock, so how soon it notices that the leader is gone.
_LOOK_AGAIN: Final = 2.0
#: A leader learns at once that the server has ended its session, and from the heartbeat that the server
#: is silent. It also sends a query this often, in case it learned neither.
_ALIVE: Final = 15.0
#: How long the server keeps the session of a leader that sends nothing: for three queries.
_SILENT_FOR: Final = timedelta(seconds=3 * _ALIVE)
#: The time-out comes first: the client may be gone before it hears that it has the lock.
_TRY_LOCK: Final = """
SELECT mine FROM set_config('idle_session_timeout', $3, false), pg_try_advisory_lock($1, $2) AS mine
"""


def led(
    name: str, run: Callable[[], Awaitable[None]], *, database: Database, clock: Clock
) -> Callable[[], Awaitable[None]]:
    """`run`, on the replica that leads `name`."""

    async def follow() -> None:
        while True:
            async with leading(name, database) as connection:
                if connection is not None:
                    _log.info("leader.acquired", loop=name)
                    await _while_connected(database, connection, run)
            await clock.sleep(_LOOK_AGAIN)

    return follow


@asynccontextmanager
async def leading(name: str, database: Database) -> AsyncIterator[RawSession | None]:
    """The session that holds the lock of `name` until the end of the block; `None` if another replica
    holds the lock."""
    number = zlib.crc32(name.encode()) - 2**31
    async with database.acquire() as connection:
        silent_for = f"{_SILENT_FOR // timedelta(milliseconds=1)}ms"
        trying = connection.fetchval(_TRY_LOCK, _LEADERS, number, silent_for)
        mine = await database.promptly(connection, trying)
        yield connection if mine else None


async def _while_connected(
    database: Database, connection: RawSession, run: Callable[[], Awaitable[None]]
) -> None:
    ended = asyncio.Event()
    connection.add_termination_listener(lambda _: ended.set())
    task = asyncio.ensure_future(run())
    ending = asyncio.ensure_future(ended.wait())
    try:
        while not task.done():
            await asyncio.wait({task, ending}, timeout=_ALIVE, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await database.promptly(connection, connection.execute("SELECT 1"))
                if ended.is_set():
                    raise DatabaseUnavailable("The session by which this replica leads has ended.")
        await task
    finally:
        ending.cancel()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
