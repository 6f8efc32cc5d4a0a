"""What incoming jobs are judged by, and which refused jobs a changed set of pools takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddock.domain.ids import AccountId, HostId, JobId, PoolId
from paddock.domain.intake import IntakeContext, KnownPool, RefusedJob
from paddock.domain.jobs import JobFacts, JobReport, Refusal, RepositoryFacts
from paddock.domain.labels import LabelSet
from paddock.domain.names import PoolName
from paddock.domain.states import JobState
from paddock.domain.trust import Forks
from paddock.store.jobs import Jobs, place
from paddock.store.sql import named

_SQL = named("intake")


class Intake(Jobs):
    async def surroundings(self, installations: Iterable[tuple[HostId, int]]) -> IntakeContext:
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
                PoolName(row["name"]): KnownPool(
                    id=PoolId(row["id"]),
                    labels=LabelSet.of(row["labels"]),
                    runner_group=row["runner_group"],
                    in_accounts=frozenset(row["in_accounts"]) if row["runner_group"] else None,
                    forks=Forks(row["forks"]),
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
            RefusedJob(
                facts=JobFacts(
                    host=HostId(row["host_id"]),
                    id=JobId(row["id"]),
                    run_id=row["run_id"],
                    run_attempt=row["run_attempt"],
                    name=row["name"],
                    workflow=row["workflow"],
                    labels=tuple(row["labels"]),
                    created_at=row["created_at"],
                    waited=row["waited"],
                    known_queued_at=row["known_queued_at"],
                    state=JobState(row["state"]),
                ),
                account=AccountId(row["account_id"]),
                repository=RepositoryFacts(github_id=row["github_id"], full_name=row["full_name"]),
                trusted=row["trusted"],
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
