"""The sentences of `paddock why`, the same for the API, the dashboard and lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from paddock.domain.ids import JobId
from paddock.domain.reading.details import JobDetails, PassedOver, RunnerDetails
from paddock.domain.reading.filters import JobFilter, Page, Paging
from paddock.domain.reading.overview import Overview, WaitingJob
from paddock.domain.reading.rows import JobLine
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.states import JobState
from paddock.ports import Clock
from paddock.ports.reading import Reading
from paddock.stories import Story, tell
from paddock.stories.waiting import tell_wait

J = TypeVar("J", JobLine, WaitingJob)


class Explanations:
    def __init__(self, reading: Reading, clock: Clock, thresholds: Thresholds) -> None:
        self._reading = reading
        self._clock = clock
        self._thresholds = thresholds

    def tell(self, details: JobDetails | RunnerDetails | PassedOver) -> Story:
        return tell(details, now=self._clock.now(), thresholds=self._thresholds)

    async def find(self, name: str) -> list[Story]:
        """What is known by that name, as in `Reading.find`; of a job without a row, what its webhook
        said."""
        found = await self._reading.find(name)
        if not found and name.isascii() and name.isdigit() and len(name) < 19:
            passed = await self._reading.passed_over(JobId(int(name)))
            return [] if passed is None else [self.tell(passed)]
        return [self.tell(each) for each in found]

    async def list_jobs(self, wanted: JobFilter, paging: Paging) -> Page[JobLine]:
        page = await self._reading.jobs(wanted, paging)
        return Page(items=await self._explained(page.items), next=page.next)

    async def overview(self) -> Overview:
        seen = await self._reading.overview()
        return msgspec.structs.replace(seen, oldest=await self._explained(seen.oldest))

    async def _explained(self, jobs: Sequence[J]) -> list[J]:
        """The same jobs, with the reason for each queued one. One read for all of them."""
        queued = [job for job in jobs if _is_queued(job)]
        if not queued:
            return list(jobs)
        found = await self._reading.waiting_jobs([(job.host, job.id) for job in queued])
        now = self._clock.now()
        why = {
            (each.job.host, each.job.id): tell_wait(each, now, self._thresholds).why
            for each in found
        }
        return [
            msgspec.structs.replace(job, waits_because=why.get((job.host, job.id))) for job in jobs
        ]


def _is_queued(job: JobLine | WaitingJob) -> bool:
    return not isinstance(job, JobLine) or job.status is JobState.QUEUED
