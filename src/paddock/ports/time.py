"""Time and randomness."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID


class Clock(Protocol):
    """Time. Nothing else in paddock may ask the system, or the database, what time it is."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC: what is stored and shown."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: what durations and deadlines within a process are made of."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """Randomness. Seeded in the simulator, the operating system's in production."""

    def uuid(self) -> UUID:
        """A fresh id; later ids sort after earlier ones, so that indexes grow at one end."""
        ...

    def suffix(self, length: int) -> str:
        """Lower-case letters and digits that may end a Pod's name."""
        ...

    def secret(self) -> str:
        """Unguessable, at least 256 bits, printable."""
        ...
