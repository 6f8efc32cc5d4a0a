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
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from math import inf

import msgspec

from paddock.domain.ids import AccountId, JobId, KeyId, PoolId, RepositoryId, RunnerId
from paddock.domain.limits import NOTHING, UNLIMITED, Limits, Resources


class Withheld(StrEnum):
    """Why a key with unserved jobs got nothing."""

    PAUSED = "paused"
    INSTALLATION = "installation"
    REGISTRATION = "registration"
    BACK_OFF = "back-off"
    ACCOUNT_LIMIT = "account limit"
    REPOSITORY_LIMIT = "repository limit"
    POOL_MAXIMUM = "pool maximum"
    MINT_BUDGET = "mint budget"
    NO_POD = "no Pod"
    RUNNER_VERSION = "runner version"


class QueuedJob(msgspec.Struct, frozen=True, order=True, gc=False):
    """The older is the smaller. `queued_at` is in seconds: it is only compared."""

    queued_at: float
    id: JobId


class KeyDemand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The jobs of one key that no runner is on its way to, oldest first.

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
    """`mints` is how many JITs its installation may still mint; `None` is no limit."""

    mints: int | None = None
    weight: int = 1
    limits: Limits = UNLIMITED
    used: Resources = NOTHING


class RepositoryTerms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A repository at which runners register. `used` includes runners of its organisation that execute
    its jobs, or could (I78)."""

    limits: Limits
    used: Resources = NOTHING


class PoolTerms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`places` is how many more runners of the pool may be occupied; `None` is no maximum."""

    cost: Resources
    places: int | None = None


