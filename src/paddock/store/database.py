"""Transactions and sessions on PostgreSQL: paddock's own, or yours.

A transaction has one of three outcomes: it took effect, it did not, or the outcome is unknown because
the connection broke during its COMMIT. Callers can tell the three apart, because only a transaction
that did not take effect may be repeated.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import asyncpg

from paddock.ports.errors import Contended, DatabaseUnavailable, OutcomeUnknown
from paddock.store.errors import SessionEnded, check_url
from paddock.store.sessions import (
    BROKEN,
    Connection,
    RawSession,
    SessionPool,
    end,
    has_ended,
    is_lost,
)

__all__ = ["COMMIT_THEN_FLUSH", "UNFLUSHED", "Connection", "Database", "RawSession", "retrying"]

#: Begins a transaction that a server crash may lose without harm: its COMMIT waits for no disk.
UNFLUSHED = "BEGIN; SET LOCAL synchronous_commit = off"

#: Ends a transaction that was begun like that but must not be lost. Its COMMIT releases the locks and
#: shows its writes at once; only then the writer waits for the disk and for synchronous standbys.
COMMIT_THEN_FLUSH = "COMMIT; SELECT await_durability()"

# A rollback takes one round trip. If it takes longer, a cancelled query before it still runs: the
# request to cancel reached the server too early or too late.
ROLLBACK_TIMEOUT = 5.0

#: A server started together with this process listens within tenths of a second.
FIRST_RETRY = 0.1
#: A restarted server is noticed at most this long after it begins to listen.
LONGEST_RETRY = 2.0

#: How often the message that paddock still waits for the server is repeated.
SAY_AGAIN = 5.0

P = ParamSpec("P")
R = TypeVar("R")


def _say_nothing(_: str) -> None: ...


class Database:
    def __init__(self, pool: SessionPool) -> None:
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
        """Connect, and check that the server can be used.

        While the server is away or starting, try again for `wait` seconds. An answer that would stay
        the same (a wrong password, an unknown database) is raised at once.
        """
        check_url(url)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + wait
        say_at = loop.time()
        delay = FIRST_RETRY
        while True:
            try:
                return cls(
                    await SessionPool.open(
                        url, application_name=application_name, max_size=max_size
                    )
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
        """A separate pool at the same server: using up its sessions delays no user of this one."""
        return Database(
            await SessionPool.open(
                self._pool.url, application_name=application_name, max_size=max_size
            )
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

    async def session_apart(self) -> RawSession:
        """A new session outside the pool, for the heartbeat that checks the pool's sessions."""
        return await self._pool.apart()

    async def promptly(self, connection: Connection, answer: Awaitable[R]) -> R:
        """The answer of a session from `acquire`. One that does not come ends the session, and raises
        `DatabaseUnavailable`."""
        return await self._pool.promptly(connection, answer)

    async def end_sessions(self) -> None:
        """End all sessions: they are dead. The calls that use them fail and can be repeated."""
        await self._pool.end_all()

    def connect_anew(self) -> None:
        """Restart every connection attempt that is under way."""
        self._pool.connect_anew()

    def transaction(self, *, begin: str = "BEGIN", commit: str = "COMMIT") -> Transaction:
        """`async with database.transaction() as connection:` committed at the end of the block,
        rolled back by any exception.

        Inside, use SET LOCAL for settings and pg_advisory_xact_lock for locks. The session goes back
        to the pool without a reset, because a reset would cost as much as the COMMIT.
        """
        return Transaction(self._pool, begin, commit)

    def hold(self) -> Hold:
        """`async with database.hold() as hold:` a lock that is held across statements."""
        return Hold(self._pool)

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Connection]:
        """A session for exactly one statement, which is a transaction by itself: one round trip
        instead of three. If the connection breaks, the outcome is unknown, so the statement must be
        safe to repeat."""
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
        """The rows of one read-only query. It is repeated in another session if the first turns out to
        be dead, which is safe for a query that only reads."""
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
    async def acquire(self) -> AsyncIterator[RawSession]:
        """An exclusive session, for LISTEN and for locks and settings that outlast a transaction.
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

    def __init__(self, pool: SessionPool) -> None:
        self._pool = pool
        self._connection: RawSession = None

    async def _begin(self, first: Callable[[RawSession], Awaitable[R]]) -> R:
        """The answer to the first message, which must be one that may be repeated."""
        try:
            return await self._try(first)
        except _Stale:
            # The server was restarted while this session was idle. Nothing was done in it yet, so
            # another session can be used. The pool's other idle sessions are just as dead.
            await self._pool.distrust()
        try:
            return await self._try(first)
        except _Stale as stale:
            raise self._pool.lost() from stale.__cause__

    async def _try(self, first: Callable[[RawSession], Awaitable[R]]) -> R:
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
    """The session had ended before its first message."""


class Transaction(_Session):
    """A class instead of an `asynccontextmanager`: it is entered thousands of times a second."""

    __slots__ = ("_beginning", "_end")

    def __init__(self, pool: SessionPool, begin: str, commit: str) -> None:
        super().__init__(pool)
        self._beginning = begin
        self._end = commit

    async def __aenter__(self) -> Connection:
        await self._begin(lambda connection: connection.execute(self._beginning))
        connection: Connection = self._connection
        return connection

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
            pass  # the cause is raised already
        finally:
            if not is_rolled_back:
                end(self._connection)  # which rolls back as well
        if instead is not None:
            raise instead from error


class Hold(_Session):
    """A lock held between two messages, with no transaction open. The first message takes the lock and
    reads. The last message writes, commits and releases the lock. So the lock is held only while its
    holder computes, plus one round trip.

    The session owns the lock. If the block ends without the last message, the session is ended and its
    lock with it. The server ends a session that is silent for too long (I72).
    """

    __slots__ = ("_is_held",)

    async def __aenter__(self) -> Self:
        self._is_held = False
        return self

    async def take(self, query: str, *arguments: object) -> Any:
        """Take the lock, and return the value that is read under it."""
        value = await self._begin(lambda connection: connection.fetchval(query, *arguments))
        self._is_held = True
        return value

    @property
    def connection(self) -> Connection:
        """To read more, under the lock."""
        connection: Connection = self._connection
        return connection

    async def let_go(self, query: str, *arguments: object) -> Any:
        """Write, commit and release the lock; return the statement's value."""
        # A write sent to a session that has ended would have an unknown outcome.
        if has_ended(self._connection) or self._pool.has_unread_message(self._connection):
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


# A transaction that loses this often points to another fault.
_ATTEMPTS = 5
# Long enough for the winner to take the lock it waited for. A loser that retried at once would take the
# lock first, and the same conflict would repeat.
_PAUSE = 0.01
_LOST_CONFLICT = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    # A migration changed a table that a cached plan reads; asyncpg has dropped the plan.
    asyncpg.InvalidCachedStatementError,
    SessionEnded,
)


def retrying(method: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """For a method that is exactly one transaction: repeat it if PostgreSQL made it the loser of a
    conflict, or ended its session before anything was written. A transaction that may have been
    committed (`OutcomeUnknown`) is never repeated."""

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
