"""Facts about a job, and how two sets of facts are merged.

GitHub's events are lost, late, doubled and out of order. `merge` is the join of a lattice: it is
commutative, associative and idempotent, so a job's row depends on *which* events arrived and never on
when or how often. The database merges with the same rules in one statement (`store/queries/jobs.sql`);
a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from paddock.domain.ids import (
    AccountId,
    GitHubRunnerId,
    HostId,
    JobId,
    PoolId,
    RunnerId,
)
from paddock.domain.names import PodName, RunnerName
from paddock.domain.states import JobState, RunnerState

#: GitHub cancels a job that has been queued for this long.
LONGEST_QUEUED: Final = timedelta(hours=24)


class UnservedCause(StrEnum):
    """Why a job whose labels a pool takes gets no runner. `jobs.refusal` has one of these, or one of
    `labels.Refusal`."""

    UNTRUSTED = "untrusted"
    NOT_ASSIGNED = "not assigned"


class EventCause(StrEnum):
    """The `why` of events that need no sentence: it has exactly this value."""

    WEBHOOK = "a webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """The runner that GitHub names in an event. It may be another than the one claimed for the job, or
    no runner of ours (I23)."""

    github_id: GitHubRunnerId
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A job as one event, or one look-up, describes it.

    The first group of fields never changes. GitHub says when it created the job, but not when the job
    became queued: `queued_at` derives that.
    """

    host: HostId
    id: JobId
    run_id: int
    run_attempt: int
    name: str
    workflow: str | None
    labels: tuple[str, ...]
    created_at: datetime

    state: JobState
    #: GitHub has reported it as waiting for an approval.
    waited: bool = False
    #: The earliest time at which it is known to have been queued or further along.
    known_queued_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    conclusion: str | None = None
    executor: Executor | None = None

    def __post_init__(self) -> None:
        if self.state is JobState.IN_PROGRESS and self.started_at is None:
            raise ValueError(f"job {self.id} is in_progress without a start time")
        if self.state is JobState.COMPLETED and None in (self.completed_at, self.conclusion):
            raise ValueError(f"job {self.id} is completed without a time and a conclusion")

    @property
    def queued_at(self) -> datetime:
        """The start of its queue time (I76). A job is queued when it is created, unless it waited for
        an approval: then the first time counts at which it was known to be queued. A job that was first
        seen queued more than a day after its creation waited as well, and the report of that was lost:
        GitHub cancels a job that is queued for a day."""
        if self.known_queued_at is None:
            return self.created_at
        if self.waited or self.known_queued_at - self.created_at > LONGEST_QUEUED:
            return max(self.created_at, self.known_queued_at)
        return self.created_at


def merge(one: JobFacts, other: JobFacts) -> JobFacts:
    """The union of both. Where they differ, a rule decides that does not depend on their order: the
    greater state, the earliest time, the executor with the greatest id (GitHub counts upwards, so it
    gave the job to that one last)."""
    if (one.host, one.id) != (other.host, other.id):
        raise ValueError(f"jobs {one.id} and {other.id} are not the same job")
    completed_at, conclusion = (
        min(
            (facts.completed_at, facts.conclusion)
            for facts in (one, other)
            if facts.completed_at and facts.conclusion
        )
        if (one.completed_at or other.completed_at)
        else (None, None)
    )
    return replace(
        one,
        created_at=min(one.created_at, other.created_at),
        waited=one.waited or other.waited,
        known_queued_at=min(
            (t for t in (one.known_queued_at, other.known_queued_at) if t), default=None
        ),
        state=max(one.state, other.state, key=lambda state: state.rank),
        started_at=min((t for t in (one.started_at, other.started_at) if t), default=None),
        completed_at=completed_at,
        conclusion=conclusion,
        executor=max(
            (e for e in (one.executor, other.executor) if e),
            key=lambda executor: (executor.github_id, executor.name),
            default=None,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why no pool serves a job that could be ours."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryFacts:
    """A repository under the name it has now; its id never changes."""

    github_id: int
    full_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A job's facts and whose it is. `served` is the pool its runners come from, or the reason why
    there are none."""

    facts: JobFacts
    account: AccountId
    repository: RepositoryFacts
    served: PoolId | Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class UnappliedEvent:
    """An event named our runner, and no legal transition leads from its state to the one the event
    implies. This is returned to the caller and left to recovery, never swallowed."""

    runner: RunnerId
    name: RunnerName
    pod_name: PodName
    state: RunnerState
    job: JobId
    job_state: JobState