class Supplies(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that ask for work, by pool, of which at most `batch` are given out. `refused`: per account,
    the Pods whose runner version GitHub refuses there."""

    pods: Mapping[PoolId, Sequence[RunnerId]]
    batch: float = inf
    refused: Mapping[AccountId, Collection[RunnerId]] = {}


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
    #: The batch is full, and another one can give out more at once.
    more: bool
    #: A key could use another Pod, and none of its pool is left.
    short_of_pods: bool


def allocate(
    *,
    demand: Sequence[KeyDemand],
    supplies: Supplies,
    accounts: Mapping[AccountId, AccountTerms],
    repositories: Mapping[RepositoryId, RepositoryTerms],
    pools: Mapping[PoolId, PoolTerms],
) -> Allocation:
    competitors = _competitors(demand, supplies, accounts, repositories, pools)
    withheld: dict[KeyId, Withheld] = {}
    assignments: list[Assignment] = []
    unread: set[_Pool] = set()
    more = short_of_pods = False

    turns = [account.turn() for account in competitors]
    heapq.heapify(turns)
    pods_left = min(supplies.batch, sum(map(len, supplies.pods.values())))
    while turns and pods_left:
        account = turns[0][3]
        queue = account.queues[0]
        refusal = account.refusal(queue)
        if refusal is None:
            assignments.append(account.assign(queue))
            pods_left -= 1
            if queue.exhausted:
                heapq.heappop(account.queues)
                if queue.demand.truncated:
                    unread.add(queue.pool)
            else:
                heapq.heapreplace(account.queues, queue)
        else:
            # Limits, tokens and Pods only shrink during an allocation: a queue refused once stays
            # refused.
            heapq.heappop(account.queues)
            short_of_pods |= refusal is Withheld.NO_POD
            if queue.taken == 0:
                withheld[queue.demand.key] = refusal
        if account.queues:
            heapq.heapreplace(turns, account.turn())
        else:
            heapq.heappop(turns)
    # Nothing is left to give, so the order of turns no longer matters. Each remaining key gets its
    # reason. A key without a reason is served by the next batch.
    for *_, account in turns:
        for queue in account.queues:
            refusal = account.refusal(queue)
            more |= refusal is None
            short_of_pods |= refusal is Withheld.NO_POD
            if queue.taken == 0 and refusal is not None:
                withheld[queue.demand.key] = refusal
    left_over = any(pool.has_pods for pool in unread)
    return Allocation(
        tuple(assignments),
        withheld,
        read_deeper=left_over and pods_left > 0,
        more=more or (left_over and pods_left == 0),
        short_of_pods=short_of_pods,
    )


# What is left to give, updated during the allocation. Every match runs this under the matcher's lock,
# so each object holds references to all it needs and looks nothing up.


class _Room(msgspec.Struct, gc=False):
    """What the limits still admit: infinite where there is no limit."""

    runners: float
    vcpu_milli: float
    memory_mib: float

    @classmethod
    def within(cls, limits: Limits, used: Resources) -> _Room | None:
        """`None`: there is no limit."""
        if limits == UNLIMITED:
            return None
        return cls(
            inf if limits.runners is None else limits.runners - used.runners,
            inf if limits.vcpu_milli is None else limits.vcpu_milli - used.vcpu_milli,
            inf if limits.memory_mib is None else limits.memory_mib - used.memory_mib,
        )

    def admits(self, cost: Resources) -> bool:
        return (
            cost.runners <= self.runners
            and cost.vcpu_milli <= self.vcpu_milli
            and cost.memory_mib <= self.memory_mib
        )

    def take(self, cost: Resources) -> None:
        self.runners -= cost.runners
        self.vcpu_milli -= cost.vcpu_milli
        self.memory_mib -= cost.memory_mib


class _Pool(msgspec.Struct, eq=False, gc=False):
    cost: Resources
    places: float
    pods: list[RunnerId]
    given: int = 0

    @property
    def has_pods(self) -> bool:
        return self.given < len(self.pods)

    def offers(self, refused: Collection[RunnerId]) -> bool:
        """Whether a Pod is left that is not refused. That Pod becomes the next one."""
        for at in range(self.given, len(self.pods)):
            if self.pods[at] not in refused:
                self.pods[self.given], self.pods[at] = self.pods[at], self.pods[self.given]
                return True
        return False


class _Queue(msgspec.Struct, eq=False, gc=False):
    """One key's unserved jobs, consumed from the oldest."""

    demand: KeyDemand
    jobs: Sequence[QueuedJob]
    pool: _Pool
    repository: _Room | None
    taken: int = 0

    @property
    def exhausted(self) -> bool:
        return self.taken == len(self.jobs)

    def __lt__(self, other: _Queue) -> bool:
        mine, theirs = self.jobs[self.taken], other.jobs[other.taken]
        return (mine, self.demand.key) < (theirs, other.demand.key)


class _Account(msgspec.Struct, eq=False, gc=False):
    id: AccountId
    weight: int
    runners: int
    room: _Room | None
    mints: float
    refused: Collection[RunnerId]
    queues: list[_Queue]

    def turn(self) -> tuple[float, float, AccountId, _Account]:
        """The account with the smallest tuple is next."""
        queue = self.queues[0]
        return (self.runners + 1) / self.weight, queue.jobs[queue.taken].queued_at, self.id, self

    def refusal(self, queue: _Queue) -> Withheld | None:
        """The first reason against this queue. The reasons its owner can least change are checked
        first."""
        pool = queue.pool
        if queue.demand.blocked is not None:
            return queue.demand.blocked
        if self.room is not None and not self.room.admits(pool.cost):
            return Withheld.ACCOUNT_LIMIT
        if queue.repository is not None and not queue.repository.admits(pool.cost):
            return Withheld.REPOSITORY_LIMIT
        if pool.places <= 0:
            return Withheld.POOL_MAXIMUM
        if not pool.has_pods:
            return Withheld.NO_POD
        if self.refused and not pool.offers(self.refused):
            return Withheld.RUNNER_VERSION
        if self.mints <= 0:
            return Withheld.MINT_BUDGET
        return None

    def assign(self, queue: _Queue) -> Assignment:
        pool = queue.pool
        self.runners += pool.cost.runners
        if self.room is not None:
            self.room.take(pool.cost)
        if queue.repository is not None:
            queue.repository.take(pool.cost)
        pool.places -= 1
        self.mints -= 1
        given = Assignment(pool.pods[pool.given], queue.demand.key, queue.jobs[queue.taken].id)
        pool.given += 1
        queue.taken += 1
        return given


def _competitors(
    demand: Sequence[KeyDemand],
    supplies: Supplies,
    accounts: Mapping[AccountId, AccountTerms],
    repositories: Mapping[RepositoryId, RepositoryTerms],
    pools: Mapping[PoolId, PoolTerms],
) -> list[_Account]:
    """The accounts with unserved jobs, the key with the oldest at the head of each."""
    rooms = {id_: _Room.within(terms.limits, terms.used) for id_, terms in repositories.items()}
    stocks = {
        id_: _Pool(terms.cost, _or_any(terms.places), [*supplies.pods.get(id_, ())])
        for id_, terms in pools.items()
    }
    competitors: dict[AccountId, _Account] = {}
    for key in demand:
        if not key.unserved:
            continue
        account = competitors.get(key.account)
        if account is None:
            terms = accounts[key.account]
            account = competitors[key.account] = _Account(
                key.account,
                terms.weight,
                terms.used.runners,
                _Room.within(terms.limits, terms.used),
                _or_any(terms.mints),
                supplies.refused.get(key.account, ()),
                [],
            )
        repository = None if key.repository is None else rooms[key.repository]
        account.queues.append(_Queue(key, key.unserved, stocks[key.pool], repository))
    for account in competitors.values():
        heapq.heapify(account.queues)
    return list(competitors.values())


def _or_any(number: int | None) -> float:
    return inf if number is None else number
