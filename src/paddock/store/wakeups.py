"""Wake-ups through PostgreSQL's NOTIFY.

Triggers on the tables send them (see `migrations`), so a change and its wake-up commit together. One
session listens for the whole process. While it is lost, wake-ups are missed, so all loops are woken
when it is back. Every loop also runs on a timer of its own (I28).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from paddock.ports import Clock, Topic
from paddock.ports.errors import StoreError
from paddock.store.database import Database, RawSession

_log = structlog.get_logger()

CHANNEL: Final = "paddock"

#: How soon a lost listening session is opened again. Meanwhile the loops run on their own timers.
_RECONNECT: Final = 0.5

#: How often a query checks the listening session, to notice a connection that died silently.
_ALIVE: Final = 15.0


class PgSubscription:
    def __init__(self, topics: frozenset[Topic]) -> None:
        self._topics = topics
        self._woken: set[Topic] = set()
        self._event = asyncio.Event()

    async def wait(self, timeout: float) -> frozenset[Topic]:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        woken = frozenset(self._woken)
        self._woken.clear()
        self._event.clear()
        return woken

    def wake(self, *topics: Topic) -> None:
        if mine := self._topics.intersection(topics):
            self._woken |= mine
            self._event.set()


class PgWakeups:
    """`async with PgWakeups.listening(database, clock) as wakeups:`"""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._subscriptions: list[PgSubscription] = []

    @classmethod
    @asynccontextmanager
    async def listening(cls, database: Database, clock: Clock) -> AsyncIterator[PgWakeups]:
        wakeups = cls(database, clock)
        ready = asyncio.Event()
        task = asyncio.create_task(wakeups._listen(ready), name="wakeups")
        try:
            await ready.wait()
            yield wakeups
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def subscribe(self, *topics: Topic) -> PgSubscription:
        subscription = PgSubscription(frozenset(topics))
        self._subscriptions.append(subscription)
        return subscription

    async def _listen(self, ready: asyncio.Event) -> None:
        while True:
            try:
                async with self._database.acquire() as connection:
                    listening = connection.add_listener(CHANNEL, self._heard)
                    await self._database.promptly(connection, listening)
                    ready.set()
                    self._wake(*Topic)
                    await self._until_lost(connection)
            except StoreError as error:
                _log.warning("wakeups.lost", error=error.message)
            ready.set()
            await self._clock.sleep(_RECONNECT)

    async def _until_lost(self, connection: RawSession) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        while not lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_ALIVE):
                    await lost.wait()
                    return
            await self._database.promptly(connection, connection.execute("SELECT 1"))

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        # A replica one version ahead may name topics this one does not know.
        with suppress(ValueError):
            self._wake(Topic(payload))

    def _wake(self, *topics: Topic) -> None:
        for subscription in self._subscriptions:
            subscription.wake(*topics)
