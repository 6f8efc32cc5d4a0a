"""Events and their times. The model plays them only when a call tells it to `advance`.

Ties are broken by the order of scheduling, so a run is the same every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import datetime


class Schedule:
    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, Callable[[], None]]] = []
        self._sequence = 0
        #: Called when an event is due before all others: the server then sleeps shorter.
        self.on_sooner: Callable[[], None] = lambda: None

    def at(self, due: datetime, action: Callable[[], None]) -> None:
        self._sequence += 1
        sooner = not self._heap or due < self._heap[0][0]
        heapq.heappush(self._heap, (due, self._sequence, action))
        if sooner:
            self.on_sooner()

    @property
    def next_due(self) -> datetime | None:
        return self._heap[0][0] if self._heap else None

    def pop(self, now: datetime) -> tuple[datetime, Callable[[], None]] | None:
        if not self._heap or self._heap[0][0] > now:
            return None
        due, _, action = heapq.heappop(self._heap)
        return due, action
