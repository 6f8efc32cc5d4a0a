"""The present state in numbers: for the dashboard, `paddock top`, `up` and the metrics."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal

from paddock.domain.reading.rows import ActionLine, PoolLine, ReadModel
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.versions import NOTICE
from paddock.domain.states import JobState, RunnerState

#: The most cells that are drawn; the counts are of all runners.
MOST_CELLS: Final = 1000
#: Of the jobs that wait, those that have waited longest.
MOST_WAITING: Final = 8
MOST_ACTIONS: Final = 10

#: "Lately": for times to JIT and for what ended.
LATELY: Final = timedelta(minutes=15)
TREND: Final = timedelta(hours=1)
TREND_STEP: Final = timedelta(minutes=1)


class Cell(ReadModel, frozen=True, kw_only=True):
    """A runner in the picture of all of them."""

    pod: str
    pool: str
    state: RunnerState
    since: datetime
    account: str | None
    job: int | None
    node: str | None
    suspect: bool


class QueueLine(ReadModel, frozen=True, kw_only=True):
    """Jobs of an account that wait for a pool's runners."""

    pool: str
    account: str
    jobs: int
    oldest_at: datetime


class WaitingJob(ReadModel, frozen=True, kw_only=True):
    host: str
    id: int
    name: str
    repository: str
    pool: str | None
    queued_at: datetime
    refusal: str | None
    refusal_detail: str | None
    #: As `paddock why` says it.
    waits_because: str | None = None


class Latency(ReadModel, frozen=True, kw_only=True):
    """Seconds from the first word of a job to its runner's JIT; `count` is how many were measured."""

    p50: float
    p99: float
    count: int


class PauseLine(ReadModel, frozen=True, kw_only=True):
    """A pause of all dispatch, a pool or an account: nothing is claimed for it."""

    what: str
    name: str | None
    at: datetime
    by: str
    why: str | None


class ActiveBackOff(ReadModel, frozen=True, kw_only=True):
    scope: str
    name: str
    until: datetime
    failures: int
    reason: str


class UnfitHost(ReadModel, frozen=True, kw_only=True):
    """A host that reports itself unfit for runners."""

    host: str
    why: str
    since: datetime

    @property
    def reason(self) -> str:
        """One word, for programs."""
        return self.why.partition(":")[0]


class LimitBypassLine(ReadModel, frozen=True, kw_only=True):
    """Jobs of a repository with limits that execute on runners which those limits cannot refuse: a
    foreign runner, or one that is registered at the organisation (I78)."""

    account: str
    repository: str
    runner: Literal["foreign", "organisation"]
    jobs: int


class PoolVersionLine(ReadModel, frozen=True, kw_only=True):
    """The runner version of a pool's newest Pods. The dates are those of `account`, for which it ends
    first; null: no date is known. `refused_until`: GitHub refused a runner of it at `refused_at`, and
    nothing is minted for its Pods until then."""

    pool: str
    version: str
    account: str | None
    registration_ends_at: datetime | None
    runtime_ends_at: datetime | None
    refused_at: datetime | None
    refused_until: datetime | None

    @property
    def ends_at(self) -> datetime | None:
        """The first of its dates."""
        ends = (self.registration_ends_at, self.runtime_ends_at, self.refused_at)
        return min((end for end in ends if end is not None), default=None)

    def is_refused(self, now: datetime) -> bool:
        """Whether nothing is minted for its Pods."""
        ended = self.runtime_ends_at is not None and self.runtime_ends_at <= now
        return ended or (self.refused_until is not None and self.refused_until > now)

    def ends_soon(self, now: datetime) -> bool:
        return self.ends_at is not None and self.ends_at <= now + NOTICE

    def sentence(self, now: datetime) -> str:
        """What is wrong with a version that is refused or ends soon."""
        whose = f"Pool {self.pool} has runner version {self.version}"
        to = f" to {self.account}" if self.account else ""
        if self.runtime_ends_at is not None and self.runtime_ends_at <= now:
            return f"{whose}, which GitHub has refused{to} since {_day(self.runtime_ends_at)}."
        if self.is_refused(now):
            return f"{whose}, of which GitHub refused a runner{to}."
        if self.ends_at is None:
            return f"{whose}."
        if self.ends_at > now:
            return f"{whose}, which GitHub accepts until {_day(self.ends_at)}."
        until = f" until {_day(self.runtime_ends_at)}" if self.runtime_ends_at else ""
        registered = (
            f"with which GitHub has registered no new runners{to} since {_day(self.ends_at)}"
        )
        return f"{whose}, {registered}. Those that paddock registers get jobs{until}."


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


