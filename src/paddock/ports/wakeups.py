"""Waking loops that sleep."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


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
