"""Jobs on their way into the store: from webhooks, and from questions to GitHub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from paddock.domain.github.backoffs import PausedScope
from paddock.domain.ids import AccountId, AppId, HostId, JobId, RepositoryId
from paddock.domain.jobs.comparison import ActiveRepository, OpenJob
from paddock.domain.jobs.facts import JobReport, UnappliedEvent
from paddock.domain.jobs.intake import IntakeContext, RefusedJob
from paddock.domain.jobs.trust import Trust, TrustQuestion
from paddock.domain.recovery.evidence import JobWord
from paddock.domain.recovery.records import ActionTaken
from paddock.domain.states import JobState


class IncomingJobStore(Protocol):
    """What decides whether an incoming job is demand."""

    async def intake_context(
        self, installations: Iterable[tuple[HostId, int]]
    ) -> IntakeContext: ...

    async def our_runners(
        self, named: Sequence[tuple[AccountId, str]]
    ) -> frozenset[tuple[AccountId, str]]:
        """Which of these runner names are ours, each within its own tenant (I5)."""
        ...


class JobUpdateStore(IncomingJobStore, Protocol):
    """Jobs that were read from GitHub."""

    async def apply_jobs(
        self, reports: Iterable[JobReport], *, why: str
    ) -> list[UnappliedEvent]: ...


class RefusedJobStore(IncomingJobStore, Protocol):
    """Jobs that no pool took when they came."""

    async def refused_jobs(
        self, limit: int, *, after: RefusedJob | None = None
    ) -> list[RefusedJob]:
        """The next ones `after` this, by number."""
        ...

    async def adopt_jobs(self, reports: Sequence[JobReport]) -> int:
        """Refused jobs that a pool takes now. Returns how many became demand."""
        ...


class AskedJobStore(Protocol):
    """Which jobs GitHub can be asked about, and its answers."""

    async def unreadable_repositories(
        self, paused: Sequence[PausedScope], *, apps: Sequence[AppId]
    ) -> list[RepositoryId]:
        """The repositories in these scopes. Each account is read through the first of the Apps."""
        ...

    async def note_job_check(
        self, host: HostId, job: JobId, *, answer: JobWord, waits_because: str | None = None
    ) -> int:
        """Record GitHub's answer about a job; returns how often in a row GitHub gave it."""
        ...


class TrustStore(AskedJobStore, Protocol):
    """Whether waiting jobs run trusted code."""

    async def trust_questions(
        self, apps: Sequence[AppId], *, unreadable: Sequence[RepositoryId] = (), limit: int
    ) -> list[TrustQuestion]:
        """Waiting jobs whose runs were not looked up, of pools that ask whose code they run; none of
        `unreadable` repositories. The oldest of each account in turn (I26)."""
        ...

    async def note_trust(self, jobs: Sequence[TrustQuestion], trust: Trust) -> None: ...


class ActionStore(Protocol):
    """The record of repairs, each with its evidence."""

    async def record_action(self, taken: ActionTaken) -> None: ...

    async def record_actions(self, taken: Sequence[ActionTaken]) -> None: ...


class ComparisonStore(JobUpdateStore, AskedJobStore, ActionStore, Protocol):
    """The jobs known here, to compare with those that GitHub lists."""

    async def active_repositories(
        self, apps: Sequence[AppId], *, since: datetime
    ) -> list[ActiveRepository]:
        """Those with a job after `since`, or with a job that has not ended; only those that one of
        these Apps can read."""
        ...

    async def open_jobs(self, repository: RepositoryId) -> list[OpenJob]: ...

    async def job_states(self, host: HostId, jobs: Sequence[JobId]) -> Mapping[JobId, JobState]:
        """Those of these jobs that are known."""
        ...

    async def note_comparison(self, repository: RepositoryId) -> None: ...
