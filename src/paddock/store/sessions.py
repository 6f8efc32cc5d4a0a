"""A pool of bounded sessions.

Every session has time-outs: if a replica stalls while it holds a lock, the server ends its session
before the sessions that wait for the lock give up (I72). Every connection error of asyncpg is raised
from here as one of `paddock.store.errors`.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Final, Protocol, Self, TypeVar

import asyncpg

from paddock.ports.errors import Contended, DatabaseUnavailable, StoreError
from paddock.store.errors import DatabaseMisconfigured, redacted, sentence_for
from paddock.store.server_checks import check_server

# The matcher holds its lock for milliseconds. A replica that is silent for this long inside a
# transaction has stalled (a paused VM, a dead network), and the server ends its session.
IDLE_IN_TRANSACTION_TIMEOUT = 5
# Longer than that, so that waiting sessions outlive the stalled one and get the lock.
LOCK_TIMEOUT = 10
# No query of paddock takes a second, and retention works in batches. This only keeps a runaway query
# from holding its snapshot for ever.
STATEMENT_TIMEOUT = 60
# A machine that vanishes does not close its connections. Its sessions, and the advisory locks that make
# it leader, end after 10 + 3 × 5 s instead of the kernel's two hours.
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 10, 5, 3
# The same on our side. libpq does it, asyncpg does not: if the network forgets one connection, a query
# in it would wait for its answer for ever. Not every system has every option.
_KEEPALIVE: Final = {
    "TCP_KEEPIDLE": KEEPALIVE_IDLE,
    "TCP_KEEPINTVL": KEEPALIVE_INTERVAL,
    "TCP_KEEPCNT": KEEPALIVE_COUNT,
    "TCP_USER_TIMEOUT": 1000 * (KEEPALIVE_IDLE + KEEPALIVE_INTERVAL * KEEPALIVE_COUNT),
}

CONNECT_TIMEOUT = 10.0  # a TLS handshake over a bad network takes two
# If all connections are busy for this long, they are stuck. The client of the waiting request has given
# up by then.
ACQUIRE_TIMEOUT = 15.0
# A session that is silent for this long is dead, also if the heartbeat's lives: a proxy keeps its half
# of one connection.
ANSWER_TIMEOUT = 10.0
CLOSE_TIMEOUT = 5.0  # how long closing waits for queries that are under way
# As many as a quiet replica uses at once: to match, to mint and to answer pollers.
AT_HAND = 3

# Read committed, even if the database's default is another level: a read after waiting for a lock must
# see what is committed by then (I25).
# A plan lives as long as its session. A plan made when a table was small, or its statistics were old,
# would read all of history for every job. Every statement can be served from indexes, so sequential
# scans are off. A plain index scan also marks the dead entries that it meets, and later scans skip
# them. A bitmap scan meets them again, so bitmap scans are off too. With parallel workers a walk over
# all of history can seem cheaper than a few thousand look-ups in an index.
_SESSION = f"""
SET lock_timeout = '{LOCK_TIMEOUT}s';
SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_TIMEOUT}s';
SET statement_timeout = '{STATEMENT_TIMEOUT}s';
SET tcp_keepalives_idle = {KEEPALIVE_IDLE};
SET tcp_keepalives_interval = {KEEPALIVE_INTERVAL};
SET tcp_keepalives_count = {KEEPALIVE_COUNT};
SET default_transaction_isolation = 'read committed';
SET timezone = 'UTC';
SET jit = off;
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET max_parallel_workers_per_gather = 0;
"""

R = TypeVar("R")

#: A connection of asyncpg, which has no types of its own.
RawSession = Any


class Connection(Protocol):
    """What services get of a session: statements, and nothing that would outlast their transaction."""

    async def execute(self, query: str, *values: object, timeout: float | None = None) -> str:
        """Return the tag, such as `UPDATE 3`."""

    async def fetch(self, query: str, *values: object) -> list[asyncpg.Record]: ...

    async def fetchrow(self, query: str, *values: object) -> Any:
        """The first row; `None` if there is none."""

    async def fetchval(self, query: str, *values: object) -> Any:
        """The first column of the first row; `None` if there is no row."""


# What asyncpg raises for a connection that is broken or in an unexpected protocol state.
BROKEN = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class SessionPool:
    #: A matcher is silent for a few milliseconds between its two messages. A matcher that is silent for
    #: this long has stalled, and the server ends its session: no other matcher waits longer (I72).
    stalled_matcher = "1s"

    def __init__(self, sessions: Any, url: str, *, application_name: str = "paddock") -> None:
        self._sessions = sessions
        self._url = url
        self._server_settings = {"application_name": application_name}
        #: The sessions used last, not yet released to asyncpg: releasing one and acquiring it again
        #: costs more than a short statement. asyncpg keeps the others and closes those idle for long.
        self._at_hand: list[RawSession] = []
        self._in_use: set[RawSession] = set()
        self._waiting = 0
        #: Connection attempts under way. `_connect` repeats those that `connect_anew` gave up.
        self._connecting: set[asyncio.Future[RawSession]] = set()
        self._given_up: set[asyncio.Future[RawSession]] = set()

    @property
    def url(self) -> str:
        """With its password."""
        return self._url

    @property
    def shown(self) -> str:
        """The URL as it may be shown."""
        return redacted(self._url)

    @classmethod
    async def open(cls, url: str, *, application_name: str, max_size: int) -> Self:
        try:
            sessions = asyncpg.create_pool(
                url,
                # Opened as they are needed: to keep a minimum, asyncpg would go on trying in the
                # background while the server is away, and log a traceback each time.
                min_size=0,
                # Two at least: LISTEN beside a transaction, and the checks below.
                max_size=max(max_size, 2),
                timeout=CONNECT_TIMEOUT,
                # Not in the startup packet, where a pooler, even in session mode, refuses them.
                init=_begin_session,
                reset=_leave_as_is,
                server_settings={"application_name": application_name},
            )
            try:
                await sessions
                async with sessions.acquire() as one, sessions.acquire() as other:
                    await check_server(one, other, shown=redacted(url))
            except BaseException:
                sessions.terminate()
                raise
        except Exception as error:
            if (instead := sentence_for(error, url)) is not None:
                raise instead from error
            raise
        return cls(sessions, url, application_name=application_name)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                self._waiting += 1  # from now on no session stays at hand
                await self._put_away()
                await self._sessions.close()
        except TimeoutError:
            self._sessions.terminate()

    async def take(self) -> RawSession:
        connection = await self._take()
        self._in_use.add(connection)
        return connection

    async def _take(self) -> RawSession:
        while self._at_hand:
            connection = self._at_hand.pop()
            if not has_ended(connection):
                return connection
            await self._sessions.release(connection)
        self._waiting += 1
        try:
            if self._sessions.get_idle_size():
                return await self._sessions.acquire(timeout=ACQUIRE_TIMEOUT)
            return await self._connect()
        except TimeoutError as error:
            raise DatabaseUnavailable(
                f"No connection to {self.shown} was to be had within {ACQUIRE_TIMEOUT:g} s "
                f"({self._sessions.get_size()} of {self._sessions.get_max_size()} are open): it is "
                "overloaded, or does not answer."
            ) from error
        except asyncpg.InterfaceError as error:
            raise DatabaseUnavailable(f"The connection to {self.shown} was closed.") from error
        except Exception as error:
            if (instead := sentence_for(error, self._url)) is not None:
                raise instead from error
            raise
        finally:
            self._waiting -= 1

    async def _connect(self) -> RawSession:
        """Acquire a session: a new one, or one that a caller gives back while this waits."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        cancelled = task.cancelling()
        deadline = loop.time() + ACQUIRE_TIMEOUT
        while True:
            left = max(deadline - loop.time(), 0.001)
            connecting = asyncio.ensure_future(self._sessions.acquire(timeout=left))
            self._connecting.add(connecting)
            try:
                return await connecting
            except asyncio.CancelledError:
                if connecting not in self._given_up or task.cancelling() > cancelled:
                    raise
            finally:
                self._connecting.discard(connecting)
                self._given_up.discard(connecting)

    def connect_anew(self) -> None:
        """The database answers again: give up the attempts under way. Attempts begun during the outage
        may not notice for seconds."""
        self._given_up |= self._connecting
        for connecting in self._connecting:
            connecting.cancel()

    async def end_all(self) -> None:
        """End every session, in use or not: all are dead. Calls that use one fail and try again."""
        for connection in list(self._in_use):
            end(connection)
        await self.distrust()

    async def apart(self) -> RawSession:
        """A session outside the pool."""
        connection = await asyncpg.connect(
            self._url, timeout=CONNECT_TIMEOUT, server_settings=self._server_settings
        )
        _keep_alive(connection)
        return connection

    async def give_back(self, connection: RawSession) -> None:
        """Without a reset: for sessions that were used only for transactions."""
        self._in_use.discard(connection)
        if self._waiting or len(self._at_hand) >= AT_HAND or has_ended(connection):
            await self._sessions.release(connection)
        else:
            self._at_hand.append(connection)

    async def give_back_clean(self, connection: RawSession) -> None:
        """After a reset of the session's state: settings, locks, LISTEN."""
        self._in_use.discard(connection)
        is_clean = False
        try:
            if not has_ended(connection):
                await connection.reset(timeout=CLOSE_TIMEOUT)
                await connection.execute(_SESSION, timeout=CLOSE_TIMEOUT)
                is_clean = True
        except BROKEN:
            pass  # an ended session carries nothing
        finally:
            if not is_clean:
                with suppress(asyncpg.InterfaceError):  # the pool has dropped it already
                    end(connection)
            await self._sessions.release(connection)

    def has_unread_message(self, connection: RawSession) -> bool:
        """Whether the server has sent a message that was not read yet. An unrequested message says that
        the server has ended the session. asyncpg reads it on a later turn of the event loop, which may
        be too late."""
        unread = select.poll()
        unread.register(_socket_of(connection).fileno(), select.POLLIN)
        return bool(unread.poll(0))

    async def promptly(self, connection: RawSession, answer: Awaitable[R]) -> R:
        """The answer of a session that nothing else bounds. If it does not come, the session is
        ended."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return await answer
        except TimeoutError:
            end(connection)
            raise self.lost() from None

    async def distrust(self) -> None:
        """Replace every session that is not in use, when a caller next needs it."""
        for connection in self._at_hand:
            end(connection)  # asyncpg would close it gracefully and slowly, and may find it dead
        await self._put_away()
        await self._sessions.expire_connections()

    async def _put_away(self) -> None:
        while self._at_hand:
            await self._sessions.release(self._at_hand.pop())

    def lost(self) -> DatabaseUnavailable:
        return DatabaseUnavailable(
            f"The connection to {self.shown} was lost: check that it runs; paddock connects again by "
            "itself."
        )

    def sentence_for(self, error: BaseException, connection: RawSession) -> StoreError | None:
        """What to raise instead of `error`, which ended a transaction; `None` if the error is not about
        the database's state."""
        match error:
            case asyncpg.LockNotAvailableError():
                return Contended(
                    f"A lock in {self.shown} was not to be had within {LOCK_TIMEOUT} s: another "
                    "session holds it (see pg_stat_activity)."
                )
            case asyncpg.IdleInTransactionSessionTimeoutError():
                return DatabaseUnavailable(
                    "This process stalled inside a transaction for more than "
                    f"{IDLE_IN_TRANSACTION_TIMEOUT} s, and {self.shown} ended it: nothing of it "
                    "was written."
                )
            case asyncpg.QueryCanceledError():
                return DatabaseUnavailable(
                    f"A query took {self.shown} longer than {STATEMENT_TIMEOUT} s and was cancelled: "
                    "it is overloaded, or an operator cancelled it."
                )
            case asyncpg.InsufficientPrivilegeError() | asyncpg.InvalidSchemaNameError():
                return DatabaseMisconfigured(
                    f"The role that paddock uses at {self.shown} may not do what it must "
                    f"({error.args[0]}): make it the owner of the database."
                )
            case asyncpg.DiskFullError():
                return DatabaseUnavailable(
                    f"The disk of the database at {self.shown} is full: free some space there "
                    "(what was committed is safe)."
                )
            case asyncpg.ReadOnlySQLTransactionError():
                # After a failover the old primary may still answer; a new connection finds the new one.
                end(connection)
                return DatabaseUnavailable(
                    f"The database at {self.shown} is read-only: it is a standby, or was demoted."
                )
            case _ if is_lost(error, connection):
                end(connection)
                return self.lost()
            case _:
                return None


