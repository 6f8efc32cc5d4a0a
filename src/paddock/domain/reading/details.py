"""All that is recorded about one job, one runner or one pool, read at one moment.

The API and the dashboard show it, and `paddock.stories` makes sentences of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from paddock.domain.allocation import Withheld
from paddock.domain.github.backoffs import BackOffCause, BackOffScope
from paddock.domain.ids import JobId
from paddock.domain.limits import Limits, Resources
from paddock.domain.pauses import Pause
from paddock.domain.reading.rows import (
    ActionLine,
    DecisionLine,
    EventLine,
    JobCheck,
    JobLine,
    KeyLine,
    MintLine,
    PoolLine,
    ReadModel,
    RunnerLine,
    VerdictLine,
    VitalsLine,
)


class KeyBackOff(ReadModel, frozen=True, kw_only=True):
    scope: BackOffScope
    until: datetime
    failures: int
    cause: BackOffCause
    reason: str


class RefusedVersion(ReadModel, frozen=True, kw_only=True):
    """`ended_at`: from then on GitHub gives its runners no jobs. `refused_at`: a runner of it was
    refused without such a date, and the next one waits until `refused_until`."""

    version: str
    ended_at: datetime | None
    refused_at: datetime | None
    refused_until: datetime | None


class Wait(ReadModel, frozen=True, kw_only=True):
    """What stands between a queued job that a pool takes and its runner, at one moment."""

    #: How many jobs of its key are served before it, and how many runners are on their way to them.
    ahead: int
    supply: int
    #: Runners that ended without a reported job, and count as supply until GitHub was asked.
    supply_graces: int
    supply_grace_until: datetime | None
    #: The matcher's own reason; `None` if the next match serves it.
    withheld: Withheld | None
    dispatch_paused: Pause | None
    account_paused: Pause | None
    pool_paused: Pause | None
    pool_state: Literal["active", "draining", "deleted"]
    #: The best state among the account's installations.
    installation: Literal["active", "suspended", "removed"] | None
    back_off: KeyBackOff | None
    account_limits: Limits
    account_used: Resources
    #: Of the repository, if its runners register there.
    repository_limits: Limits
    repository_used: Resources
    #: How many of those are registered at the organisation.
    repository_wider: int = 0
    pool_maximum: int | None
    idle: int
    booting: int
    #: Why the pool has the size it has.
    pool_target: int | None
    pool_because: str | None
    #: The version of the pool's runners, if GitHub refuses it to the account.
    refused_version: RefusedVersion | None = None


class RelatedRunner(ReadModel, frozen=True, kw_only=True):
    """A runner that executed a job, was claimed for it, or is on its way to the job's key."""

    runner: RunnerLine
    executed: bool
    hinted: bool
    verdict: VerdictLine | None
    retire_reason: str | None


class JobDetails(ReadModel, frozen=True, kw_only=True):
    """Lists are in the order of time."""

    job: JobLine
    #: How often it was queued again after its runner was lost.
    demotions: int
    #: Why its repository's limits do not hold for it (I78).
    beside_limits: Literal["foreign", "organisation", "runner group"] | None
    check: JobCheck | None
    #: Why GitHub gives it to none of the runners that could have it, if recovery found that out.
    not_assigned_because: str | None
    #: `None` unless it is queued and a pool takes it.
    wait: Wait | None
    runners: list[RelatedRunner]
    #: Those of the job, and those of its runners while they belonged to it.
    events: list[EventLine]
    actions: list[ActionLine]

    @property
    def own_runners(self) -> list[RelatedRunner]:
        """Those that executed it or were claimed for it."""
        return [
            each
            for each in self.runners
            if each.executed or each.hinted or each.runner.job == self.job.id
        ]


class RunnerDetails(ReadModel, frozen=True, kw_only=True):
    """Lists are in the order of time."""

    runner: RunnerLine
    #: When it reached each step of its life that it has reached.
    steps: dict[str, datetime]
    retire_reason: str | None
    #: Whether GitHub ever made a record of it.
    was_registered: bool
    pool_paused: Pause | None
    dispatch_paused: Pause | None
    #: Jobs that wait for its pool, with or without a runner on the way.
    queued: int
    names: list[MintLine]
    events: list[EventLine]
    actions: list[ActionLine]
    #: Those it executed, and the one it was claimed for.
    jobs: list[JobLine]
    verdict: VerdictLine | None
    log_tail: str | None
    vitals: list[VitalsLine]

    def executed(self, job: JobLine) -> bool:
        """Whether GitHub names this runner as the job's executor."""
        return job.pod == self.runner.pod


class PoolDetails(ReadModel, frozen=True, kw_only=True):
    pool: PoolLine
    decisions: list[DecisionLine]
    keys: list[KeyLine]
    events: list[EventLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A job that is known only from its webhooks: paddock did nothing for it."""

    job: JobId
    labels: tuple[str, ...]
    received_at: datetime
    state: str
    note: str | None
