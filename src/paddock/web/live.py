"""What everybody sees at once, read once.

Whoever watches would ask every second, and ten who watch would ask ten times. So one loop per server
reads the overview when something moved, at most once a second and only while somebody watches; pages,
the API and the stream are given the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
import structlog

from paddock.domain.overview import Latency, Overview, Trends
from paddock.domain.reading import Line
from paddock.domain.states import JobState, RunnerState
from paddock.ports import Clock, Topic, Wakeups
from paddock.ports.reading import Reading
from paddock.store.errors import StoreError
from paddock.web.telling import Teller

_log = structlog.get_logger()

#: Nobody reads faster than this, and the loop never asks more often.
OVERVIEW_AGE: Final = 1.0
#: An hour's charts move slowly.
TRENDS_AGE: Final = 10.0
#: If nothing moves, ages still grow; and a proxy closes what is silent for a minute.
QUIET: Final = 10.0
#: Each holds a connection and a task; a wall of screens has a dozen.
MOST_WATCHERS: Final = 100
#: Then a browser asks again, and is let in again or not: its session may have ended meanwhile.
LONGEST_WATCH: Final = 600.0


class Pulse(Line, frozen=True, kw_only=True):
    """What the stream tells: the overview in numbers."""

    at: datetime
    last_event: int
    runners: dict[RunnerState, int]
    jobs: dict[JobState, int]
    oldest_at: datetime | None
    to_jit: Latency | None
    pending_deliveries: int
    dead_deliveries: int
    #: How many watch. The more they are, the less often each should ask for more than this.
    watchers: int


class Crowded(Exception):
    """As many watch as can be served."""


class Live:
    def __init__(self, reading: Reading, teller: Teller, wakeups: Wakeups, clock: Clock) -> None:
        self._reading = reading
        self._teller = teller
        self._clock = clock
        self._moved = wakeups.subscribe(*Topic)
        self._lock = asyncio.Lock()
        self._overview: tuple[float, Overview] | None = None
        self._trends: tuple[float, Trends] | None = None
        self._watchers: set[asyncio.Event] = set()
        self._pulse = b""
        self._is_closed = False

    async def overview(self, *, anew: bool = False) -> Overview:
        async with self._lock:
            if anew or self._overview is None or self._is_old(self._overview[0], OVERVIEW_AGE):
                self._overview = self._clock.monotonic(), await self._teller.overview(self._reading)
            return self._overview[1]

    async def trends(self) -> Trends:
        async with self._lock:
            if self._trends is None or self._is_old(self._trends[0], TRENDS_AGE):
                self._trends = self._clock.monotonic(), await self._reading.trends()
            return self._trends[1]

    def _is_old(self, at: float, age: float) -> bool:
        return self._clock.monotonic() - at >= age

    async def run(self) -> None:
        while True:
            await self._moved.wait(QUIET)
            if self._watchers:
                await self._tell()
            await self._clock.sleep(OVERVIEW_AGE)

    async def _tell(self) -> None:
        try:
            # What was read before the wake-up may not know what it was for.
            self._pulse = self._event(await self.overview(anew=True))
        except StoreError as error:
            _log.warning("stream.publish_failed", error=error.message)
            return
        for watcher in self._watchers:
            watcher.set()

    async def watch(self) -> AsyncIterator[bytes]:
        """Server-sent events: one now, and one whenever something moved, until `close` or
        `LONGEST_WATCH`. A watcher who is slow misses those in between and gets the last."""
        first = self._event(await self.overview())
        if len(self._watchers) >= MOST_WATCHERS:
            raise Crowded
        return self._watched(first)

    async def _watched(self, first: bytes) -> AsyncIterator[bytes]:
        told = asyncio.Event()
        began = self._clock.monotonic()
        self._watchers.add(told)
        try:
            yield first
            while await self._goes_on(told) and not self._is_old(began, LONGEST_WATCH):
                yield self._pulse if told.is_set() else b": nothing moved\n\n"
                told.clear()
        finally:
            self._watchers.discard(told)

    def _event(self, overview: Overview) -> bytes:
        pulse = pulse_of(overview, watchers=max(1, len(self._watchers)))
        return b"retry: 2000\nevent: pulse\ndata: " + msgspec.json.encode(pulse) + b"\n\n"

    async def _goes_on(self, told: asyncio.Event) -> bool:
        """When there is something to tell, or it has been quiet for long; false at the end."""
        if not self._is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(QUIET):
                    await told.wait()
        return not self._is_closed

    async def close(self) -> None:
        """Everybody is sent home, so that the server can stop."""
        self._is_closed = True
        for watcher in self._watchers:
            watcher.set()


def pulse_of(overview: Overview, *, watchers: int) -> Pulse:
    return Pulse(
        at=overview.at,
        last_event=overview.last_event,
        runners=overview.runners,
        jobs=overview.jobs,
        oldest_at=overview.oldest_at,
        to_jit=overview.to_jit,
        pending_deliveries=overview.pending_deliveries,
        dead_deliveries=overview.dead_deliveries,
        watchers=watchers,
    )
