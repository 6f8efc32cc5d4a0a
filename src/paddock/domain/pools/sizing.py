"""The decision on each pool's size, with its terms, so that it can be stored and explained.

Puts together the three steps of `scaling`: what is wanted now, what it settles to, and what fits on
hosts that pools share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from paddock.domain.ids import AccountId, PoolId, RepositoryId
from paddock.domain.limits import NOTHING, Limits, Resources
from paddock.domain.pods.pod import Host
from paddock.domain.pools.scaling import (
    Allowance,
    Desired,
    KeyLoad,
    PoolLoad,
    SizeSample,
    Want,
    desired,
    settle,
    share,
)
from paddock.domain.pools.terms import Terms, shown

#: Where no maximum is given. More than there will ever be, and PostgreSQL can still count it.
UNBOUNDED: Final = 2**31 - 1

#: A pool without a Pod at work, whose oldest job has waited this long, gets the next place. Longer than
#: a place takes to come free in a fleet of short jobs.
PATIENCE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedPool:
    """A pool that is to be sized, and what is there."""

    pool: PoolId
    terms: Terms
    cost: Resources
    occupied: int
    #: Waiting for work: booting or idle, their Pods not ended.
    waiting: int
    keys: tuple[KeyLoad, ...] = ()
    #: Sizes wanted earlier, at least those of the window.
    history: Sequence[SizeSample] = ()


class SizeTerms(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The terms of a decision, as they are stored."""

    occupied: int
    queued: int
    withheld: int
    min_idle: int
    size: int | None
    maximum: int | None
    #: What it settled to: the greatest size wanted within the window.
    settled: int
    #: What the hosts have room for; `None` if that is not known, or does not limit the pool.
    room: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    pool: PoolId
    #: For the work of this moment.
    wanted: int
    #: What the pool goes to.
    target: int
    terms: SizeTerms
    why: str


