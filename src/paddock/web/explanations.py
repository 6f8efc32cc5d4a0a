"""The sentences of `paddock why`, the same for the API, the dashboard and lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

import msgspec

from paddock.domain.dossiers import JobDossier
from paddock.domain.ids import JobId, RunnerId
from paddock.domain.overview import Overview, WaitingJob
from paddock.domain.reading import JobFilter, JobLine, Page, Paging
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.states import JobState
from paddock.ports import Clock
from paddock.ports.dossiers import Dossiers
from paddock.ports.reading import Reading
from paddock.stories import Story, tell
from paddock.stories.waiting import tell_wait

J = TypeVar("J", JobLine, WaitingJob)


class Explanations:
    def __init__(self, dossiers: Dossiers, clock: Clock, thresholds: Thresholds) -> None:
        self._dossiers = dossiers
        self._clock = clock
        self._thresholds = thresholds

    async def job(self, job: int, *, host: str) -> Story | None:
        for dossier in await self._dossiers.find_dossiers(str(job)):
            if isinstance(dossier, JobDossier) and dossier.job.host_name == host:
                return tell(dossier, now=self._clock.now(), thresholds=self._thresholds)
        return None

    async def list_jobs(self, reading: Reading, wanted: JobFilter, paging: Paging) -> Page[JobLine]:
        page = await reading.jobs(wanted, paging)
        return Page(items=await self._explained(page.items), next=page.next)

    async def overview(self, reading: Reading) -> Overview:
        seen = await reading.overview()
        return msgspec.structs.replace(seen, oldest=await self._explained(seen.oldest))

    async def _explained(self, jobs: Sequence[J]) -> list[J]:
        """The same jobs, with the reason for each queued one. One read for all of them."""
        queued = [job for job in jobs if _is_queued(job)]
        if not queued:
            return list(jobs)
        found = await self._dossiers.waiting_dossiers([(job.host, job.id) for job in queued])
        now = self._clock.now()
        why = {
            (each.job.host_name, each.job.id): tell_wait(each, now, self._thresholds).why
            for each in found
        }
        return [
            msgspec.structs.replace(job, waits_because=why.get((job.host, JobId(job.id))))
            for job in jobs
        ]

    async def runner(self, runner: UUID) -> Story | None:
        dossier = await self._dossiers.runner_dossier(RunnerId(runner))
        if dossier is None:
            return None
        return tell(dossier, now=self._clock.now(), thresholds=self._thresholds)


def _is_queued(job: JobLine | WaitingJob) -> bool:
    return not isinstance(job, JobLine) or job.status is JobState.QUEUED
