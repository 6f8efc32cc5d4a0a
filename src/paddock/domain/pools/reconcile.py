"""What to do about a pool: how many runners to create, which to fence, and why.

A pure function of what is there and what is wanted, so that every promise about pools can be tested. It
only names runners that wait for work (booting, idle): runners that hold a claim, or may hold a job, are
not among its input (I42). A fence is only a request; `recovery` finds out whether and how the Pod may
be deleted.

In this order:

`drain`   a pool that is being deleted, or a host that is leaving, keeps no waiting runner (I43)
`shrink`  what is beyond the target: those that have not started first, the newest first
`roll`    stale ones, as long as enough others are ready (I52)
`fill`    the gap, within the maximum and the limit on starts (I49)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.domain.pods.pod import Host
from paddock.domain.pools.surveys import PoolState, SurveyedPool
from paddock.domain.pools.terms import Terms
from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A runner that waits for work, with what its fleet shows of its Pod."""

    runner: Runner
    host: str | None = None
    #: Its Pod has ended, or its deletion was requested: it is no supply and holds no place, even if its
    #: row says otherwise (I40).
    ended: bool = False
    #: GitHub refuses its runner's version to all accounts that want a runner of the pool.
    refused: bool = False

    @property
    def ready(self) -> bool:
        return self.runner.state is RunnerState.IDLE


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAim:
    """What is wanted of a pool, and what is there beside its waiting runners."""

    state: PoolState = "active"
    paused: bool = False
    spec_hash: str
    #: How many runners there should be, occupied or waiting.
    target: int
    #: How many runners there may be, in any state; `None` is no maximum.
    maximum: int | None = None
    #: Runners that hold a place of an account.
    occupied: int
    #: Runners in any state whose Pods have not ended.
    present: int
    max_starting: int
    #: How many of those that should wait may be missing while stale ones are replaced.
    may_be_missing: int

    @classmethod
    def of(cls, pool: SurveyedPool, terms: Terms, *, target: int) -> PoolAim:
        return cls(
            state=pool.state,
            paused=pool.paused,
            spec_hash=pool.spec_hash,
            target=target,
            maximum=terms.maximum,
            occupied=pool.occupied,
            present=pool.present,
            max_starting=terms.provisioning.max_starting,
            may_be_missing=terms.may_be_missing(max(0, target - pool.occupied)),
        )


Cause = Literal["pool deleted", "host leaving", "surplus", "stale"]


@dataclass(frozen=True, slots=True)
class Fence:
    runner: Runner
    cause: Cause
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    create: int = 0
    fence: tuple[Fence, ...] = ()
    #: What keeps the pool from having more runners now.
    held_back: tuple[str, ...] = ()


def plan(aim: PoolAim, waiting: Sequence[Candidate], hosts: Collection[Host] = ()) -> PoolPlan:
    there = [each for each in waiting if not each.ended]
    if aim.state != "active":
        return PoolPlan(fence=_fences(there, "pool deleted", "its pool is being deleted"))
    drained = _on_leaving_hosts(there, hosts)
    there = _without(there, drained)
    if aim.paused:
        return PoolPlan(fence=drained, held_back=("the pool is paused",))
    surplus = _surplus(aim, there)
    there = _without(there, surplus)
    stale = _rolled(aim, there)
    there = _without(there, stale)
    create, held_back = _fill(aim, there)
    return PoolPlan(create=create, fence=(*drained, *surplus, *stale), held_back=held_back)


def _on_leaving_hosts(there: Sequence[Candidate], hosts: Collection[Host]) -> tuple[Fence, ...]:
    leaving = {host.name: host for host in hosts if host.leaving}
    return tuple(
        Fence(each.runner, "host leaving", f"its host {each.host} is {_how(leaving[each.host])}")
        for each in there
        if each.host in leaving
    )


def _how(host: Host) -> str:
    if host.deleting:
        return "being deleted"
    return "cordoned" if host.fault is None else f"not fit for runners: {host.fault}"


def _surplus(aim: PoolAim, there: Sequence[Candidate]) -> tuple[Fence, ...]:
    """Those that have not started go first, then stale ones, which would have to go soon anyway. Among
    equals the newest go first: the longest proven stay."""
    surplus = max(0, aim.occupied + len(there) - aim.target)
    if not surplus:
        return ()
    newest_first = sorted(there, key=_age, reverse=True)
    order = sorted(newest_first, key=lambda each: (each.ready, not _stale(aim, each)))
    why = f"its pool has {surplus} more than the {aim.target} it wants"
    return _fences(order[:surplus], "surplus", why)


def _rolled(aim: PoolAim, there: Sequence[Candidate]) -> tuple[Fence, ...]:
    """Paced by availability, not by time: enough runners stay ready, and new ones that do not become
    ready stop the exchange instead of emptying the pool (I52)."""
    if not any(_stale(aim, each) for each in there):
        return ()
    fresh_starting = sum(not each.ready and not _stale(aim, each) for each in there)
    enough = max(0, max(0, aim.target - aim.occupied) - aim.may_be_missing)
    may_go = max(0, len(there) - enough - fresh_starting)
    stale = [each for each in sorted(there, key=_age) if _stale(aim, each)]
    unstarted_first = sorted(stale, key=lambda each: each.ready)
    return tuple(
        Fence(
            each.runner,
            "stale",
            "GitHub refuses its runner's version"
            if each.refused
            else "its pool's description has changed since it was made",
        )
        for each in unstarted_first[:may_go]
    )


def _fill(aim: PoolAim, there: Sequence[Candidate]) -> tuple[int, tuple[str, ...]]:
    """A row is written before its Pod, so a Pod that the fleet does not show yet counts as starting."""
    missing = max(0, aim.target - aim.occupied - len(there))
    places = missing if aim.maximum is None else max(0, aim.maximum - aim.present)
    starting = sum(not each.ready for each in there)
    starts = max(0, aim.max_starting - starting)
    held_back = []
    if places < missing:
        held_back.append(f"{aim.present} are still there, and {aim.maximum} may be")
    if starts < min(missing, places):
        held_back.append(f"{starting} are starting, and {aim.max_starting} may at once")
    return min(missing, places, starts), tuple(held_back)


def _stale(aim: PoolAim, each: Candidate) -> bool:
    return each.refused or each.runner.spec_hash != aim.spec_hash


def _age(each: Candidate) -> tuple[object, ...]:
    return each.runner.created_at, each.runner.id


def _fences(those: Sequence[Candidate], cause: Cause, why: str) -> tuple[Fence, ...]:
    return tuple(Fence(each.runner, cause, why) for each in those)


def _without(there: Sequence[Candidate], fenced: Sequence[Fence]) -> list[Candidate]:
    going = {fence.runner.id for fence in fenced}
    return [each for each in there if each.runner.id not in going]