def usable(host: Host) -> bool:
    return host.ready and not host.leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the Pods of pools that share hosts may take of them."""

    limits: Limits
    #: What each single host has: two halves on different hosts do not hold one Pod.
    hosts: tuple[Resources, ...]
    #: The pools that share it; `None`: all.
    pools: frozenset[PoolId] | None = None

    def holds(self, cost: Resources) -> bool:
        """Whether there is a host, however full, that is large enough for one Pod of this cost."""
        return any(_as_limits(host).admit(NOTHING, cost) for host in self.hosts)

    @staticmethod
    def of(
        hosts: Collection[Host],
        *,
        pools: frozenset[PoolId] | None = None,
        taken: Iterable[Resources] = (),
        elsewhere: Iterable[Resources] = (),
    ) -> Room | None:
        """`None` where the fleet cannot tell, or names no hosts: that does not mean that there is no
        room. `taken`: by Pods that are not sized here. `elsewhere`: what Pods that are sized have on
        hosts that take no new ones."""
        known = [host.capacity for host in hosts if usable(host) and host.capacity is not None]
        if not hosts or len(known) < sum(usable(host) for host in hosts):
            return None
        total = sum(elsewhere, start=sum(known, start=NOTHING))
        used = sum(taken, start=NOTHING)
        left = Resources(
            runners=max(0, total.runners - used.runners),
            vcpu_milli=max(0, total.vcpu_milli - used.vcpu_milli),
            memory_mib=max(0, total.memory_mib - used.memory_mib),
        )
        return Room(limits=_as_limits(left), hosts=tuple(known), pools=pools)


def _as_limits(resources: Resources) -> Limits:
    return Limits(
        runners=resources.runners,
        vcpu_milli=resources.vcpu_milli,
        memory_mib=resources.memory_mib,
    )


def decide(
    pools: Sequence[SizedPool],
    *,
    accounts: Mapping[AccountId, Allowance],
    repositories: Mapping[RepositoryId, Allowance],
    rooms: Sequence[Room] = (),
    now: datetime,
) -> dict[PoolId, Decision]:
    loads = {pool.pool: _load(pool) for pool in pools}
    wishes = desired(loads.values(), accounts=accounts, repositories=repositories)
    settled = {pool.pool: _settled(pool, wishes[pool.pool], now) for pool in pools}
    places: dict[PoolId, int] = {}
    for room in rooms:
        places |= _places(pools, loads, wishes, settled, room, now)
    return {
        pool.pool: _decision(pool, wishes[pool.pool], settled[pool.pool], places.get(pool.pool))
        for pool in pools
    }


def _load(pool: SizedPool) -> PoolLoad:
    maximum = pool.terms.maximum
    return PoolLoad(
        pool=pool.pool,
        cost=pool.cost,
        occupied=pool.occupied,
        min_idle=pool.terms.min_idle,
        maximum=UNBOUNDED if maximum is None else maximum,
        keys=pool.keys,
    )


def _wanted(pool: SizedPool, wish: Desired) -> int:
    return wish.target if pool.terms.size is None else pool.terms.size


def _settled(pool: SizedPool, wish: Desired, now: datetime) -> int:
    """A fixed size is an order, as a maximum is: it holds at once (I54)."""
    if pool.terms.size is not None:
        return pool.terms.size
    history = pool.history or [SizeSample(now, pool.occupied + pool.waiting)]
    wanted = SizeSample(now, wish.target)
    return settle(history, wanted, window=pool.terms.window, maximum=wish.maximum)[0]


def _places(
    pools: Sequence[SizedPool],
    loads: Mapping[PoolId, PoolLoad],
    wishes: Mapping[PoolId, Desired],
    settled: Mapping[PoolId, int],
    room: Room,
    now: datetime,
) -> dict[PoolId, int]:
    """Elastic pools are not limited to the hosts there are. A pool whose Pods are too large for every
    host gets no share of what others could use (I50)."""
    fixed = [
        pool
        for pool in pools
        if pool.terms.capacity == "fixed" and (room.pools is None or pool.pool in room.pools)
    ]
    wants = [
        Want.of(
            loads[pool.pool],
            wishes[pool.pool],
            target=settled[pool.pool],
            starved_since=_starved_since(pool, now),
        )
        for pool in fixed
    ]
    wants = [
        want
        if room.holds(want.cost)
        else replace(want, demand=0, floor=0, headroom=0, starved_since=None)
        for want in wants
    ]
    return share(wants, room.limits)


def _starved_since(pool: SizedPool, now: datetime) -> datetime | None:
    """Waiting Pods do not count: the Pod that a starved pool gets first must not be taken back."""
    oldest = min((key.oldest for key in pool.keys if key.unserved), default=now)
    return oldest if not pool.occupied and now - oldest >= PATIENCE else None


def _decision(pool: SizedPool, wish: Desired, settled: int, room: int | None) -> Decision:
    wanted = _wanted(pool, wish)
    target = settled if room is None else min(settled, room)
    terms = SizeTerms(
        occupied=wish.occupied,
        queued=wish.demand,
        withheld=wish.withheld,
        min_idle=wish.min_idle,
        size=pool.terms.size,
        maximum=pool.terms.maximum,
        settled=settled,
        room=room if room is not None and room < settled else None,
    )
    return Decision(
        pool=pool.pool, wanted=wanted, target=target, terms=terms, why=_why(pool, wish, terms)
    )


def _why(pool: SizedPool, wish: Desired, terms: SizeTerms) -> str:
    parts = [str(wish) if terms.size is None else f"{terms.size} wanted: a fixed size"]
    if terms.size is None and terms.settled > wish.target:
        window = shown(pool.terms.window)
        parts.append(f"{terms.settled} kept: so many were wanted within the last {window}")
    if terms.room is not None:
        parts.append(f"{terms.room} on the hosts there are, which pools share")
    return "; ".join(parts)


def as_found(pool: SizedPool, first: Decision) -> list[Decision]:
    """The size a pool has when it is first decided on, as if it had been wanted: so that the first
    decision does not end runners that are about to be needed (I53)."""
    found = pool.occupied + pool.waiting
    if pool.terms.size is not None or found <= first.wanted:
        return []
    return [replace(first, wanted=found, target=found, why=f"{found} were found there")]


DecisionChange = Literal["same", "terms", "size"]


def change(before: Decision | None, now: Decision) -> DecisionChange:
    """What of a decision differs from the one before."""
    if before is None or (before.wanted, before.target) != (now.wanted, now.target):
        return "size"
    return "same" if before.terms == now.terms else "terms"
