"""Rate limits: hourly buckets, and points per minute and endpoint.

All are counted per installation, and for the App itself where it calls with its own key.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from paddock.fakes.github import answers
from paddock.fakes.github.records import App, Installation
from paddock.fakes.github.world import World

CORE = "core"
MINT = "actions_runner_registration"

_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_POINTS_GET, _POINTS_WRITE = 1, 5


@dataclass(slots=True)
class Bucket:
    resource: str
    limit: int
    reset_at: datetime
    used: int = 0

    def headers(self) -> dict[str, str]:
        return {
            "x-ratelimit-limit": str(self.limit),
            "x-ratelimit-remaining": str(max(0, self.limit - self.used)),
            "x-ratelimit-reset": str(int(self.reset_at.timestamp())),
            "x-ratelimit-used": str(self.used),
            "x-ratelimit-resource": self.resource,
        }

    def report(self) -> dict[str, int]:
        return {
            "limit": self.limit,
            "used": self.used,
            "remaining": max(0, self.limit - self.used),
            "reset": int(self.reset_at.timestamp()),
        }


@dataclass(slots=True)
class _Window:
    spent: deque[tuple[datetime, int]] = field(default_factory=deque)
    total: int = 0

    def forget(self, before: datetime) -> None:
        while self.spent and self.spent[0][0] <= before:
            self.total -= self.spent.popleft()[1]

    def add(self, at: datetime, points: int) -> None:
        self.spent.append((at, points))
        self.total += points


@dataclass(slots=True)
class Limits:
    world: World
    _buckets: dict[tuple[str, int], Bucket] = field(default_factory=dict)
    _points: dict[tuple[str, int, str], _Window] = field(default_factory=dict)

    def bucket(self, resource: str, owner: App | Installation) -> Bucket:
        """The current hour's bucket. `owner`: the App for its own calls."""
        limit = self.world.quotas.mint if resource == MINT else self.world.quotas.core
        key = (f"{resource}/{type(owner).__name__}", owner.id)
        bucket = self._buckets.get(key)
        if bucket is None or self.world.time >= bucket.reset_at:
            bucket = Bucket(resource, limit, self.world.time + _HOUR)
            self._buckets[key] = bucket
        bucket.limit = limit
        return bucket

    def spend(
        self, bucket: Bucket, *, who: str, owner: App | Installation, endpoint: str, method: str
    ) -> None:
        if bucket.used >= bucket.limit:
            raise answers.rate_limited(who, bucket.headers())
        bucket.used += 1
        self._spend_points(owner, endpoint, _POINTS_GET if method == "GET" else _POINTS_WRITE)

    def _spend_points(self, owner: App | Installation, endpoint: str, points: int) -> None:
        window = self._points.setdefault((type(owner).__name__, owner.id, endpoint), _Window())
        window.forget(self.world.time - _MINUTE)
        if window.total + points > self.world.quotas.points_per_minute:
            raise answers.secondary_limited(60)
        window.add(self.world.time, points)