class BudgetLine(ReadModel, frozen=True, kw_only=True):
    """The share (of 1) that is left of a GitHub budget, for the App's installation with the least left.
    `account` is the installation's; null is the App itself."""

    app: int
    bucket: str
    account: str | None
    left: float


class Overview(ReadModel, frozen=True, kw_only=True):
    at: datetime
    #: The number of the last event, job or runner step: while it is the same, nothing moved.
    last_event: int
    runners: dict[RunnerState, int]
    cells: list[Cell]
    #: Jobs that are not over, by status.
    jobs: dict[JobState, int]
    #: Jobs completed in the last hour, by conclusion.
    completed: dict[str, int]
    queues: list[QueueLine]
    #: Queued jobs that no pool takes.
    refused: int
    oldest: list[WaitingJob]
    to_jit: Latency | None
    #: What recovery did in the last hour, newest first.
    actions: list[ActionLine]
    #: How runners ended in the last hour.
    endings: dict[Ending, int]
    pending_deliveries: int
    dead_deliveries: int
    last_delivery_at: datetime | None
    debts: int
    pauses: list[PauseLine]
    backoffs: list[ActiveBackOff]
    budgets: list[BudgetLine]
    unfit_hosts: list[UnfitHost]
    #: Where it is known.
    runner_versions: list[PoolVersionLine]
    limit_bypasses: list[LimitBypassLine]
    pools: int
    accounts: int

    @property
    def oldest_at(self) -> datetime | None:
        """When the oldest job was queued that a pool takes."""
        return min((queue.oldest_at for queue in self.queues), default=None)


class Levels(ReadModel, frozen=True, kw_only=True):
    """What the metrics show beside what their own process counted."""

    queues: list[QueueLine]
    pools: list[PoolLine]
    #: Per pool, the runners whose container is up and that GitHub calls offline.
    suspects: dict[str, int]
    budgets: list[BudgetLine]
    unfit_hosts: list[UnfitHost]
    #: Where it is known.
    runner_versions: list[PoolVersionLine]
    limit_bypasses: list[LimitBypassLine]
    debts: int
    dead_deliveries: int
    #: When the oldest delivery arrived that is not applied yet.
    oldest_pending_at: datetime | None


class QueuePoint(ReadModel, frozen=True, kw_only=True):
    """A minute: how many jobs waited at its end, and how many came and went in it."""

    at: datetime
    depth: int
    came: int
    went: int


class LatencyPoint(ReadModel, frozen=True, kw_only=True):
    at: datetime
    p50: float
    p99: float
    count: int


class EndPoint(ReadModel, frozen=True, kw_only=True):
    """Jobs completed in a minute."""

    at: datetime
    conclusion: str
    jobs: int


class Trends(ReadModel, frozen=True, kw_only=True):
    since: datetime
    until: datetime
    queue: list[QueuePoint]
    to_jit: list[LatencyPoint]
    completed: list[EndPoint]


def depths(
    *,
    since: datetime,
    until: datetime,
    came: dict[datetime, int],
    went: dict[datetime, int],
    now: int,
) -> list[QueuePoint]:
    """The queue's depth, minute by minute, counted back from what waits now, so that it need not be
    recorded."""
    points: list[QueuePoint] = []
    at, depth = since + ((until - since) // TREND_STEP) * TREND_STEP, now
    while at >= since:
        come, gone = came.get(at, 0), went.get(at, 0)
        points.append(QueuePoint(at=at, depth=max(0, depth), came=come, went=gone))
        depth += gone - come
        at -= TREND_STEP
    return points[::-1]
