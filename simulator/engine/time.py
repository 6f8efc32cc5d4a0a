"""Time and ids of a simulated world."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

from simulator.engine.loop import VirtualLoop

#: A Monday morning, the same in every run.
BEGINNING = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class VirtualClock:
    """The world's clock, which is also GitHub's, the nodes' and the database's; or a replica's, which
    is ahead of it."""

    def __init__(self, loop: VirtualLoop, *, ahead: float = 0.0) -> None:
        self._loop = loop
        self.ahead = ahead

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self._loop.time() + self.ahead)

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SeededIds:
    def __init__(self, rng: random.Random, clock: VirtualClock) -> None:
        self._rng = rng
        self._clock = clock

    def uuid(self) -> UUID:
        """As `SystemIds` makes them: later ones sort after earlier ones."""
        value = int(self._clock.now().timestamp() * 1000) << 80 | self._rng.getrandbits(80)
        value = value & ~(0xF << 76) | 0x7 << 76
        value = value & ~(0x3 << 62) | 0x2 << 62
        return UUID(int=value)

    def suffix(self, length: int) -> str:
        return "".join(self._rng.choices(_SUFFIX_ALPHABET, k=length))

    def secret(self) -> str:
        return self._rng.randbytes(32).hex()
