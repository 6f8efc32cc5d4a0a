"""The sentences of `paddock why`, for the API and the dashboard: all are told the same."""

from __future__ import annotations

from uuid import UUID

from paddock.domain.dossiers import JobDossier
from paddock.domain.ids import RunnerId
from paddock.domain.thresholds import Thresholds
from paddock.ports import Clock
from paddock.ports.dossiers import Dossiers
from paddock.stories import Story, tell


class Teller:
    def __init__(self, dossiers: Dossiers, clock: Clock, thresholds: Thresholds) -> None:
        self._dossiers = dossiers
        self._clock = clock
        self._thresholds = thresholds

    async def job(self, job: int, *, host: str) -> Story | None:
        for dossier in await self._dossiers.find_dossiers(str(job)):
            if isinstance(dossier, JobDossier) and dossier.job.host_name == host:
                return tell(dossier, now=self._clock.now(), thresholds=self._thresholds)
        return None

    async def runner(self, runner: UUID) -> Story | None:
        dossier = await self._dossiers.runner_dossier(RunnerId(runner))
        if dossier is None:
            return None
        return tell(dossier, now=self._clock.now(), thresholds=self._thresholds)
