"""The input for the sizes of pools, read at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from paddock.domain.allocation import Withheld
from paddock.domain.ids import AccountId, PoolId, RepositoryId
from paddock.domain.limits import Resources
from paddock.domain.pauses import Pause
from paddock.domain.pools.scaling import Allowance, KeyLoad
from paddock.domain.pools.sizing import Decision
from paddock.domain.reading.overview import UnfitHost
from paddock.domain.runners.runner import Runner

PoolState = Literal["active", "draining", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedPool:
    """Runners are counted by their rows; those whose Pods have ended hold no place (I40)."""

    id: PoolId
    name: str
    state: PoolState
    paused: bool
    #: The whole of its description, JSON.
    spec: str
    spec_hash: str
    cost: Resources
    #: All that are not gone, also those whose Pods have ended.
    live: int
    #: Of these, those whose Pods have not ended.
    present: int
    #: Those that hold a place of an account.
    occupied: int
    #: The runner version of its newest Pods; `None`: not known.
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandedKey:
    """A key with queued jobs. `blocked`: dispatch would not serve it now; no Pods are made for it."""

    pool: PoolId
    load: KeyLoad
    login: str
    #: The repository its runners register at; `None` is the organisation.
    repository: str | None
    blocked: Withheld | None
    #: Until when, and what for, if it is a back-off.
    blocked_until: datetime | None = None
    blocked_because: str | None = None


@dataclass(frozen=True, slots=True)
class PastDecision:
    number: int
    at: datetime
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    pools: tuple[SurveyedPool, ...]
    #: Booting or idle, oldest first.
    waiting: tuple[Runner, ...]
    #: Runners that are being given their JITs.
    handovers: int
    keys: tuple[DemandedKey, ...]
    #: Only accounts and repositories that have limits.
    accounts: Mapping[AccountId, Allowance]
    repositories: Mapping[RepositoryId, Allowance]
    #: Those that were asked for, oldest first.
    decisions: tuple[PastDecision, ...]
    #: Runner versions that GitHub refuses to each account, as far as any is refused.
    refused: Mapping[AccountId, frozenset[str]] = field(default_factory=dict)

    def refused_in(self, pool: PoolId) -> frozenset[str]:
        """Versions that are refused to all accounts with queued jobs of the pool."""
        wanting = {key.load.account for key in self.keys if key.pool == pool}
        none: frozenset[str] = frozenset()
        each = [self.refused.get(account, none) for account in wanting]
        return frozenset.intersection(*each) if each else none


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolExplanation:
    """What `paddock pools explain` shows."""

    pool: SurveyedPool
    pause: Pause | None
    #: The decision in force, if there was ever one.
    decision: PastDecision | None
    #: Live, oldest first.
    runners: tuple[Runner, ...]
    keys: tuple[DemandedKey, ...]
    #: Hosts that no pool counts as room now, this pool's hosts among them or not.
    unfit: tuple[UnfitHost, ...] = ()
