"""What a comparison of jobs with GitHub needs to read, and the time of the last comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from paddock.domain.comparison import ActiveRepository, OpenJob
from paddock.domain.ids import AppId, HostId, JobId, RepositoryId
from paddock.domain.states import JobState
from paddock.store.base import Part
from paddock.store.sql import converted, named

_SQL = named("comparison")


class Comparisons(Part):
    async def active_repositories(
        self, apps: Sequence[AppId], *, since: datetime
    ) -> list[ActiveRepository]:
        rows = await self._database.rows(*_SQL["repositories"](since=since, apps=apps))
        return [converted(ActiveRepository, row) for row in rows]

    async def open_jobs(self, repository: RepositoryId) -> list[OpenJob]:
        rows = await self._database.rows(*_SQL["open_jobs"](repository=repository))
        return [converted(OpenJob, row) for row in rows]

    async def job_states(self, host: HostId, jobs: Sequence[JobId]) -> Mapping[JobId, JobState]:
        rows = await self._database.rows(*_SQL["states"](host=host, jobs=jobs))
        return {JobId(row["id"]): JobState(row["state"]) for row in rows}

    async def note_comparison(self, repository: RepositoryId) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["compared"](repository=repository, now=self._clock.now())
            )
