"""Who gets the next warm Pod: a fair, work-conserving allocation within every limit.

Runners are fungible within a pool and jobs are not bound to them, so the unit of allocation is a
*demand key* (account, registration scope, runner group, pool) with so many unserved jobs.
`allocate` is a pure function of what the matcher read under its lock; the matcher writes what it
returns and nothing else.

Fairness is weighted max-min by Pods in use: the next Pod goes to the account that would hold the
least per unit of weight after receiving it, `(used + 1) / weight`. With saturated demand no account
ends more than one Pod above another of equal weight. Between equals, and within an account, the
oldest job goes first. An account that is at a limit, paused or backing off is passed over at no
cost to the others (I26).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from paddock.domain.ids import AccountId, AppId, JobId, KeyId, PoolId, RepositoryId, RunnerId
from paddock.domain.limits import NOTHING, UNLIMITED, Limits, Resources


class Withheld(StrEnum):
    """Why a key with unserved jobs got nothing."""

    PAUSED = "paused"
    INSTALLATION = "installation"
    BACK_OFF = "back-off"
    ACCOUNT_LIMIT = "account limit"
    REPOSITORY_LIMIT = "repository limit"
    POOL_MAXIMUM = "pool maximum"
    MINT_BUDGET = "mint budget"
    NO_POD = "no Pod"


class QueuedJob(msgspec.Struct, frozen=True, gc=False):
    queued_at: datetime
    id: JobId


class KeyDemand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The jobs of one key that no supply is on its way to, oldest first.

    `truncated` says that there are more than were read. `blocked` is a reason found before any
    counting: a pause, a back-off, an installation that cannot be used.
    """

    key: KeyId
    account: AccountId
    pool: PoolId
    repository: RepositoryId | None = None
    unserved: Sequence[QueuedJob]
    truncated: bool = False
    blocked: Withheld | None = None


class AccountTerms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    app: AppId
    weight: int = 1
    limits: Limits = UNLIMITED
    used: Resources = NOTHING


class RepositoryTerms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A repository with limits of its own. Its jobs register at its own scope, so that no other
    repository's job can land on a runner counted here."""

    limits: Limits
    used: Resources = NOTHING


class PoolTerms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`places` is how many more runners of the pool may be occupied; `None` is no maximum."""

    cost: Resources
    places: int | None = None


class Supplies(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to give: Pods that ask for work, by pool, and mints each App may still make
    (`None`: as many as it likes)."""

    pods: Mapping[PoolId, Sequence[RunnerId]]
    mints: Mapping[AppId, int | None]


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """A Pod for a key. The job is a hint for people: GitHub decides which one it runs (I23)."""

    runner: RunnerId
    key: KeyId
    hint: JobId


class Allocation(msgspec.Struct, frozen=True):
    assignments: tuple[Assignment, ...]
    withheld: Mapping[KeyId, Withheld]
    #: Pods are left over while a key has jobs that were not read: read deeper and allocate again.
    read_deeper: bool


def allocate(
    *,
    demand: Sequence[KeyDemand],
    supplies: Supplies,
    accounts: Mapping[AccountId, AccountTerms],
    repositories: Mapping[RepositoryId, RepositoryTerms],
    pools: Mapping[PoolId, PoolTerms],
) -> Allocation:
    ledger = _Ledger(supplies, accounts, repositories, pools)
    queues = _queues_by_account(demand)
    withheld: dict[KeyId, Withheld] = {}
    assignments: list[Assignment] = []
    unread: set[PoolId] = set()

    def turn(account: AccountId) -> tuple[float, datetime, AccountId]:
        used = ledger.accounts[account].runners + 1
        return used / accounts[account].weight, queues[account][0].oldest, account

    turns = [turn(account) for account in queues]
    heapq.heapify(turns)
    while turns:
        account = turns[0][2]
        queue = queues[account]
        head = queue[0]
        refusal = head.demand.blocked or ledger.refusal(head.demand)
        if refusal is None:
            assignments.append(ledger.assign(head))
            if head.exhausted:
                heapq.heappop(queue)
                if head.demand.truncated:
                    unread.add(head.demand.pool)
            else:
                heapq.heapreplace(queue, head)
        else:
            # Limits, tokens and Pods only shrink during an allocation: refused once is refused.
            heapq.heappop(queue)
            if head.taken == 0:
                withheld[head.demand.key] = refusal
        if queue:
            heapq.heapreplace(turns, turn(account))
        else:
            heapq.heappop(turns)
    read_deeper = any(ledger.pods_left(pool) for pool in unread)
    return Allocation(tuple(assignments), withheld, read_deeper)


