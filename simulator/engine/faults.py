"""What goes wrong, each by its name.

In every seed a random part of the allowed faults is active, each with its own strength. One world in
which everything fails a little finds less than many worlds in which a few things fail often.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from paddock.fakes.github import Faults as GitHubFaults
from simulator.engine.trace import Trace


class Fault(StrEnum):
    # Webhooks
    HOOK_LOST = "hook-lost"
    HOOK_FAILED = "hook-failed"
    HOOK_DOUBLED = "hook-doubled"
    HOOK_LATE = "hook-late"
    # GitHub's answers
    GITHUB_SLOW = "github-slow"
    GITHUB_ERROR = "github-error"
    GITHUB_REQUEST_LOST = "github-request-lost"
    GITHUB_REPLY_LOST = "github-reply-lost"
    SCOPE_404 = "scope-404"
    SUSPENDED = "suspended"
    BUSY_UNSEEN = "busy-unseen"
    BUSY_DELETED = "busy-deleted"
    ASSIGNS_LATE = "assigns-late"
    # The database
    STORE_AWAY = "store-away"
    STORE_OUTCOME_UNKNOWN = "store-outcome-unknown"
    STORE_SLOW = "store-slow"
    WAKEUP_LOST = "wakeup-lost"
    # Replicas
    CRASH = "replica-crash"
    STALL = "replica-stall"
    TWO_LEADERS = "two-leaders"
    # The fleet's API
    FLEET_ERROR = "fleet-error"
    FLEET_REPLY_LOST = "fleet-reply-lost"
    FLEET_SLOW = "fleet-slow"
    LIST_EMPTY = "list-empty"
    LIST_PARTIAL = "list-partial"
    LIST_STALE = "list-stale"
    WATCH_BROKEN = "watch-broken"
    WATCH_LATE = "watch-late"
    # Between Pods and paddock
    POLL_UNREACHABLE = "poll-unreachable"
    POLL_REPLY_LOST = "poll-reply-lost"
    ACK_LOST = "ack-lost"
    # Pods on their way to a job
    SLOW_PULL = "slow-pull"
    PULL_FAILS = "pull-fails"
    UNSCHEDULABLE = "unschedulable"
    BAD_NODE = "bad-node"
    NEVER_STARTS = "never-starts"
    SLOW_START = "slow-start"
    NEVER_REGISTERS = "never-registers"
    LEAVES = "leaves"
    OUTDATED = "outdated"
    ZOMBIE = "zombie"
    # Runners with a job
    OOM = "oom"
    SIGKILL = "sigkill"
    SIGTERM = "sigterm"
    RUNNER_CRASH = "runner-crash"
    WORKER_KILLED = "worker-killed"
    NO_COMPLETION = "no-completion"
    HANG = "hang"
    # Pods and nodes
    EVICTED = "evicted"
    NODE_LOST = "node-lost"
    NODE_VANISHED = "node-vanished"
    HARD_DELETED = "hard-deleted"
    FOREIGN_DELETE = "foreign-delete"
    CORDONED = "cordoned"
    # Jobs and people
    CANCELLED = "cancelled"
    FOREIGN_JOB = "foreign-job"
    FOREIGN_RUNNER = "foreign-runner"
    LIMIT_LOWERED = "limit-lowered"
    ACCOUNT_PAUSED = "account-paused"
    POOL_PAUSED = "pool-paused"
    POOL_DELETED = "pool-deleted"
    POOL_CHANGED = "pool-changed"
    POOL_RESIZED = "pool-resized"
    RETIRED_BY_HAND = "retired-by-hand"
    FOREIGN_POD = "foreign-pod"
    RESTORED = "backup-restored"
    RUN_DELETED = "run-deleted"
    NOT_ASSIGNED = "not-assigned"
    RECORD_DELETED = "record-deleted"
    # Rare looks and long waits
    LINGERS = "lingers"
    POD_LINGERS = "pod-lingers"
    UNRECOGNISED = "unrecognised"
    SHORT_DAY = "short-day"
    POLLER_HANGS = "poller-hangs"
    GIVEN_BACK = "given-back"
    LOG_LATE = "log-late"
    # Last, so that the faults drawn for existing seeds stay the same.
    HOST_UNFIT = "host-unfit"
    BLACKOUT = "blackout"
    CLOCK_SKEW = "clock-skew"
    NODES_LOST = "nodes-lost"
    UNINSTALLED = "uninstalled"
    REPOSITORY_DELETED = "repository-deleted"
    APPROVED_LATE = "approved-late"
    FAILOVER = "database-failover"
    PRIMARY_LIMIT = "primary-limit"
    SECONDARY_LIMIT = "secondary-limit"
    LOG_AWAY = "log-away"


ALL = frozenset(Fault)

#: The probability of a fault at one opportunity if it is active with strength 1.
CHANCE: dict[Fault, float] = {
    Fault.STORE_AWAY: 0.002,
    Fault.STORE_OUTCOME_UNKNOWN: 0.002,
    Fault.STORE_SLOW: 0.01,
    Fault.WAKEUP_LOST: 0.15,
    Fault.CRASH: 0.0008,
    Fault.FLEET_ERROR: 0.03,
    Fault.FLEET_REPLY_LOST: 0.02,
    Fault.FLEET_SLOW: 0.05,
    Fault.LIST_EMPTY: 0.03,
    Fault.LIST_PARTIAL: 0.05,
    Fault.LIST_STALE: 0.05,
    Fault.WATCH_BROKEN: 0.01,
    Fault.WATCH_LATE: 0.2,
    Fault.POLL_UNREACHABLE: 0.03,
    Fault.POLL_REPLY_LOST: 0.15,
    Fault.ACK_LOST: 0.2,
    Fault.SLOW_PULL: 0.1,
    Fault.PULL_FAILS: 0.03,
    Fault.UNSCHEDULABLE: 0.05,
    Fault.NEVER_STARTS: 0.08,
    Fault.SLOW_START: 0.1,
    Fault.NEVER_REGISTERS: 0.08,
    Fault.LEAVES: 0.05,
    Fault.OUTDATED: 0.03,
    Fault.ZOMBIE: 0.4,
    Fault.OOM: 0.05,
    Fault.SIGKILL: 0.05,
    Fault.SIGTERM: 0.05,
    Fault.RUNNER_CRASH: 0.05,
    Fault.WORKER_KILLED: 0.04,
    Fault.NO_COMPLETION: 0.05,
    Fault.HANG: 0.03,
    Fault.EVICTED: 0.04,
    Fault.HARD_DELETED: 0.04,
    Fault.FOREIGN_DELETE: 0.04,
    Fault.CANCELLED: 0.1,
    Fault.FOREIGN_JOB: 0.1,
    Fault.RUN_DELETED: 0.15,
    Fault.LINGERS: 0.05,
    Fault.POD_LINGERS: 0.05,
    Fault.UNRECOGNISED: 0.05,
    Fault.POLLER_HANGS: 0.2,
    Fault.GIVEN_BACK: 0.05,
    Fault.LOG_LATE: 0.2,
    Fault.LOG_AWAY: 0.3,
}

_IN_THE_AIR = 0.6
_STRENGTHS = (0.5, 1.0, 2.0)


def parse_faults(text: str) -> frozenset[Fault]:
    """`all`, `none`, or names; a name after a minus is left out of all."""
    if text == "all":
        return ALL
    if text == "none":
        return frozenset()
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name.removeprefix("-") not in {*map(str, Fault)}]
    if unknown:
        raise ValueError(
            f"there is no fault {', '.join(unknown)}; there are {', '.join(map(str, Fault))}"
        )
    without = {Fault(name[1:]) for name in names if name.startswith("-")}
    chosen = {Fault(name) for name in names if not name.startswith("-")}
    return frozenset(chosen or ALL) - without


@dataclass(frozen=True, slots=True)
class FaultMix:
    """Which faults are active in one seed, and how strong."""

    strength: dict[Fault, float]

    @classmethod
    def draw(cls, allowed: Iterable[Fault], rng: random.Random) -> FaultMix:
        allowed = frozenset(allowed)
        strength = {}
        for fault in Fault:  # always the same draws, also for faults that are not allowed
            in_the_air, how = rng.random() < _IN_THE_AIR, rng.choice(_STRENGTHS)
            if fault in allowed and in_the_air:
                strength[fault] = how
        return cls(strength)

    @classmethod
    def all_of(cls, faults: Iterable[Fault]) -> FaultMix:
        return cls(dict.fromkeys(sorted(faults), 1.0))


class Faults:
    """Draws whether a fault occurs. `on` is false once faults have stopped."""

    def __init__(self, mix: FaultMix, rng: random.Random, trace: Trace) -> None:
        self._strength = mix.strength
        self._rng = rng
        self._trace = trace
        self.on = True
        self.loses_wakeups = Fault.WAKEUP_LOST in mix.strength
        #: The database is away for all replicas, and calls in progress were cut off.
        self.database_away = False
        self._cut_off: set[str] = set()
        #: When a call of the database last failed, was cut off or was slow.
        self.database_troubled_at = -math.inf
        #: When hosts could last not be read, or a replica stalled after reading them.
        self.hosts_unread_at = -math.inf
        #: GitHub and the cluster's API answer no request, and GitHub reaches no receiver.
        self.dark = False

    def in_the_air(self, fault: Fault) -> bool:
        return self.on and fault in self._strength

    def begin_failover(self) -> None:
        self.database_away = True
        self._cut_off.clear()

    def end_failover(self) -> None:
        self.database_away = False

    def cuts_off(self, machine: str) -> bool:
        """Whether a failover breaks this call of the machine, once per failover; it may have
        committed."""
        if machine in self._cut_off:
            return False
        self._cut_off.add(machine)
        return self._rng.random() < 0.5

    def strike(self, fault: Fault, *, times: float = 1.0) -> bool:
        """Whether the fault occurs this time."""
        if not self.on or (strength := self._strength.get(fault)) is None:
            return False
        if self._rng.random() >= CHANCE[fault] * strength * times:
            return False
        self.happened(fault)
        return True

    def happened(self, fault: Fault) -> None:
        self._trace.count(f"fault {fault}")

    def first(self, *faults: Fault) -> Fault | None:
        """The first of these faults that occurs this time, if any."""
        return next((fault for fault in faults if self.strike(fault)), None)

    def between(self, low: float, high: float) -> float:
        return self._rng.uniform(low, high)

    def strength(self, fault: Fault) -> float:
        return self._strength.get(fault, 0.0) if self.on else 0.0

    def at_github(self) -> GitHubFaults:
        """The faults that the fake GitHub produces itself."""
        slow = self.strength(Fault.GITHUB_SLOW)
        late = self.strength(Fault.HOOK_LATE)
        return GitHubFaults(
            hook_lost=0.03 * self.strength(Fault.HOOK_LOST),
            hook_failed=0.08 * self.strength(Fault.HOOK_FAILED),
            hook_doubled=0.1 * self.strength(Fault.HOOK_DOUBLED),
            hook_delay=(0.05, 0.5),
            hook_held_back=0.15 * late,
            hook_held_back_for=(1.0, 60.0),
            latency=(0.02, 3.0 * slow) if slow else (0.02, 0.3),
            request_lost=0.02 * self.strength(Fault.GITHUB_REQUEST_LOST),
            reply_lost=0.03 * self.strength(Fault.GITHUB_REPLY_LOST),
            server_error=0.04 * self.strength(Fault.GITHUB_ERROR),
            assign_delay=(0.1, 20.0) if self.strength(Fault.ASSIGNS_LATE) else (0.1, 1.5),
            busy_unseen=0.3 * self.strength(Fault.BUSY_UNSEEN),
            busy_unseen_for=(1.0, 90.0),
            busy_deleted=0.1 * self.strength(Fault.BUSY_DELETED),
        )
