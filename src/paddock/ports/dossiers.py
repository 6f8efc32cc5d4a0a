"""What is on file about a job or a runner, for those who ask why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from paddock.domain.dossiers import JobDossier, PassedOver, RunnerDossier
from paddock.domain.ids import HostId, JobId, RunnerId


class Dossiers(Protocol):
    """Each is read at one moment: what it says of a job and of its runners fits together."""

    async def find_dossiers(self, name: str) -> Sequence[JobDossier | RunnerDossier]:
        """By a job's number, a Pod's name, or a name that GitHub knows or knew a runner by. Several
        if two hosts have a job of that number (I71)."""
        ...

    async def job_dossier(self, host: HostId, job: JobId) -> JobDossier | None: ...

    async def runner_dossier(self, runner: RunnerId) -> RunnerDossier | None: ...

    async def waiting_dossiers(self, jobs: Collection[tuple[str, int]]) -> Sequence[JobDossier]:
        """Of these jobs, each by its host's name and its number, those that are queued: with what
        they wait for, and without their history. One read, however many they are; `ahead` is exact
        for those that supply is on its way to, and the least it can be for the others."""
        ...

    async def passed_over(self, job: JobId) -> PassedOver | None:
        """What a webhook told of a job that nothing was done for."""
        ...
