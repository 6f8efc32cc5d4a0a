"""One clock for all replicas: the database's (I82).

One replica writes times that another replica judges: when a Pod was last heard, when a mint is
overdue, until when a key backs off. When each replica used its own clock and one clock was 100 s
behind, the leader judged every Pod of that replica silent and retired it.

So every replica uses the database's time. A replica asks for it every few seconds. Between two
answers it counts with its own monotonic clock, which no NTP step moves. An answer is the time at some
moment between question and answer, so it is exact to the round trip: a slow answer does not change
what a quick one has settled. While the database does not answer, the replica keeps counting: a
machine's oscillator is off by a second in three hours at worst.

The database's own time can jump: after a failover to a server with another clock, or an NTP step there.
All replicas follow it within `EVERY`. Recovery, which judges silence, notices the jump and starts to
count again (`paddock.recovery.gather`). Other thresholds are reached early or late by the jump, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Final, Self

import structlog
from prometheus_client import Gauge

from paddock.ports import Clock
from paddock.ports.errors import StoreError
from paddock.store.database import Database

_log = structlog.get_logger()

#: A Pod asks again within one minute and counts as silent after two. All replicas follow a jump within
#: this time, so they agree on the time long before a Pod is judged by it.
EVERY: Final = 5.0
#: A larger correction than a bad network explains.
_JUMP: Final = timedelta(seconds=1)

SKEW = Gauge(
    "paddock_clock_skew_seconds",
    "By how much this replica's own clock is ahead of the database's, which is the one that counts.",
)

AskDatabase = Callable[[], Awaitable[datetime]]


def asking(database: Database) -> AskDatabase:
    """The only place where the database is asked for the time."""

    async def ask() -> datetime:
        row = await database.row("SELECT clock_timestamp() AS now")
        assert row is not None
        now: datetime = row["now"]
        return now

    return ask


class DatabaseClock:
    """The database's time. `own` is the clock of this machine."""

    def __init__(self, ask: AskDatabase, own: Clock, *, now: datetime, at: float) -> None:
        self._ask = ask
        self._own = own
        #: The database's time, when the monotonic clock showed `_at`.
        self._now = now
        self._at = at

    @classmethod
    async def measured(cls, ask: AskDatabase, own: Clock) -> Self:
        """Measured once: for a command, which ends within seconds."""
        asked = own.monotonic()
        told = await ask()
        at = own.monotonic()
        return cls(ask, own, now=told + timedelta(seconds=(at - asked) / 2), at=at)

    @classmethod
    @asynccontextmanager
    async def running(cls, ask: AskDatabase, own: Clock) -> AsyncIterator[Self]:
        """Measured again every few seconds, until the end of the block."""
        clock = await cls.measured(ask, own)
        task = asyncio.create_task(clock._run(), name="database clock")  # noqa: SLF001 - its own
        try:
            yield clock
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def now(self) -> datetime:
        return self._now + timedelta(seconds=self._own.monotonic() - self._at)

    def monotonic(self) -> float:
        return self._own.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._own.sleep(seconds)

    @property
    def skew(self) -> timedelta:
        """By how much the machine's own clock is ahead."""
        return self._own.now() - self.now()

    async def measure(self) -> None:
        """Move to the nearest time that the answer allows."""
        asked = self._own.monotonic()
        earliest = await self._ask()
        at = self._own.monotonic()
        latest = earliest + timedelta(seconds=at - asked)
        counted = self._now + timedelta(seconds=at - self._at)
        self._now, self._at = min(max(counted, earliest), latest), at
        if abs(jump := self._now - counted) > _JUMP:
            _log.warning("clock.database_jumped", seconds=round(jump.total_seconds(), 3))
        SKEW.set(self.skew.total_seconds())

    async def _run(self) -> None:
        while True:
            # Without an answer the clock keeps counting. Other loops report that the database is away.
            with suppress(StoreError):
                await self.measure()
            await self._own.sleep(EVERY)
