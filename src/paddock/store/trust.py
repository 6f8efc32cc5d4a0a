"""Whether a job runs trusted code, for pools that require it."""

from __future__ import annotations

from collections.abc import Sequence

from paddock.domain.ids import AppId, RepositoryId
from paddock.domain.trust import Trust, TrustQuestion
from paddock.store.base import Part
from paddock.store.sql import converted, named

_SQL = named("trust")


class Trusting(Part):
    async def trust_questions(
        self, apps: Sequence[AppId], *, unreadable: Sequence[RepositoryId] = (), limit: int
    ) -> list[TrustQuestion]:
        rows = await self._database.rows(
            *_SQL["questions"](apps=apps, limit=limit, unreadable=list(unreadable))
        )
        return [converted(TrustQuestion, row) for row in rows]

    async def note_trust(self, jobs: Sequence[TrustQuestion], trust: Trust) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["note"](
                    hosts=[job.host for job in jobs],
                    jobs=[job.job for job in jobs],
                    trusted=[trust.trusted] * len(jobs),
                    whys=[trust.why] * len(jobs),
                ),
            )
            if trust.trusted:
                await connection.execute(*_SQL["review"]())
