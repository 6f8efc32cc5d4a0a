"""How many requests GitHub allows, as arithmetic.

GitHub bans Apps that go on asking when told to stop, and a mint refused for its rate is a Pod that
waits. So every request is paid for beforehand out of token buckets. A bucket is a value; its keeper (a
process, or a database row) stores what `take` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self

from paddock.domain.github.objects import AppKey, GitHubAppId, GitHubHost, InstallationId, Operation

#: Points of the per-minute limit that a request costs.
READ_POINTS: Final = 1
WRITE_POINTS: Final = 5
#: The share of a minute's points that may be spent at once. What is in the bucket and what flows in
#: during a minute together are what GitHub allows in a minute: 900 points are 60 mints in a burst
#: and 2 a second after it. A full bucket refilled in a minute would allow twice the limit.
POINTS_BURST: Final = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBucket:
    """There were `tokens` at `as_of`; they refill at `refill_per_s` up to `capacity`.

    An `as_of` in the future means that nothing comes back until then.
    """

    capacity: float
    refill_per_s: float
    tokens: float
    as_of: datetime

    def __post_init__(self) -> None:
        if not (self.capacity > 0 and self.refill_per_s > 0):
            raise ValueError("a bucket needs a capacity and a refill above zero")
        if not 0 <= self.tokens <= self.capacity:
            raise ValueError(f"{self.tokens} tokens do not fit a bucket of {self.capacity}")

    @classmethod
    def full(cls, *, capacity: float, per_s: float, now: datetime) -> Self:
        return cls(capacity=capacity, refill_per_s=per_s, tokens=capacity, as_of=now)

    def at(self, now: datetime) -> Self:
        """The bucket as it stands at `now`. A clock that went back gives nothing and takes
        nothing."""
        passed = (now - self.as_of).total_seconds()
        if passed <= 0:
            return self
        tokens = min(self.capacity, self.tokens + passed * self.refill_per_s)
        return replace(self, tokens=tokens, as_of=now)

    def take(self, n: float) -> Self | None:
        """The bucket without `n` tokens, or `None` if it does not hold them."""
        if n < 0:
            raise ValueError("tokens are taken, not given")
        return replace(self, tokens=self.tokens - n) if n <= self.tokens else None

    def wait_s(self, n: float, now: datetime) -> float:
        """Seconds from `now` until `n` tokens can be there."""
        if n > self.capacity:
            raise ValueError(f"a bucket of {self.capacity} never holds {n} tokens")
        bucket = self.at(now)
        missing = n - bucket.tokens
        if missing <= 0:
            return 0.0
        frozen = max((bucket.as_of - now).total_seconds(), 0.0)
        return frozen + missing / self.refill_per_s

    def limit_to(self, remaining: float) -> Self:
        """At most what GitHub says is left: other clients may spend from the same quota. GitHub's
        number never raises the bucket, since answers overtake one another."""
        return replace(self, tokens=min(self.tokens, max(remaining, 0.0)))

    def empty_until(self, then: datetime) -> Self:
        """Nothing, and nothing coming back, until `then`: GitHub said stop."""
        return replace(self, tokens=0.0, as_of=max(self.as_of, then))

    def told(self, remaining: float, resets_in_s: float | None, now: datetime) -> Self:
        """The bucket after an answer of GitHub's: at most `remaining`. With none left and a reset time,
        it stays empty until then. The time counts from `now`: several requests that are refused
        together name the same moment."""
        limited = self.limit_to(remaining)
        if remaining > 0 or resets_in_s is None:
            return limited
        return limited.empty_until(now + timedelta(seconds=resets_in_s))


class Bucket(StrEnum):
    POINTS = "points"  # the secondary limit, per minute and kind of request
    REST = "rest"  # the hourly quota
    MINT = "mint"  # generate-jitconfig's own hourly quota


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetKey:
    """A bucket and its owner: an installation, or the App itself for the requests it makes as an App.
    GitHub counts these apart. An account that has used up its quota, or is told to slow down, must not
    hold up another (I26)."""

    bucket: Bucket
    host: GitHubHost
    app: GitHubAppId
    installation: InstallationId | None = None
    operation: Operation | None = None


def costs(
    operation: Operation, app: AppKey, installation: InstallationId | None
) -> tuple[tuple[BudgetKey, int], ...]:
    """What one request is paid from: the minute's points and an hour's quota."""
    points = BudgetKey(
        bucket=Bucket.POINTS,
        host=app.host,
        app=app.app,
        installation=installation,
        operation=operation,
    )
    hourly = BudgetKey(
        bucket=Bucket.MINT if operation is Operation.MINT else Bucket.REST,
        host=app.host,
        app=app.app,
        installation=installation,
    )
    return (points, WRITE_POINTS if operation.writes else READ_POINTS), (hourly, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """GitHub's documented limits, for each installation. An Enterprise Cloud organisation has 15,000
    requests an hour."""

    points_per_minute: int = 900
    rest_per_hour: int = 5_000
    mints_per_hour: int = 10_000

    def bucket(self, kind: Bucket, now: datetime) -> TokenBucket:
        match kind:
            case Bucket.POINTS:
                burst = max(self.points_per_minute * POINTS_BURST, WRITE_POINTS)
                per_s = self.points_per_minute * (1 - POINTS_BURST) / 60
                return TokenBucket.full(capacity=burst, per_s=per_s, now=now)
            case Bucket.REST:
                return self._hourly(self.rest_per_hour, now)
            case Bucket.MINT:
                return self._hourly(self.mints_per_hour, now)

    def _hourly(self, limit: int, now: datetime) -> TokenBucket:
        return TokenBucket.full(capacity=limit, per_s=limit / 3600, now=now)


class BudgetSpent(Exception):
    """No token is available soon enough; the wait would be `seconds`."""

    def __init__(self, key: BudgetKey, seconds: float) -> None:
        whose = f"installation {key.installation} of App" if key.installation else "App"
        super().__init__(f"the {key.bucket} budget of {whose} {key.app} on {key.host} is spent")
        self.key = key
        self.seconds = seconds