def is_lost(error: BaseException, connection: RawSession) -> bool:
    """Whether `error` means the end of the session."""
    match error:
        case (
            asyncpg.PostgresConnectionError()
            | asyncpg.AdminShutdownError()
            | asyncpg.CrashShutdownError()
            | asyncpg.CannotConnectNowError()
            | asyncpg.IdleSessionTimeoutError()
            # The server's closing message was read, the end of the stream not yet.
            | asyncpg.InternalClientError()
        ):
            return True
        case asyncpg.InterfaceError() | OSError():
            return has_ended(connection)
        case _:
            return False


def has_ended(connection: RawSession) -> bool:
    """Also true if the server ended the session: asyncpg then detaches the holder's connection, and
    any access to it raises."""
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True


def end(connection: RawSession) -> None:
    if not has_ended(connection):
        connection.terminate()


async def _begin_session(connection: RawSession) -> None:
    _keep_alive(connection)
    await connection.execute(_SESSION)


def _keep_alive(connection: RawSession) -> None:
    its = _socket_of(connection)
    if its.family != socket.AF_UNIX:
        its.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            if hasattr(socket, option):
                its.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _socket_of(connection: RawSession) -> Any:
    return connection._transport.get_extra_info("socket")  # noqa: SLF001 - no public access


async def _leave_as_is(connection: RawSession) -> None:
    """Replaces asyncpg's own reset, which would cost every transaction one more round trip. asyncpg
    rolls back an open transaction before it calls this."""
