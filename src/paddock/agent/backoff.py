"""Pauses that grow with each failure, up to a bound, with jitter: Pods must not retry all at once."""

from __future__ import annotations

import os
from typing import Final

#: A restarting server is back within seconds; its Pods should ask again soon.
FIRST: Final = 0.5
#: In an outage each Pod sends one request per this time, and notices the end within it.
MOST: Final = 15.0
#: A longer `Retry-After` is cut to this: the server may have meant milliseconds.
MOST_ASKED_FOR: Final = 60.0


def jitter() -> float:
    """A number between 0.5 and 1. `random` would cost every idle Pod half a megabyte."""
    return 0.5 + int.from_bytes(os.urandom(4), "big") / 2**33


class Backoff:
    def __init__(self, *, speedup: float = 1.0) -> None:
        self._speedup = speedup
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def next(self, asked_for: float | None = None) -> float:
        """Seconds to wait after this failure; at least what the server asked for, cut as above."""
        delay: float = min(MOST, FIRST * 2.0 ** min(self.failures, 16)) * jitter()
        self.failures += 1
        if asked_for is not None:
            delay = max(delay, min(asked_for, MOST_ASKED_FOR) * (0.5 + jitter()))
        return delay / self._speedup

    @property
    def notable(self) -> bool:
        """Whether this failure is logged: the 1st, 2nd, 4th, 8th, …"""
        return self.failures & (self.failures - 1) == 0
