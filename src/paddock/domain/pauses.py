"""A pause: an operator's order that nothing is claimed for an account, from a pool, or at all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    at: datetime
    by: str
    why: str | None

    def __str__(self) -> str:
        return describe_pause(self.at, self.by, self.why)


def describe_pause(at: datetime, by: str, why: str | None) -> str:
    """Who paused it, when and why: what follows "paused"."""
    reason = f": {why.strip().rstrip('.')}" if why else ""
    return f"by {by.removeprefix('operator:')} since {at:%Y-%m-%d %H:%M} UTC{reason}"
