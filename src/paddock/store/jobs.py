"""Jobs: a report from GitHub is merged into the job's row, and moves the runner it names.

The job's row, the runner's row and both events commit together (I14). A batch is merged in memory
first, so that each job is written once. The last methods serve the comparison with GitHub's own lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import asyncpg

from paddock.domain.ids import AppId, HostId, JobId, RepositoryId
from paddock.domain.jobs.comparison import ActiveRepository, OpenJob
from paddock.domain.jobs.facts import JobFacts, JobReport, Refusal, UnappliedEvent, merge
from paddock.domain.states import JobState, RunnerState
from paddock.store.base import StorePart
from paddock.store.database import Connection, retrying
from paddock.store.sql import converted, named

_SQL = named("jobs")
_RUNNERS = named("runners")
_POOLS = named("sizing")

#: Why a job has no pool if it waited for a pool that was deleted.
POOL_DELETED: Final = "pool deleted"


class Jobs(StorePart):
    @retrying
    async def apply_jobs(self, reports: Iterable[JobReport], *, why: str) -> list[UnappliedEvent]:
        merged = merge_reports(reports)
        if not merged:
            return []
        async with self._database.transaction() as connection:
            return await self._apply(connection, merged, why)

    async def _apply(
        self, connection: Connection, reports: Sequence[JobReport], why: str
    ) -> list[UnappliedEvent]:
        now = self._clock.now()
        places = await place(connection, reports, now)
        columns = _columns(reports, places)
        await connection.execute(*_SQL["merge"](**columns, now=now, actor=self.actor, why=why))
        return await self._move_executors(connection, reports)

    async def demote_job(self, host: HostId, job: JobId, *, why: str) -> bool:
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                *_SQL["demote"](
                    host=host, job=job, now=self._clock.now(), actor=self.actor, why=why
                )
            )
            if row is not None and row["pool_id"] is not None:
                # The job's pool may have been deleted meanwhile; another pool may take the job.
                await connection.execute(
                    *_POOLS["refuse_jobs"](pools=[row["pool_id"]], refusal=POOL_DELETED)
                )
        return row is not None

    async def abandon_jobs(self, host: str, *, why: str) -> int:
        """Complete as stale all jobs of a host that have not ended: the host has forgotten them.
        Returns how many."""
        async with self._database.transaction() as connection:
            tag = await connection.execute(
                *_SQL["abandon"](host=host, now=self._clock.now(), actor=self.actor, why=why)
            )
        return int(tag.split()[-1])

    async def _move_executors(
        self, connection: Connection, reports: Sequence[JobReport]
    ) -> list[UnappliedEvent]:
        """`in_progress` makes the runner that GitHub names busy and `completed` makes it done, even if
        it was claimed for another job (I23), within the tenant of the event (I5)."""
        named = [report for report in reports if report.facts.executor is not None]
        if not named:
            return []
        rows = await connection.fetch(
            *_SQL["executors"](
                accounts=[report.account for report in named],
                github_ids=[
                    report.facts.executor and report.facts.executor.github_id for report in named
                ],
                names=[report.facts.executor and report.facts.executor.name for report in named],
            ),
        )
        ours = [(named[row["position"] - 1], row) for row in rows]
        await connection.execute(
            *_SQL["attribute"](
                hosts=[report.facts.host for report, _ in ours],
                jobs=[report.facts.id for report, _ in ours],
                runners=[row["id"] for _, row in ours],
            ),
        )
        busy = [(report, row) for report, row in ours if row["state"] == RunnerState.BUSY]
        if busy:
            await connection.execute(
                *_RUNNERS["name_jobs"](
                    runners=[row["id"] for _, row in busy],
                    jobs=[report.facts.id for report, _ in busy],
                ),
            )
        if ended := [row["id"] for _, row in ours if row["state"] == RunnerState.GONE]:
            await connection.execute(*_SQL["heard_of"](runners=ended))
        unplaced = []
        for report, row in ours:
            if not await self._move_executor(connection, report.facts, row):
                unplaced.append(
                    converted(
                        UnappliedEvent,
                        row,
                        runner=row["id"],
                        job=report.facts.id,
                        job_state=report.facts.state,
                    )
                )
        return unplaced

    async def _move_executor(
        self, connection: Connection, facts: JobFacts, row: asyncpg.Record
    ) -> bool:
        if facts.state is JobState.COMPLETED:
            step, why, past = "finish", "its job completed", {"done", "gone"}
        else:
            step, why, past = "occupy", "GitHub gave it a job", {"busy", "done", "gone"}
        if row["state"] in past or row["forced"]:
            return True
        moved = await connection.fetchrow(
            *_RUNNERS[step](
                runner=row["id"],
                generation=row["generation"],
                now=self._clock.now(),
                actor=self.actor,
                why=why,
                evidence=None,
                job=facts.id,
            )
        )
        return moved is not None

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


def merge_reports(reports: Iterable[JobReport]) -> list[JobReport]:
    merged: dict[tuple[HostId, JobId], JobReport] = {}
    for report in reports:
        identity = (report.facts.host, report.facts.id)
        known = merged.get(identity)
        merged[identity] = (
            report if known is None else replace(known, facts=merge(known.facts, report.facts))
        )
    return [merged[identity] for identity in sorted(merged)]


async def place(
    connection: Connection, reports: Sequence[JobReport], now: datetime
) -> Sequence[asyncpg.Record]:
    """Our own ids of each job's repository and key. New ones get an id; mostly all of them are known
    and one read is enough."""
    accounts = [report.account for report in reports]
    hosts = [report.facts.host for report in reports]
    repositories = [report.repository.github_id for report in reports]
    pools = [None if isinstance(report.served, Refusal) else report.served for report in reports]
    names = [report.repository.full_name for report in reports]
    asked = _SQL["places"](
        accounts=accounts,
        hosts=hosts,
        repositories=repositories,
        pools=pools,
        full_names=names,
        now=now,
    )
    places = await connection.fetch(*asked)
    if all(place["noted"] for place in places):
        return places
    told = {
        (report.facts.host, report.repository.github_id): (report.account, report.repository)
        for report in reports
    }
    await connection.execute(
        *_SQL["note_repositories"](
            hosts=[host for host, _ in told],
            github_ids=[repository for _, repository in told],
            accounts=[account for account, _ in told.values()],
            full_names=[repository.full_name for _, repository in told.values()],
            now=now,
        ),
    )
    await connection.execute(
        *_SQL["note_keys"](accounts=accounts, hosts=hosts, repositories=repositories, pools=pools)
    )
    return await connection.fetch(*asked)


def _columns(
    reports: Sequence[JobReport], places: Sequence[asyncpg.Record]
) -> dict[str, Sequence[object]]:
    """The batch as columns, for `unnest`."""
    jobs = [report.facts for report in reports]
    refusals = [report.served if isinstance(report.served, Refusal) else None for report in reports]
    return {
        "hosts": [job.host for job in jobs],
        "ids": [job.id for job in jobs],
        "accounts": [report.account for report in reports],
        "repositories": [row["repository_id"] for row in places],
        "run_ids": [job.run_id for job in jobs],
        "run_attempts": [job.run_attempt for job in jobs],
        "names": [job.name for job in jobs],
        "workflows": [job.workflow for job in jobs],
        "labels": ["\n".join(job.labels) for job in jobs],
        "states": [job.state.value for job in jobs],
        "keys": [row["key_id"] for row in places],
        "refusals": [refusal and refusal.reason for refusal in refusals],
        "refusal_details": [refusal and refusal.detail for refusal in refusals],
        "created_at": [job.created_at for job in jobs],
        "waited": [job.waited for job in jobs],
        "known_queued_at": [job.known_queued_at for job in jobs],
        "started_at": [job.started_at for job in jobs],
        "completed_at": [job.completed_at for job in jobs],
        "conclusions": [job.conclusion for job in jobs],
        "executor_ids": [job.executor and job.executor.github_id for job in jobs],
        "executor_names": [job.executor and job.executor.name for job in jobs],
    }