@dataclass(slots=True)
class _Queue:
    """One key's unserved jobs, consumed from the oldest."""

    demand: KeyDemand
    taken: int = 0

    @property
    def oldest(self) -> datetime:
        return self.demand.unserved[self.taken].queued_at

    @property
    def exhausted(self) -> bool:
        return self.taken == len(self.demand.unserved)

    def __lt__(self, other: _Queue) -> bool:
        mine, theirs = self.demand.unserved[self.taken], other.demand.unserved[other.taken]
        return (mine.queued_at, mine.id, self.demand.key) < (
            theirs.queued_at,
            theirs.id,
            other.demand.key,
        )


def _queues_by_account(demand: Sequence[KeyDemand]) -> dict[AccountId, list[_Queue]]:
    queues: dict[AccountId, list[_Queue]] = {}
    for key in demand:
        if key.unserved:
            queues.setdefault(key.account, []).append(_Queue(key))
    for queue in queues.values():
        heapq.heapify(queue)
    return queues


@dataclass(slots=True)
class _Ledger:
    """What is left to give, kept while it is given out."""

    supplies: Supplies
    account_terms: Mapping[AccountId, AccountTerms]
    repository_terms: Mapping[RepositoryId, RepositoryTerms]
    pool_terms: Mapping[PoolId, PoolTerms]
    accounts: dict[AccountId, Resources] = field(init=False)
    repositories: dict[RepositoryId, Resources] = field(init=False)
    places: dict[PoolId, int | None] = field(init=False)
    mints: dict[AppId, int | None] = field(init=False)
    given: dict[PoolId, int] = field(init=False)

    def __post_init__(self) -> None:
        self.accounts = {key: terms.used for key, terms in self.account_terms.items()}
        self.repositories = {key: terms.used for key, terms in self.repository_terms.items()}
        self.places = {key: terms.places for key, terms in self.pool_terms.items()}
        self.mints = dict(self.supplies.mints)
        self.given = dict.fromkeys(self.supplies.pods, 0)

    def pods_left(self, pool: PoolId) -> bool:
        return self.given.get(pool, 0) < len(self.supplies.pods.get(pool, ()))

    def refusal(self, demand: KeyDemand) -> Withheld | None:
        """The first thing that stands in the way, the one its owner can least change first."""
        terms = self.account_terms[demand.account]
        cost = self.pool_terms[demand.pool].cost
        places = self.places[demand.pool]
        if not terms.limits.admit(self.accounts[demand.account], cost):
            return Withheld.ACCOUNT_LIMIT
        if demand.repository is not None and not self.repository_terms[
            demand.repository
        ].limits.admit(self.repositories[demand.repository], cost):
            return Withheld.REPOSITORY_LIMIT
        if places is not None and places <= 0:
            return Withheld.POOL_MAXIMUM
        if not self.pods_left(demand.pool):
            return Withheld.NO_POD
        mints = self.mints.get(terms.app, 0)
        if mints is not None and mints <= 0:
            return Withheld.MINT_BUDGET
        return None

    def assign(self, queue: _Queue) -> Assignment:
        demand = queue.demand
        cost = self.pool_terms[demand.pool].cost
        self.accounts[demand.account] += cost
        if demand.repository is not None:
            self.repositories[demand.repository] += cost
        places = self.places[demand.pool]
        if places is not None:
            self.places[demand.pool] = places - 1
        app = self.account_terms[demand.account].app
        mints = self.mints[app]
        if mints is not None:
            self.mints[app] = mints - 1
        runner = self.supplies.pods[demand.pool][self.given[demand.pool]]
        self.given[demand.pool] += 1
        hint = demand.unserved[queue.taken].id
        queue.taken += 1
        return Assignment(runner, demand.key, hint)
