"""A limit for events that strangers cause: hundreds of requests a second must not fill a disk."""

from __future__ import annotations

from typing import Final

from paddock.ports import Clock

_EVERY: Final = 1.0


class LogLimit:
    """At most one line a second, which stands for all events since the line before it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._logged_at = float("-inf")

    def count(self) -> int:
        """Count an event. Returns the number of events to log now; 0 if no line is due."""
        self._count += 1
        now = self._clock.monotonic()
        if now - self._logged_at < _EVERY:
            return 0
        events, self._count, self._logged_at = self._count, 0, now
        return events
