"""How many Pods each pool should have.

Three steps, each a function of values alone:

`desired`  what a pool wants for the work that dispatch would hand out now, and to stay warm:

           clamp(occupied + Σ_keys min(headroom, max(0, queued − supply))
                          + (1 if work is withheld by a cap) + min_idle, 0, maximum)

`settle`   up at once, down only to the greatest size wanted within a window (I53).

`share`    what fits, where pools live on the same fixed nodes: Pods at work stay; then come queued
           jobs, then floors, then Pods kept for comfort (I47).

A pool sized by its raw queue would be full of Pods that a cap keeps idle. A pool sized by what a cap
lets through would have no Pod when its account comes free. So withheld work counts as one ready Pod
(I44).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from paddock.domain.ids import AccountId, KeyId, PoolId, RepositoryId
from paddock.domain.limits import NOTHING, UNLIMITED, Limits, Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLoad:
    """The queued jobs of one demand key, and the runners on their way to them.

    The caller leaves out keys that dispatch would not serve now (paused, in back-off): no Pods are made
    for them. `repository` is set where the repository has limits of its own. `refused`: GitHub refuses
    the runner version of the pool's Pods; one Pod is kept, which tells when the version has changed.
    """

    key: KeyId
    account: AccountId
    repository: RepositoryId | None = None
    queued: int
    supply: int
    oldest: datetime
    refused: bool = False

    @property
    def unserved(self) -> int:
        """A job that was already given a runner is not demand again (I73)."""
        return max(0, self.queued - self.supply)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    """`occupied` counts the Pods that hold a place of an account, those still leaving included."""

    pool: PoolId
    cost: Resources
    occupied: int
    min_idle: int
    maximum: int
    keys: tuple[KeyLoad, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What an account may use and does use; likewise a repository with limits of its own."""

    limits: Limits = UNLIMITED
    used: Resources = NOTHING

    def headroom(self, cost: Resources, *, most: int) -> int:
        """How many more Pods of this cost `limits` would admit, up to `most`."""
        fitting = [most]
        for limit, used, price in zip(
            _vector(self.limits), _counts(self.used), _counts(cost), strict=True
        ):
            if limit is not None:
                fitting.append((limit - used) // price if price else most * (used <= limit))
        return max(0, min(fitting))

    def spend(self, cost: Resources, pods: int) -> Allowance:
        return Allowance(limits=self.limits, used=self.used + _times(cost, pods))


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """A pool's wish, term by term, so that it can be explained."""

    occupied: int
    demand: int
    withheld: int
    min_idle: int
    maximum: int

    @property
    def terms(self) -> tuple[tuple[str, int], ...]:
        return (
            ("occupied", self.occupied),
            ("for queued jobs", self.demand),
            ("for work withheld by a cap", self.withheld),
            ("kept idle", self.min_idle),
        )

    @property
    def target(self) -> int:
        """A maximum of zero means zero (I54)."""
        return max(0, min(sum(pods for _, pods in self.terms), self.maximum))

    def __str__(self) -> str:
        terms = " + ".join(f"{pods} {name}" for name, pods in self.terms if pods) or "no work"
        wanted = sum(pods for _, pods in self.terms)
        limited = f", limited to the maximum of {self.maximum}" if wanted > self.target else ""
        return f"{self.target} wanted: {terms}{limited}"


def desired(
    pools: Iterable[PoolLoad],
    *,
    accounts: Mapping[AccountId, Allowance],
    repositories: Mapping[RepositoryId, Allowance],
) -> dict[PoolId, Desired]:
    """Each account's headroom is spent once, across all pools (I45), on the keys whose oldest job
    has waited longest: served, such a key is no longer the oldest, so every key has its turn.

    A pool takes no more headroom than it has places, however long its queue; the rest is left to other
    pools. No target depends on the order in which pools are listed.
    """
    pools = list(pools)
    ledger = _Ledger(accounts=dict(accounts), repositories=dict(repositories))
    demand = dict.fromkeys((pool.pool for pool in pools), 0)
    withheld = dict.fromkeys(demand, 0)
    loads = ((key, pool) for pool in pools for key in pool.keys)
    for key, pool in sorted(loads, key=lambda load: (load[0].oldest, load[1].pool, load[0].key)):
        headroom = 0 if key.refused else ledger.headroom(key, pool.cost)
        if headroom < key.unserved:
            withheld[pool.pool] = 1
        places = max(0, pool.maximum - pool.occupied - demand[pool.pool])
        taken = min(headroom, places)
        demand[pool.pool] += taken
        ledger.spend(key, pool.cost, taken)
    return {
        pool.pool: Desired(
            occupied=pool.occupied,
            demand=demand[pool.pool],
            withheld=withheld[pool.pool],
            min_idle=pool.min_idle,
            maximum=pool.maximum,
        )
        for pool in pools
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ledger:
    """What is left of every allowance, kept while it is spent."""

    accounts: dict[AccountId, Allowance]
    repositories: dict[RepositoryId, Allowance]

    def headroom(self, key: KeyLoad, cost: Resources) -> int:
        room = self._account(key).headroom(cost, most=key.unserved)
        if key.repository is not None:
            room = self.repositories.get(key.repository, Allowance()).headroom(cost, most=room)
        return room

    def spend(self, key: KeyLoad, cost: Resources, pods: int) -> None:
        self.accounts[key.account] = self._account(key).spend(cost, pods)
        if key.repository is not None:
            repository = self.repositories.get(key.repository, Allowance())
            self.repositories[key.repository] = repository.spend(cost, pods)

    def _account(self, key: KeyLoad) -> Allowance:
        return self.accounts.get(key.account, Allowance())


@dataclass(frozen=True, slots=True)
class SizeSample:
    """A size that was wanted from some moment on, until the next sample."""

    at: datetime
    pods: int


def settle(
    history: Sequence[SizeSample], wanted: SizeSample, *, window: timedelta, maximum: int
) -> tuple[int, tuple[SizeSample, ...]]:
    """The size to go to, and the history to pass next time.

    A sample holds until the next one, so rounds that were skipped, because a read failed or no replica
    led, do not count as rounds in which nothing was wanted (I53). A caller without a history passes the
    present size as the first sample. A maximum is an order, not a signal: a lower one holds at once
    (I54).
    """
    samples = sorted((*history, wanted), key=lambda sample: sample.at)
    start = wanted.at - window
    in_force_at_start = sum(sample.at <= start for sample in samples) - 1
    kept = tuple(samples[max(0, in_force_at_start) :])
    return max(0, min(max(sample.pods for sample in kept), maximum)), kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A pool's size, split by how much it matters."""

    pool: PoolId
    cost: Resources
    occupied: int
    demand: int
    floor: int
    headroom: int
    #: Since when its jobs have waited, if that is long and it has no Pod at work: its next Pod comes
    #: first.
    starved_since: datetime | None = None

    @classmethod
    def of(
        cls,
        load: PoolLoad,
        wish: Desired,
        *,
        target: int,
        starved_since: datetime | None = None,
    ) -> Want:
        """`target` as `settle` gave it. What it has beyond the wish of this moment is headroom."""
        left = max(0, target - load.occupied)
        demand = min(wish.demand, left)
        floor = min(wish.withheld + wish.min_idle, left - demand)
        return cls(
            pool=load.pool,
            cost=load.cost,
            occupied=load.occupied,
            demand=demand,
            floor=floor,
            headroom=left - demand - floor,
            starved_since=starved_since if demand else None,
        )


def share(wants: Iterable[Want], capacity: Limits) -> dict[PoolId, int]:
    """How many Pods each pool may have on nodes of this capacity.

    Occupied Pods stay, even if they exceed the capacity. Real load is served before any pool's floor,
    floors before headroom (I47). What is scarce within one of these is divided in proportion to what
    was asked, the rest by largest remainder, until no Pod fits any more.

    In proportion, a large Pod's place would never come free as long as small ones fit into every part
    of it. So what starved pools need for one Pod each is kept free for them, the longest wait first, as
    far as the nodes could ever hold it, and no other pool gets new Pods in that room meanwhile.
    """
    wants = sorted(wants, key=lambda want: want.pool)
    nodes = Allowance(limits=capacity)
    for want in wants:
        nodes = nodes.spend(want.cost, want.occupied)
    places = {want.pool: want.occupied for want in wants}
    costs = {want.pool: want.cost for want in wants}
    first, nodes = _first_places(wants, nodes)
    for pool in first:
        places[pool] += first[pool]
    for asked in (
        {want.pool: want.demand - (want.pool in first) for want in wants},
        {want.pool: want.floor for want in wants},
        {want.pool: want.headroom for want in wants},
    ):
        for pool, pods in _divide(asked, costs, nodes).items():
            places[pool] += pods
            nodes = nodes.spend(costs[pool], pods)
    return places


def _first_places(wants: Sequence[Want], nodes: Allowance) -> tuple[dict[PoolId, int], Allowance]:
    """For each starved pool a Pod, or none yet while its place is being kept; and what is left."""
    empty = Allowance(limits=nodes.limits)
    first: dict[PoolId, int] = {}
    starved = [(want.starved_since, want) for want in wants if want.starved_since]
    for _, want in sorted(starved, key=lambda one: (one[0], one[1].pool)):
        if empty.headroom(want.cost, most=1):
            empty = empty.spend(want.cost, 1)
            first[want.pool] = nodes.headroom(want.cost, most=1)
            nodes = nodes.spend(want.cost, 1)
    return first, nodes


def _divide(
    asked: Mapping[PoolId, int], costs: Mapping[PoolId, Resources], nodes: Allowance
) -> dict[PoolId, int]:
    fraction = _fraction(asked, costs, nodes)
    quotas = {pool: pods * fraction for pool, pods in asked.items()}
    given = {pool: int(quota) for pool, quota in quotas.items()}
    for pool, pods in given.items():
        nodes = nodes.spend(costs[pool], pods)
    by_remainder = sorted(given, key=lambda pool: (given[pool] - quotas[pool], pool))
    while True:
        before = dict(given)
        for pool in by_remainder:
            if given[pool] < asked[pool] and nodes.headroom(costs[pool], most=1):
                given[pool] += 1
                nodes = nodes.spend(costs[pool], 1)
        if given == before:
            return given


def _fraction(
    asked: Mapping[PoolId, int], costs: Mapping[PoolId, Resources], nodes: Allowance
) -> Fraction:
    """The part of what was asked that fits, in the dimension that is scarcest."""
    total = NOTHING
    for pool, pods in asked.items():
        total += _times(costs[pool], pods)
    return min(
        (
            Fraction(max(0, limit - used), price or 1)
            for limit, used, price in zip(
                _vector(nodes.limits), _counts(nodes.used), _counts(total), strict=True
            )
            if limit is not None and price > limit - used
        ),
        default=Fraction(1),
    )


def _times(cost: Resources, pods: int) -> Resources:
    return Resources(
        runners=cost.runners * pods,
        vcpu_milli=cost.vcpu_milli * pods,
        memory_mib=cost.memory_mib * pods,
    )


def _vector(limits: Limits) -> tuple[int | None, int | None, int | None]:
    return limits.runners, limits.vcpu_milli, limits.memory_mib


def _counts(resources: Resources) -> tuple[int, int, int]:
    return resources.runners, resources.vcpu_milli, resources.memory_mib
