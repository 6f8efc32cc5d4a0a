"""Time and ids that a test controls."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID


class ManualClock:
    """Stands still until the test advances it."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._now.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class SeededIds:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def suffix(self, length: int) -> str:
        return "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=length))

    def secret(self) -> str:
        return self._random.randbytes(32).hex()
