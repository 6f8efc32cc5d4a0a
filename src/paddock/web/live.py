"""The overview, read once for all viewers.

Ten viewers who ask every second would cost ten reads per second. So one loop per server reads the
overview when something has changed, at most once a second, and only while there are viewers. Pages, the
API and the stream all get this overview.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
import structlog

from paddock.domain.reading.overview import Latency, Overview, Trends
from paddock.domain.reading.rows import ReadModel
from paddock.domain.states import JobState, RunnerState
from paddock.ports import Clock, Topic, Wakeups
from paddock.ports.errors import StoreError
from paddock.ports.reading import Reading
from paddock.web.explanations import Explanations

_log = structlog.get_logger()

#: A person reads no faster than this, and the loop reads no more often.
OVERVIEW_AGE: Final = 1.0
#: Charts of an hour change slowly.
TRENDS_AGE: Final = 10.0
#: Ages grow even if nothing changes, and a proxy closes a connection that is silent for a minute.
QUIET: Final = 10.0
#: Each viewer holds a connection and a task; a wall of screens has a dozen.
MOST_WATCHERS: Final = 100
#: After this the browser connects again and is authorised again: its session may have ended.
LONGEST_WATCH: Final = 600.0


class Pulse(ReadModel, frozen=True, kw_only=True):
    """An event of the stream: the overview in numbers."""

    at: datetime
    last_event: int
    runners: dict[RunnerState, int]
    jobs: dict[JobState, int]
    oldest_at: datetime | None
    to_jit: Latency | None
    pending_deliveries: int
    dead_deliveries: int
    #: The number of viewers. The more there are, the less often each should ask for more than this.
    watchers: int


class TooManyViewers(Exception):
    """The limit of concurrent viewers is reached."""


class Live:
    def __init__(
        self, reading: Reading, explanations: Explanations, wakeups: Wakeups, clock: Clock
    ) -> None:
        self._reading = reading
        self._explanations = explanations
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
                self._overview = self._clock.monotonic(), await self._explanations.overview()
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
            # Read again: an overview from before the wake-up may lack the change.
            self._pulse = self._event(await self.overview(anew=True))
        except StoreError as error:
            _log.warning("stream.publish_failed", error=error.message)
            return
        for watcher in self._watchers:
            watcher.set()

    async def watch(self) -> AsyncIterator[bytes]:
        """Server-sent events: one now, and one after each change, until `close` or `LONGEST_WATCH`. A
        slow viewer skips those in between and gets the last."""
        first = self._event(await self.overview())
        if len(self._watchers) >= MOST_WATCHERS:
            raise TooManyViewers
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
        """Return after the next event, or after a quiet period; false once the stream is closed."""
        if not self._is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(QUIET):
                    await told.wait()
        return not self._is_closed

    async def close(self) -> None:
        """End all streams, so that the server can stop."""
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
