"""Counts for metrics and progress, and what is forgotten in time."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from paddock.domain.levels import Levels, Steps
from paddock.domain.retention import History
from paddock.domain.summary import Summary


class LevelStore(Protocol):
    """For metrics and the screen of `paddock up`."""

    async def levels(self) -> Levels: ...

    async def steps(self, *, after: datetime, until: datetime) -> list[Steps]:
        """Of the runners that got their job in that time."""
        ...

    async def summary(self, *, since: datetime) -> Summary: ...


class HistoryStore(Protocol):
    """For the service that deletes old rows."""

    async def forget(self, history: History, *, before: datetime) -> int:
        """Delete at most `BATCH` of the oldest rows that are over; returns how many. If it is `BATCH`,
        there are more. Live rows are never deleted."""
        ...
