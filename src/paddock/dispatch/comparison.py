"""Find jobs that no webhook reported, by comparing our jobs with GitHub's lists.

For each recently active repository the comparison reads GitHub's queued and in_progress runs with their
jobs. A job that is unknown here, or in a later state at GitHub, is applied like a webhook's job. A job
that is open here and missing in GitHub's list is looked up by number: its completion was missed, or the
list lags. A failed or incomplete read proves nothing (I29). The comparison never lowers a state and
never deletes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

import msgspec
import structlog
from prometheus_client import Counter

from paddock.dispatch.installations import RegisteredApp
from paddock.dispatch.job_updates import JobUpdates
from paddock.dispatch.pauses import Pauses, Place
from paddock.domain.github.errors import BackOff, GitHubError, Kind
from paddock.domain.github.objects import (
    Absent,
    InstallationId,
    InstallationKey,
    JobRecord,
    Scope,
    repository_scope,
)
from paddock.domain.ids import AppId, JobId, RepositoryId
from paddock.domain.jobs.comparison import (
    RECENT,
    ActiveRepository,
    OpenJob,
    due,
    interval,
    news,
    unlisted,
)
from paddock.domain.jobs.facts import JobReport
from paddock.domain.recovery.diagnosis import diagnose
from paddock.domain.recovery.evidence import JobEvidence, JobWord
from paddock.domain.recovery.records import ActionOutcome, ActionTaken
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.states import JobState
from paddock.github.budget import Budget
from paddock.log_events import owner_of
from paddock.ports import Clock, GitHub
from paddock.ports.jobs import ComparisonStore

_log = structlog.get_logger()

#: The longest a repository that is due waits for its turn.
EVERY: Final = 30.0
#: After this the order is decided again; a repository with many runs takes some seconds.
REPOSITORIES: Final = 100
#: Jobs of one repository looked up by number in one comparison. There are many only after an outage,
#: and redelivery reports most of those.
LOOK_UPS: Final = 20

COMPARED = Counter(
    "paddock_repositories_compared_total",
    "Repositories compared with GitHub: in whole, in part, or failed.",
    ["outcome"],
)
FOUND = Counter(
    "paddock_jobs_found_by_comparison_total",
    "Jobs whose webhook was missed: not known at all, or further at GitHub than here.",
    ["missed"],
)


class Comparison:
    def __init__(
        self,
        *,
        store: ComparisonStore,
        github: GitHub,
        budget: Budget,
        clock: Clock,
        apps: Sequence[RegisteredApp],
    ) -> None:
        self._store = store
        self._github = github
        self._budget = budget
        self._clock = clock
        self._apps = {app.app: app for app in apps}
        self._pauses = Pauses(clock)
        self._updates = JobUpdates(store, clock)
        #: Where the last look-ups in a repository stopped, so that each job gets its turn.
        self._looked_up: dict[RepositoryId, JobId] = {}

    async def run(self) -> None:
        while True:
            await self.round()
            await self._clock.sleep(EVERY)

    async def round(self) -> int:
        """Compare the repositories that are due; return how many GitHub was asked about."""
        now = self._clock.now()
        active = await self._store.active_repositories(list(self._apps), since=now - RECENT)
        left: dict[tuple[AppId, int], float] = {}
        for app in self._apps:
            left |= await self._quotas(app)
        ready = [
            each
            for each in due(active, left=left, now=now)
            if not self._pauses.active(self._place(each))
        ]
        asked = 0
        for repository in ready[:REPOSITORIES]:
            if not self._pauses.active(self._place(repository)) and await self._affordable(
                repository
            ):
                await self._try(repository)
                asked += 1
        return asked

    async def _quotas(self, app: AppId) -> Mapping[tuple[AppId, int], float]:
        quotas = await self._budget.quotas_left(self._apps[app].key)
        return {(app, whose): left for whose, left in quotas.items() if whose is not None}

    async def _affordable(self, repository: ActiveRepository) -> bool:
        """Checked before each repository: the previous one may have had hundreds of runs."""
        quotas = await self._quotas(repository.app)
        return interval(quotas.get(repository.asker, 1.0)) is not None

    async def _try(self, repository: ActiveRepository) -> None:
        try:
            scope = repository_scope(self._who(repository).host, repository.full_name)
        except ValueError as error:
            _log.warning("comparison.unreadable", repository=repository.full_name, error=str(error))
            await self._store.note_comparison(repository.id)
            return
        try:
            complete = await self._compare(repository, scope)
        except GitHubError as error:
            COMPARED.labels("failed").inc()
            if self._pauses.begin(self._place(repository), error.failure, at_least=EVERY):
                _log.warning(
                    "comparison.failed",
                    account=owner_of(repository.full_name),
                    repository=repository.full_name,
                    error=error.failure.sentence,
                )
            return
        COMPARED.labels("in whole" if complete else "in part").inc()
        self._pauses.end(self._place(repository))

    async def _compare(self, repository: ActiveRepository, scope: Scope) -> bool:
        # Our jobs are read first. A job created between the two reads is then only in GitHub's list,
        # and need not be looked up.
        open_jobs = await self._store.open_jobs(repository.id)
        now = self._clock.now()
        try:
            runs = await self._github.list_active_runs(self._who(repository), scope)
        except GitHubError as error:
            if error.failure.kind is Kind.NOT_FOUND:
                await self._doubt(repository, open_jobs)
            raise
        listed = [job for _, jobs in runs.runs for job in jobs]
        known = dict(await self._store.job_states(repository.host, [job.id for job in listed]))
        await self._apply(repository, news(listed, known), known)
        known |= {job.id: job.state for job in open_jobs}
        for job in self._turn(repository.id, unlisted(runs, open_jobs, now=now)):
            await self._look_up(repository, scope, job, known)
        await self._store.note_comparison(repository.id)
        return runs.complete

    async def _doubt(self, repository: ActiveRepository, jobs: Sequence[OpenJob]) -> None:
        """The repository was deleted, or cannot be read for now. Mark its jobs that have not begun:
        recovery asks about them and finds out which is true (I66). About jobs in progress recovery asks
        in any case."""
        not_begun = [job.id for job in jobs if job.state is not JobState.IN_PROGRESS]
        for job in self._turn(repository.id, not_begun):
            await self._store.note_job_check(repository.host, job, answer=JobWord.UNREADABLE)

    def _turn(self, repository: RepositoryId, jobs: Sequence[JobId]) -> list[JobId]:
        """The next few jobs, round robin, so that jobs that stay open do not block the others."""
        last = self._looked_up.pop(repository, JobId(0))
        turn = sorted(jobs, key=lambda job: (job <= last, job))[:LOOK_UPS]
        if len(turn) < len(jobs):
            self._looked_up[repository] = turn[-1]
        return turn

    async def _look_up(
        self,
        repository: ActiveRepository,
        scope: Scope,
        job: JobId,
        known: Mapping[JobId, JobState],
    ) -> None:
        try:
            found = await self._github.get_job(self._who(repository), scope, job)
        except GitHubError as error:
            if error.failure.backs_off is not BackOff.JOB:
                raise
            return
        if isinstance(found, Absent):
            # Recovery asks again, and then acts.
            await self._store.note_job_check(repository.host, job, answer=JobWord.ABSENT)
        else:
            await self._apply(repository, news([found], known), known)

    async def _apply(
        self, repository: ActiveRepository, jobs: Sequence[JobRecord], known: Container[JobId]
    ) -> None:
        reports = await self._updates.apply_jobs(
            repository, jobs, known, why="compared with GitHub"
        )
        for report in reports:
            FOUND.labels("a later state" if report.facts.id in known else "the job").inc()
            if report.facts.id not in known:
                await self._record(report)
        if reports:
            _log.info(
                "comparison.jobs_found",
                account=owner_of(repository.full_name),
                repository=repository.full_name,
                jobs=len(reports),
            )

    async def _record(self, report: JobReport) -> None:
        """Record the action of one of recovery's rules, because the comparison reads GitHub's list."""
        facts = report.facts
        evidence = JobEvidence(state=None, word=JobWord(facts.state))
        verdict = diagnose(evidence, Thresholds())
        if verdict.rule is not None:
            await self._store.record_action(
                ActionTaken(
                    rule=verdict.rule,
                    action=verdict.action,
                    outcome=ActionOutcome.DONE,
                    why=verdict.why,
                    evidence=msgspec.json.encode(evidence).decode(),
                    job=(facts.host, facts.id),
                )
            )

    def _place(self, repository: ActiveRepository) -> Place:
        return Place(
            app=self._apps[repository.app].key,
            installation=repository.installation,
            repository=repository.full_name,
        )

    def _who(self, repository: ActiveRepository) -> InstallationKey:
        app = self._apps[repository.app].key
        return InstallationKey(
            host=app.host, app=app.app, installation=InstallationId(repository.installation)
        )
