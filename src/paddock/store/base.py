"""What the parts of the store share: database, clock, ids, the actor's name, the matcher's lock."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self

from paddock.domain.ids import AppId
from paddock.ports import Clock, Ids
from paddock.store.database import COMMIT_THEN_FLUSH, UNFLUSHED, Connection, Database
from paddock.store.live_runners import LiveRunners
from paddock.store.sessions import SessionPool

#: Sent with BEGIN, before the first read. A single statement that waits for the lock and also reads
#: would see the database as it was before the wait, and two matchers could fill the same place (I25).
MATCHER_LOCK = f"""
SET LOCAL idle_in_transaction_session_timeout = '{SessionPool.stalled_matcher}';
SELECT pg_advisory_xact_lock(1885430635, 1)
"""


class StorePart:
    """Time and ids come from the ports, never from SQL: a simulated run repeats to the last row."""

    def __init__(self, database: Database, *, clock: Clock, ids: Ids, actor: str) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self.actor = actor
        self._living = LiveRunners()
        #: The Apps whose keys this process has, shared by all `acting_as` copies. Empty: not limited.
        self._apps: list[AppId] = []

    def acting_as(self, actor: str) -> Self:
        """The same store, with another actor named in its events."""
        other = copy.copy(self)
        other.actor = actor
        return other

    async def serve_through(self, apps: Sequence[AppId]) -> None:
        """From now on serve accounts through their installations of these Apps alone. An App that is no
        longer configured may still be installed."""
        self._apps[:] = apps

    @asynccontextmanager
    async def _matching(self) -> AsyncIterator[Connection]:
        """A transaction under the matcher's lock, for each change to what may be claimed.

        The lock is released before the transaction is flushed to disk, because the flush may take
        longer than all the rest. Other sessions see the changes before the flush. Nothing they write
        can outlive a lost transaction, because PostgreSQL flushes its log in order.
        """
        async with self._database.transaction(
            begin=f"{UNFLUSHED};{MATCHER_LOCK}", commit=COMMIT_THEN_FLUSH
        ) as connection:
            yield connection
