"""Time, randomness, and waking loops that sleep."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
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


class Topic(StrEnum):
    """What a sleeping loop can be woken for. Losing a wake-up costs time, never correctness: every
    loop also looks by itself after a while (I28)."""

    DELIVERIES = "deliveries"  # a webhook was stored
    DEMAND = "demand"  # a job was queued, or capacity came free
    RUNNERS = "runners"  # a runner was planned, heard, claimed or fenced, or is gone
    POOLS = "pools"  # a pool, an account or a limit changed


class Subscription(Protocol):
    async def wait(self, timeout: float) -> frozenset[Topic]:
        """The topics woken since the last call, at the latest after `timeout` seconds (then none).
        Wake-ups that arrive between two calls are kept, and many are one."""
        ...


class Wakeups(Protocol):
    def subscribe(self, *topics: Topic) -> Subscription: ...
