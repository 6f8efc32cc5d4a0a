"""What incoming jobs are judged by, the trust in their code included, and which refused jobs a changed
set of pools takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddock.domain.ids import AccountId, AppId, HostId, RepositoryId
from paddock.domain.jobs.facts import JobFacts, JobReport, Refusal, RepositoryFacts
from paddock.domain.jobs.intake import IntakeContext, KnownPool, RefusedJob
from paddock.domain.jobs.labels import LabelSet
from paddock.domain.jobs.trust import Trust, TrustQuestion
from paddock.domain.names import PoolName
from paddock.store.jobs import Jobs, place
from paddock.store.sql import converted, named

_SQL = named("intake")


class Intake(Jobs):
    async def intake_context(self, installations: Iterable[tuple[HostId, int]]) -> IntakeContext:
        asked = sorted(set(installations))
        accounts = await self._database.rows(
            *_SQL["accounts"](
                hosts=[host for host, _ in asked], installations=[number for _, number in asked]
            )
        )
        pools = await self._database.rows(*_SQL["pools"]())
        return IntakeContext(
            accounts={
                (HostId(row["host_id"]), row["github_id"]): AccountId(row["account_id"])
                for row in accounts
            },
            pools={
                PoolName(row["name"]): converted(
                    KnownPool,
                    row,
                    labels=LabelSet.of(row["labels"]),
                    in_accounts=frozenset(row["in_accounts"]) if row["runner_group"] else None,
                )
                for row in pools
            },
        )

    async def our_runners(
        self, named: Sequence[tuple[AccountId, str]]
    ) -> frozenset[tuple[AccountId, str]]:
        rows = await self._database.rows(
            *_SQL["ours"](
                accounts=[account for account, _ in named], names=[name for _, name in named]
            )
        )
        return frozenset((AccountId(row["account_id"]), row["name"]) for row in rows)

    async def refused_jobs(
        self, limit: int, *, after: RefusedJob | None = None
    ) -> list[RefusedJob]:
        host, job = (after.facts.host, after.facts.id) if after is not None else (0, 0)
        rows = await self._database.rows(
            *_SQL["refused"](limit=limit, now=self._clock.now(), after_host=host, after_job=job)
        )
        return [
            converted(
                RefusedJob,
                row,
                facts=converted(JobFacts, row),
                repository=converted(RepositoryFacts, row),
            )
            for row in rows
        ]

    async def adopt_jobs(self, reports: Sequence[JobReport]) -> int:
        served = [report for report in reports if not isinstance(report.served, Refusal)]
        if not served:
            return 0
        async with self._database.transaction() as connection:
            places = await place(connection, served, self._clock.now())
            tag = await connection.execute(
                *_SQL["adopt"](
                    hosts=[report.facts.host for report in served],
                    jobs=[report.facts.id for report in served],
                    keys=[row["key_id"] for row in places],
                ),
            )
        return int(tag.split()[-1])

    async def trust_questions(
        self, apps: Sequence[AppId], *, unreadable: Sequence[RepositoryId] = (), limit: int
    ) -> list[TrustQuestion]:
        rows = await self._database.rows(
            *_SQL["trust_questions"](apps=apps, limit=limit, unreadable=list(unreadable))
        )
        return [converted(TrustQuestion, row) for row in rows]

    async def note_trust(self, jobs: Sequence[TrustQuestion], trust: Trust) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["note_trust"](
                    hosts=[job.host for job in jobs],
                    jobs=[job.job for job in jobs],
                    trusted=[trust.trusted] * len(jobs),
                    whys=[trust.why] * len(jobs),
                ),
            )
            if trust.trusted:
                await connection.execute(*_SQL["review_refused"]())
