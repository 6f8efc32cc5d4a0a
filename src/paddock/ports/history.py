"""What is measured of finished steps, and what is forgotten in time."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from paddock.domain.retention import History
from paddock.domain.runners.handover import StepDurations


class StepStore(Protocol):
    """For the metrics of how long each step of dispatch took."""

    async def steps(self, *, after: datetime, until: datetime) -> list[StepDurations]:
        """Of the runners that got their job in that time."""
        ...


class HistoryStore(Protocol):
    """For the service that deletes old rows."""

    async def forget(self, history: History, *, before: datetime) -> int:
        """Delete at most `BATCH` of the oldest rows that are over; returns how many. If it is `BATCH`,
        there are more. Live rows are never deleted."""
        ...
