"""Tenants as GitHub describes them, and what an App may ask of GitHub in their name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from paddock.domain.github.budgets import TokenBucket
from paddock.domain.ids import AccountId, AppId, HostId
from paddock.domain.limits import Limits, Resources

#: Two confirmations of a removal are at least this far apart: an outage of GitHub is rarely longer.
CONFIRMED_APART: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationFacts:
    """An installation as GitHub describes it now."""

    host: HostId
    app: AppId
    id: int
    account_id: int
    login: str
    kind: Literal["organization", "user"]
    state: Literal["active", "suspended", "removed"]
    all_repositories: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MintBudget:
    """How many JITs each installation of an App may mint: GitHub's secondary limit (900 points a
    minute, 5 a write) and the hourly quota `generate-jitconfig` has for itself. `None` is no limit:
    Enterprise hosts have none unless their administrator sets one.

    The last minute is counted exactly, so that a burst may use all of it. The hour is a bucket of one
    burst that refills so slowly that burst and refill together stay within any hour's quota: about 163
    mints a minute, sustained.
    """

    per_minute: int | None = 180
    per_hour: int | None = 10_000

    def hourly(self, now: datetime) -> TokenBucket | None:
        if self.per_hour is None:
            return None
        burst = min(200, max(1, self.per_hour // 10))
        return TokenBucket.full(capacity=burst, per_s=(self.per_hour - burst) / 3600, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAccount:
    """An account and the installation through which it is served now."""

    id: AccountId
    login: str
    kind: Literal["organization", "user"]
    installation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSummary:
    """An account as it is listed for people. `installation` is its state at GitHub."""

    id: AccountId
    host: str
    login: str
    kind: Literal["organization", "user"]
    installation: Literal["active", "suspended", "removed"]
    weight: int
    limits: Limits
    used: Resources
    queued: int
    paused_at: datetime | None
    paused_by: str | None
    paused_why: str | None
