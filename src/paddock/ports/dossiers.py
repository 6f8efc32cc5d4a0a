"""All that is recorded about a job or a runner, for operators who ask why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from paddock.domain.dossiers import JobDossier, PassedOver, RunnerDossier
from paddock.domain.ids import HostId, JobId, RunnerId


class Dossiers(Protocol):
    """Each dossier is read at one moment, so its job and its runners are consistent."""

    async def find_dossiers(self, name: str) -> Sequence[JobDossier | RunnerDossier]:
        """By a job's number, a Pod's name, or a name that GitHub knows or knew a runner by. Several
        if two hosts have a job of that number (I71)."""
        ...

    async def job_dossier(self, host: HostId, job: JobId) -> JobDossier | None: ...

    async def runner_dossier(self, runner: RunnerId) -> RunnerDossier | None: ...

    async def waiting_dossiers(self, jobs: Collection[tuple[str, int]]) -> Sequence[JobDossier]:
        """The queued ones of these jobs (host's name, number), with what they wait for and without
        their history. One read for all of them. `ahead` is exact for jobs that a runner is on its way
        to, and a lower bound for the others."""
        ...

    async def passed_over(self, job: JobId) -> PassedOver | None:
        """What a webhook said of a job for which paddock did nothing."""
        ...
