"""What the metrics show: how full everything is now, and how long each step of dispatch took."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from paddock.domain.states import RunnerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The jobs of one account that wait for runners of one pool."""

    pool: str
    account: str
    jobs: int
    oldest_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerCount:
    """The runners of a pool in one state."""

    pool: str
    state: RunnerState
    runners: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLevel:
    """A pool's target, as last decided, its maximum, and how many of its runners are suspect."""

    pool: str
    target: int | None
    max_runners: int | None
    suspects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLevel:
    """What is left of one of an App's GitHub budgets, for the installation with the least left."""

    app: int
    bucket: str
    #: Whose installation it is; `None` is the App itself.
    account: str | None
    tokens: float
    capacity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFault:
    """A host that reports itself unfit for runners."""

    host: str
    why: str
    since: datetime

    @property
    def reason(self) -> str:
        """One word, for programs."""
        return self.why.partition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitBypass:
    """Jobs of a repository with limits that execute on runners which those limits cannot refuse: a
    foreign runner, or one that is registered at the organisation (I78)."""

    account: str
    repository: str
    runner: Literal["foreign", "organisation"]
    jobs: int

    @property
    def sentence(self) -> str:
        what = "1 job" if self.jobs == 1 else f"{self.jobs} jobs"
        where = (
            "runners that are not paddock's"
            if self.runner == "foreign"
            else "runners that are registered at its organisation"
        )
        return f"{what} of {self.repository} on {where}: its limits do not hold there."


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    queues: tuple[Queue, ...]
    crews: tuple[RunnerCount, ...]
    pools: tuple[PoolLevel, ...]
    budgets: tuple[BudgetLevel, ...]
    host_faults: tuple[HostFault, ...]
    limit_bypasses: tuple[LimitBypass, ...]
    debts: int
    dead_deliveries: int
    #: When the oldest delivery arrived that is not applied yet.
    oldest_pending_at: datetime | None


#: The steps from paddock's first word of a job to its start: name, and the interval it measures.
STEPS: Final = {
    "claimed": "from the first word of a job to a Pod claimed for its key",
    "armed": "from the claim to the stored JIT: the mint",
    "acknowledged": "from the stored JIT to the Pod's word that it has it",
    "in_progress": "from then to GitHub's word that the runner executes a job",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """How long one runner took for each step, in seconds; `None` where it is not known."""

    pool: str
    claimed: float | None
    armed: float | None
    acknowledged: float | None
    in_progress: float | None
