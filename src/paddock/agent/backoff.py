"""Waiting longer after each failure, up to a bound, and never in step with a thousand others."""

from __future__ import annotations

import os
from typing import Final

#: A restarting server is back within seconds; it should not find its Pods asleep.
FIRST: Final = 0.5
#: An outage costs the server a request per Pod and this long, and its end is noticed as soon.
MOST: Final = 15.0
#: A server that asks for more patience than this is not believed: it may have meant milliseconds.
MOST_ASKED_FOR: Final = 60.0


def jitter() -> float:
    """Between a half and one. `random` would cost every idle Pod half a megabyte."""
    return 0.5 + int.from_bytes(os.urandom(4), "big") / 2**33


class Backoff:
    def __init__(self, *, hurry: float = 1.0) -> None:
        self._hurry = hurry
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def next(self, asked_for: float | None = None) -> float:
        """How long to wait after this failure. What the server asked for is never undercut."""
        delay: float = min(MOST, FIRST * 2.0 ** min(self.failures, 16)) * jitter()
        self.failures += 1
        if asked_for is not None:
            delay = max(delay, min(asked_for, MOST_ASKED_FOR) * (0.5 + jitter()))
        return delay / self._hurry

    @property
    def notable(self) -> bool:
        """Whether this failure deserves a line: the 1st, 2nd, 4th, 8th, …"""
        return self.failures & (self.failures - 1) == 0
