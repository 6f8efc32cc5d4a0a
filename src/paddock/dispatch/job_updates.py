"""Apply jobs that were read from GitHub, by a look-up or a list, like a webhook's jobs."""

from __future__ import annotations

from collections.abc import Container, Sequence

import structlog

from paddock.dispatch.delivery_writer import log_job
from paddock.domain.github.objects import JobRecord
from paddock.domain.jobs.comparison import ActiveRepository
from paddock.domain.jobs.facts import JobReport, RepositoryFacts
from paddock.domain.jobs.intake import judge
from paddock.github.facts import UnusableFacts, facts_of_record
from paddock.log_events import owner_of
from paddock.ports import Clock
from paddock.ports.errors import StoreError
from paddock.ports.jobs import JobUpdateStore

_log = structlog.get_logger()


class JobUpdates:
    def __init__(self, store: JobUpdateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def apply_jobs(
        self,
        repository: ActiveRepository,
        jobs: Sequence[JobRecord],
        known: Container[int],
        *,
        why: str,
    ) -> list[JobReport]:
        """Write what GitHub says of these jobs; return the reports that were written. A known job is
        always written, even if its pool was deleted."""
        reports = await self._judge(repository, jobs, known) if jobs else []
        if not reports:
            return []
        try:
            await self._write(reports, why)
        except StoreError:
            raise
        except Exception as error:
            _log.warning("job.batch_failed", error=str(error))
            for report in reports:
                await self._write_alone(report, why)
        return reports

    async def _judge(
        self, repository: ActiveRepository, jobs: Sequence[JobRecord], known: Container[int]
    ) -> list[JobReport]:
        around = await self._store.intake_context([(repository.host, repository.installation)])
        told = RepositoryFacts(github_id=repository.github_id, full_name=repository.full_name)
        ours: list[JobReport] = []
        foreign: list[JobReport] = []
        for job in jobs:
            try:
                facts = facts_of_record(repository.host, job, read_at=self._clock.now())
            except UnusableFacts as error:
                _log.warning(
                    "job.unreadable",
                    account=owner_of(repository.full_name),
                    repository=repository.full_name,
                    error=str(error),
                )
                continue
            report, could_be_ours = judge(facts, told, repository.account, around)
            (ours if could_be_ours or facts.id in known else foreign).append(report)
        return ours + await self._on_our_runners(foreign)

    async def _on_our_runners(self, foreign: Sequence[JobReport]) -> list[JobReport]:
        named = [
            ((report.account, report.facts.executor.name), report)
            for report in foreign
            if report.facts.executor is not None
        ]
        found = await self._store.our_runners([name for name, _ in named]) if named else ()
        return [report for name, report in named if name in found]

    async def _write(self, reports: Sequence[JobReport], why: str) -> None:
        unplaced = await self._store.apply_jobs(reports, why=why)
        for report in reports:
            log_job(report)
        for each in unplaced:
            _log.warning(
                "job.runner_conflict",
                job=each.job,
                runner=each.name,
                pod=each.pod_name,
                state=each.state,
                job_state=each.job_state,
            )

    async def _write_alone(self, report: JobReport, why: str) -> None:
        """One job that cannot be written must not stop the others (I13)."""
        try:
            await self._write([report], why)
        except StoreError:
            raise
        except Exception as error:
            _log.warning(
                "job.unwritable",
                job=report.facts.id,
                account=owner_of(report.repository.full_name),
                repository=report.repository.full_name,
                error=str(error),
            )
