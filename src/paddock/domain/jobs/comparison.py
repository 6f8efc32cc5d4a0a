"""Comparing paddock's jobs with GitHub's lists: which repositories, how often, what differs.

Some webhooks are never sent, so no redelivery brings them (I8). A job that GitHub has queued and
paddock does not know would wait until GitHub cancels it. Comparing costs requests that minting,
deregistration and recovery need more, so it slows down as the quota shrinks and stops while a reserve
is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from paddock.domain.github.objects import ActiveRuns, JobRecord
from paddock.domain.ids import AccountId, AppId, HostId, JobId, RepositoryId
from paddock.domain.states import JobState

#: GitHub cancels a job that was queued for a day: a repository that has been silent for longer has
#: nothing that could still be served.
RECENT: Final = timedelta(hours=24)
#: Jobs come in bursts: a repository that had one within this time is likely to have the next.
ACTIVE_FOR: Final = timedelta(hours=1)

#: With a full quota. A lost webhook then delays its job by two minutes. A hundred repositories without
#: runs cost 6,000 requests an hour: about where the quota begins to shrink and slow this down.
FASTEST: Final = timedelta(minutes=2)
#: With little left. GitHub's own time-outs are longer.
SLOWEST: Final = timedelta(minutes=30)
#: A repository that is not active is compared this many times less often.
CALMER: Final = 5
#: The share of an hourly quota that is reserved for requests that cannot wait.
RESERVE: Final = 0.2

#: GitHub's lists lag behind its events by some seconds.
LISTED_WITHIN: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRepository:
    """A repository with recent activity or jobs that have not ended, and whom to ask about it."""

    id: RepositoryId
    host: HostId
    github_id: int
    full_name: str
    account: AccountId
    app: AppId
    installation: int
    active_at: datetime | None
    compared_at: datetime | None
    has_open_jobs: bool

    @property
    def asker(self) -> tuple[AppId, int]:
        """Whose quota pays for it."""
        return self.app, self.installation

    def is_active(self, now: datetime) -> bool:
        recently = self.active_at is not None and now - self.active_at <= ACTIVE_FOR
        return self.has_open_jobs or recently


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJob:
    """A job that has not ended as far as is known here; `since` is its last change."""

    id: JobId
    state: JobState
    since: datetime


def interval(left: float) -> timedelta | None:
    """How often to compare when this share of the quota is left (0 to 1): in proportion to what exceeds
    the reserve, and not at all below it."""
    share = (left - RESERVE) / (1 - RESERVE)
    if share <= 0:
        return None
    return min(FASTEST / min(share, 1.0), SLOWEST)


def due(
    repositories: Iterable[ActiveRepository],
    *,
    left: Mapping[tuple[AppId, int], float],
    now: datetime,
) -> list[ActiveRepository]:
    """The repositories to compare now, most overdue first, measured in their own intervals. Those never
    compared come before all others, the recently active first."""
    overdue = [
        (-late, _silence(each, now), each.id, each)
        for each in repositories
        if (late := _lateness(each, left.get(each.asker, 1.0), now)) >= 1
    ]
    return [each for *_, each in sorted(overdue, key=lambda entry: entry[:3])]


def _lateness(repository: ActiveRepository, left: float, now: datetime) -> float:
    """How long it has been since the last comparison, in intervals."""
    wanted = interval(left)
    if wanted is None:
        return 0.0
    if repository.compared_at is None:
        return math.inf
    if not repository.is_active(now):
        wanted = min(wanted * CALMER, SLOWEST)
    return (now - repository.compared_at) / wanted


def _silence(repository: ActiveRepository, now: datetime) -> float:
    at = repository.active_at
    return math.inf if at is None else (now - at).total_seconds()


def news(listed: Iterable[JobRecord], known: Mapping[JobId, JobState]) -> list[JobRecord]:
    """Listed jobs that paddock does not know, or that are further along at GitHub than here."""
    return [
        job
        for job in listed
        if job.state is not None and (job.id not in known or job.state.rank > known[job.id].rank)
    ]


def unlisted(runs: ActiveRuns, open_jobs: Iterable[OpenJob], *, now: datetime) -> list[JobId]:
    """Jobs that should be in the list and are not: GitHub has to be asked for each. Absence from the
    list proves nothing, least of all from an incomplete one (I29). A waiting job's run is neither among
    the queued nor among the in_progress runs."""
    if not runs.complete:
        return []
    listed = {job.id for _, jobs in runs.runs for job in jobs}
    return sorted(
        job.id
        for job in open_jobs
        if job.state in (JobState.QUEUED, JobState.IN_PROGRESS)
        and now - job.since >= LISTED_WITHIN
        and job.id not in listed
    )
