"""Transactions and sessions on PostgreSQL: paddock's own, or yours.

A transaction either took effect, or did not, or nobody knows because the connection broke during its
COMMIT. The three leave here as three different things, since only the second may be repeated.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import asyncpg

from paddock.store.connect_errors import check_url
from paddock.store.errors import Contended, DatabaseUnavailable, OutcomeUnknown, SessionEnded
from paddock.store.pool import BROKEN, Connection, Pool, end, has_ended, is_lost

__all__ = ["COMMIT_THEN_FLUSH", "UNFLUSHED", "Connection", "Database", "retrying"]

#: Begins a transaction whose loss in a crash of the server does no harm: its COMMIT waits for no disk.
UNFLUSHED = "BEGIN; SET LOCAL synchronous_commit = off"

#: Ends a transaction that was begun so and may not be lost after all: its locks are free, and what it
#: wrote is seen, while its writer waits here for the disk and for synchronous standbys.
COMMIT_THEN_FLUSH = "COMMIT; SELECT await_durability()"

# It takes a round trip. Longer, and a query before it that was to be cancelled still runs: the
# request to cancel came too early for the server, or too late.
ROLLBACK_TIMEOUT = 5.0

#: A server that is started beside this process listens within tenths of a second.
FIRST_RETRY = 0.1
#: A restarted server is used at most this long after it listens.
LONGEST_RETRY = 2.0

#: How often it is said that a server is still waited for.
SAY_AGAIN = 5.0

P = ParamSpec("P")
R = TypeVar("R")


def _say_nothing(_: str) -> None: ...


class Database:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        application_name: str = "paddock",
        max_size: int = 10,
        wait: float = 0.0,
        say: Callable[[str], None] = _say_nothing,
    ) -> Self:
        """Connect, and be sure that the server can be used.

        For `wait` seconds a server that is away or starting is tried again. An answer that would
        stay the same (a wrong password, an unknown database) ends it at once.
        """
        check_url(url)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + wait
        say_at = loop.time()
        delay = FIRST_RETRY
        while True:
            try:
                return cls(
                    await Pool.open(url, application_name=application_name, max_size=max_size)
                )
            except DatabaseUnavailable as error:
                left = give_up_at - loop.time()
                if left <= 0:
                    raise
                if loop.time() >= say_at:
                    say(f"waiting up to {left:.0f} s: {error.message}")
                    say_at = loop.time() + SAY_AGAIN
            await asyncio.sleep(min(delay, left))
            delay = min(2 * delay, LONGEST_RETRY)

    async def beside(self, *, application_name: str, max_size: int) -> Database:
        """Sessions of one's own at the same server: whoever uses all of them waits alone."""
        return Database(
            await Pool.open(self._pool.url, application_name=application_name, max_size=max_size)
        )

    async def close(self) -> None:
        await self._pool.close()

    @property
    def shown(self) -> str:
        """The URL as it may be shown: without its password."""
        return self._pool.shown

    @property
    def stalled_matcher(self) -> str:
        return self._pool.stalled_matcher

    async def session_apart(self) -> Connection:
        """A session of no pool, just made: for whoever watches over the others."""
        return await self._pool.apart()

    async def end_sessions(self) -> None:
        """All of them are dead. What they were used for fails, and can be begun again."""
        await self._pool.end_all()

    def connect_anew(self) -> None:
        """What waits for a connection to be made begins again."""
        self._pool.connect_anew()

    def transaction(self, *, begin: str = "BEGIN", commit: str = "COMMIT") -> Transaction:
        """`async with database.transaction() as connection:` committed at the end of the block,
        rolled back by any exception.

        Settings in it are made with SET LOCAL, locks with pg_advisory_xact_lock: the session goes
        back to the pool as it is, for a reset would cost as much as the COMMIT.
        """
        return Transaction(self._pool, begin, commit)

    def hold(self) -> Hold:
        """`async with database.hold() as hold:` a lock that outlives the statement that takes it."""
        return Hold(self._pool)

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Connection]:
        """A session for exactly one statement, which is a transaction by itself: one round trip
        instead of three. Whether it took effect is not known if the connection breaks, so it must be
        one that may be repeated."""
        connection = await self._pool.take()
        try:
            yield connection
        except BaseException as error:
            if is_lost(error, connection):
                await self._pool.distrust()
                raise OutcomeUnknown(
                    f"The connection to {self._pool.shown} was lost during a statement: whether it "
                    "took effect is not known."
                ) from error
            if (instead := self._pool.sentence_for(error, connection)) is not None:
                raise instead from error
            raise
        finally:
            await self._pool.give_back(connection)

    async def rows(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        """What one query reads. Asked again of another session if the first turned out to be dead:
        whoever only reads loses nothing by it."""
        try:
            return await self._rows(query, *arguments)
        except OutcomeUnknown:
            return await self._rows(query, *arguments)

    async def _rows(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        async with self.statement() as connection:
            found: list[asyncpg.Record] = await connection.fetch(query, *arguments)
        return found

    async def row(self, query: str, *arguments: object) -> asyncpg.Record | None:
        found = await self.rows(query, *arguments)
        return found[0] if found else None

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """A session of one's own, for LISTEN and for locks and settings that outlast a transaction.
        All of them are undone at the end."""
        connection = await self._pool.take()
        try:
            yield connection
        except BaseException as error:
            if (instead := self._pool.sentence_for(error, connection)) is not None:
                raise instead from error
            raise
        finally:
            await self._pool.give_back_clean(connection)


class _Session:
    """A session taken from the pool for more than one message."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connection: Connection = None

    async def _begin(self, first: Callable[[Connection], Awaitable[R]]) -> R:
        """The answer to the first message, which must be one that may be repeated."""
        try:
            return await self._try(first)
        except _Stale:
            # The server was restarted while this session lay idle. Nothing was done in it yet, so
            # another will do; those beside it in the pool are no better.
            await self._pool.distrust()
        try:
            return await self._try(first)
        except _Stale as stale:
            raise self._pool.lost() from stale.__cause__

    async def _try(self, first: Callable[[Connection], Awaitable[R]]) -> R:
        connection = await self._pool.take()
        try:
            answer = await first(connection)
        except BaseException as error:
            lost = is_lost(error, connection)
            instead = self._pool.sentence_for(error, connection)
            end(connection)
            await self._pool.give_back(connection)
            if lost:
                raise _Stale from error
            if instead is not None:
                raise instead from error
            raise
        self._connection = connection
        return answer

    async def _finish(self, last: Awaitable[R]) -> R:
        """The answer to the message that commits."""
        try:
            return await last
        except asyncio.CancelledError:
            end(self._connection)
            raise
        except Exception as error:
            if is_lost(error, self._connection):
                end(self._connection)
                raise OutcomeUnknown(
                    f"The connection to {self._pool.shown} was lost during COMMIT: whether the "
                    "transaction took effect is not known, so it was not repeated."
                ) from error
            if (instead := self._pool.sentence_for(error, self._connection)) is not None:
                raise instead from error
            raise


class _Stale(Exception):
    """The session had ended before anything was asked of it."""


class Transaction(_Session):
    """Written out instead of `asynccontextmanager`: this is entered thousands of times a second."""

    __slots__ = ("_beginning", "_end")

    def __init__(self, pool: Pool, begin: str, commit: str) -> None:
        super().__init__(pool)
        self._beginning = begin
        self._end = commit

    async def __aenter__(self) -> Connection:
        await self._begin(lambda connection: connection.execute(self._beginning))
        return self._connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self._finish(self._connection.execute(self._end))
            else:
                await self._roll_back(error)
        finally:
            await self._pool.give_back(self._connection)

    async def _roll_back(self, error: BaseException) -> None:
        instead = self._pool.sentence_for(error, self._connection)
        is_rolled_back = False
        try:
            if not has_ended(self._connection):
                async with asyncio.timeout(ROLLBACK_TIMEOUT):
                    await self._connection.execute("ROLLBACK")
                is_rolled_back = True
        except BROKEN:
            pass  # what caused it is told already
        finally:
            if not is_rolled_back:
                end(self._connection)  # which rolls back as well
        if instead is not None:
            raise instead from error


class Hold(_Session):
    """A lock held between two messages, with no transaction open: the first takes it and reads, the
    last writes, commits and lets it go. So it is never held for longer than its holder thinks, and one
    round trip.

    The lock is the session's. A session that does not come to its end here is ended, lock included.
    One that is silent for long is ended by the server (I72).
    """

    __slots__ = ("_is_held",)

    async def __aenter__(self) -> Self:
        self._is_held = False
        return self

    async def take(self, query: str, *arguments: object) -> Any:
        """Take the lock, and the value that is read under it."""
        value = await self._begin(lambda connection: connection.fetchval(query, *arguments))
        self._is_held = True
        return value

    @property
    def connection(self) -> Connection:
        """To read more, under the lock."""
        return self._connection

    async def let_go(self, query: str, *arguments: object) -> Any:
        """Write, commit and let go; the value that is answered."""
        # Of what is sent to a session that has ended nobody could tell whether it took effect.
        if has_ended(self._connection) or self._pool.has_word(self._connection):
            raise self._ended()
        value = await self._finish(self._connection.fetchval(query, *arguments))
        self._is_held = False
        return value

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._connection is None:
            return
        try:
            if error is not None:
                if self._is_held and is_lost(error, self._connection):
                    raise self._ended() from error
                if (instead := self._pool.sentence_for(error, self._connection)) is not None:
                    raise instead from error
        finally:
            if self._is_held:
                end(self._connection)
            await self._pool.give_back(self._connection)

    def _ended(self) -> SessionEnded:
        return SessionEnded(
            f"{self._pool.shown} ended the session that held the matcher's lock before anything was "
            "written: this process was silent for too long (give it more CPU), or the database was "
            "restarted."
        )


# Nobody loses this often without something being wrong.
_ATTEMPTS = 5
# Long enough for the winner to take the lock it waited for. A loser that comes back at once takes it
# first, and both are where they were.
_PAUSE = 0.01
_LOST_CONFLICT = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    # A migration changed a table that a cached plan reads; asyncpg has dropped the plan.
    asyncpg.InvalidCachedStatementError,
    SessionEnded,
)


def retrying(method: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """For a method that is exactly one transaction: again, if PostgreSQL chose it as the loser of a
    conflict, or ended its session in time. What may have been committed (`OutcomeUnknown`) is never
    repeated."""

    @functools.wraps(method)
    async def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await method(*args, **kwargs)
            except _LOST_CONFLICT as error:
                if attempt == _ATTEMPTS:
                    if isinstance(error, SessionEnded):
                        raise
                    raise Contended(
                        f"The database made this transaction the loser of a conflict {attempt} "
                        f"times in a row ({error.args[0]}): nothing of it was written."
                    ) from error
                await asyncio.sleep(_PAUSE * attempt)
        raise AssertionError("the last attempt returns or raises")

    return repeated
