"""Each GitHub host's own time, read from its answers.

GitHub judges a JWT by its own clock, and dates the ends of tokens and quotas by it. If our clock is
ahead, GitHub refuses our JWTs and so all mints. So paddock dates what GitHub judges by GitHub's clock.
Every answer contains the time, even a refusal, so a wrong clock costs one request.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from prometheus_client import Gauge

from paddock.domain.github.objects import GitHubHost
from paddock.ports import Clock

#: A `Date` is exact to the second, and in a slow answer it is old. A smaller difference is ignored: a
#: JWT is dated back by a minute.
_NOT_EXACT: Final = timedelta(seconds=5)

SKEW = Gauge(
    "paddock_github_clock_skew_seconds",
    "By how much the database's clock is ahead of a GitHub host's, as its last answer told.",
    ["host"],
)


class HostClock:
    def __init__(self, host: GitHubHost, clock: Clock) -> None:
        self._clock = clock
        self._gauge = SKEW.labels(host)
        self._ahead = timedelta()

    def now(self) -> datetime:
        return self._clock.now() - self._ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def note(self, headers: Mapping[str, str]) -> None:
        """Read the time from an answer's headers."""
        if (date := headers.get("date")) is None:
            return
        try:
            ahead = self._clock.now() - parsedate_to_datetime(date)
        except (ValueError, TypeError):  # no date, or one without a time zone
            return
        self._gauge.set(ahead.total_seconds())
        self._ahead = ahead if abs(ahead) > _NOT_EXACT else timedelta()
