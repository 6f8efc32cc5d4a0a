"""The real PostgreSQL; virtual time stands still during each statement.

One session serves all replicas of a run. Each statement is sent and answered before anything else
happens. So a store method, which is one transaction, is one step: it takes no time, and no other task
runs in between. Notifications arrive with the commit that caused them, in its order.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Coroutine
from typing import Any, TypeVar

import asyncpg

from paddock.ports.errors import DatabaseUnavailable, StoreError
from paddock.store.database import COMMIT_THEN_FLUSH, Database
from paddock.store.sessions import _SESSION, SessionPool
from paddock.store.wakeups import CHANNEL

R = TypeVar("R")

#: Far more than the number of the product's statements.
_STATEMENTS = 2000
_CHUNK = 1 << 18
#: Time-outs for replicas that stall in a transaction are in real time. On a busy machine they would
#: hit this process. So statements are sent without them.
_IDLE_TIMEOUT = re.compile(r"SET (LOCAL )?idle_in_transaction_session_timeout = '[^']*';")

#: A statement without any of these words writes, locks and notifies nothing. Too many do no harm.
_COMMENT = re.compile(r"--[^\n]*")
_WRITES = re.compile(
    r"\b(insert|update|delete|truncate|lock|share|listen|nextval|set|create|drop)\b|pg_notify|advisory",
    re.IGNORECASE,
)


class _Connection(asyncpg.Connection):  # type: ignore[misc]
    """Keeps notifications until they are fetched, instead of passing them to a loop that does not
    run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heard: list[str] = []

    def _process_notification(self, _pid: int, _channel: str, payload: str) -> None:
        self.heard.append(payload)


class Session:
    """A connection whose statements end before they return."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        transport = connection._transport  # noqa: SLF001 - asyncpg has no blocking mode
        transport.pause_reading()
        self._socket = transport._sock  # noqa: SLF001
        self._socket.setblocking(True)
        self._received = connection._protocol.data_received  # noqa: SLF001
        self._ready = connection._loop._ready  # noqa: SLF001
        #: The BEGIN of a transaction that has only read so far; it has not been sent yet.
        self._begin: str | None = None
        #: What has arrived of the answer to a BEGIN that was sent; `None` if no answer is due.
        self._begun: bytearray | None = None
        self._reads: dict[str, bool] = {}

    @classmethod
    def open(cls, url: str) -> Session:
        """Outside of any loop."""
        loop = asyncio.SelectorEventLoop()
        connection = loop.run_until_complete(
            asyncpg.connect(
                url,
                connection_class=_Connection,
                statement_cache_size=_STATEMENTS,
                max_cached_statement_lifetime=0,
            )
        )
        loop.run_until_complete(connection.execute(_IDLE_TIMEOUT.sub("", _SESSION)))
        loop.run_until_complete(connection.execute(f"LISTEN {CHANNEL}"))
        return cls(connection)

    def close(self) -> None:
        self._connection.terminate()
        self._socket.close()
        loop = self._connection._loop  # noqa: SLF001 - it was made for this connection
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    def run(self, statement: Coroutine[Any, Any, R]) -> R:
        """Runs it to its end, and no other task meanwhile."""
        try:
            while True:
                awaited = statement.send(None)
                while not awaited.done():
                    data = self._socket.recv(_CHUNK)
                    if not data:
                        raise DatabaseUnavailable("The simulator's PostgreSQL has gone away.")
                    if self._begun is not None:
                        data = self._after_begin(self._begun, data)
                    self._received(data)
        except StopIteration as end:
            value: R = end.value
            return value
        finally:
            # Callbacks of futures, for a loop that never runs again: each would keep its statement's
            # rows, and through them the world, in memory.
            self._ready.clear()

    def _after_begin(self, answer: bytearray, data: bytes) -> bytes:
        """The bytes after the answer to a BEGIN, which asyncpg does not know was sent."""
        answer += data
        at = 0
        while len(answer) >= at + 5:
            kind, size = answer[at : at + 1], struct.unpack_from("!i", answer, at + 1)[0]
            if kind == b"E":
                raise DatabaseUnavailable(f"The simulator could not begin: {bytes(answer)!r}")
            if len(answer) < at + 1 + size:
                break
            at += 1 + size
            if kind == b"Z":  # ready for the next statement
                self._begun = None
                return bytes(answer[at:])
        return b""

    def take_heard(self) -> list[str]:
        """Topics notified since the last call, each once, in order."""
        heard, self._connection.heard = self._connection.heard, []
        return list(dict.fromkeys(heard))

    # The methods that the store calls on a connection.

    async def execute(self, query: str, *args: object) -> str:
        query = _IDLE_TIMEOUT.sub("", query)
        if query.startswith("BEGIN"):
            self._begin = query
            return "BEGIN"
        if query == COMMIT_THEN_FLUSH:
            query = "COMMIT"  # here no commit waits for a disk
        if self._begin is not None and query in ("COMMIT", "ROLLBACK"):
            self._begin = None
            return query
        self._before(query)
        tag: str = self.run(self._connection.execute(query, *args))
        return tag

    async def fetch(self, query: str, *args: object) -> list[asyncpg.Record]:
        self._before(query)
        rows: list[asyncpg.Record] = self.run(self._connection.fetch(query, *args))
        return rows

    async def fetchrow(self, query: str, *args: object) -> asyncpg.Record | None:
        self._before(query)
        return self.run(self._connection.fetchrow(query, *args))

    async def fetchval(self, query: str, *args: object) -> Any:
        self._before(query)
        return self.run(self._connection.fetchval(query, *args))

    async def executemany(self, query: str, args: object) -> None:
        self._before(query)
        self.run(self._connection.executemany(query, args))

    def _before(self, query: str) -> None:
        """Sends BEGIN with the first write. No other session exists, so what is read before that is
        the same within the transaction. Most transactions only read, and save two of three round
        trips."""
        if self._begin is None:
            return
        reads = self._reads.get(query)
        if reads is None:
            reads = self._reads[query] = not _WRITES.search(_COMMENT.sub("", query))
        if not reads:
            # Sent together with the next statement: on a busy machine a round trip waits for two time
            # slices.
            begin, self._begin = self._begin.encode() + b"\0", None
            self._socket.sendall(b"Q" + struct.pack("!i", 4 + len(begin)) + begin)
            self._begun = bytearray()

    def is_closed(self) -> bool:
        return False

    def terminate(self) -> None:
        raise AssertionError("all replicas share the simulator's session: none may end it")


class _OneSession(SessionPool):
    """The pool of a replica: the one session there is."""

    #: Never: on a busy machine it would hit this process.
    stalled_matcher = "0"

    def __init__(self, session: Session) -> None:
        super().__init__(None, "postgresql://simulated")
        self._session = session

    async def take(self) -> Session:
        return self._session

    async def give_back(self, connection: Session) -> None: ...

    async def give_back_clean(self, connection: Session) -> None: ...

    def has_unread_message(self, connection: Session) -> bool:
        return False

    async def distrust(self) -> None: ...

    def sentence_for(self, error: BaseException, connection: Session) -> StoreError | None:
        return None


def database_over(session: Session) -> Database:
    return Database(_OneSession(session))
