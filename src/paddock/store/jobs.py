"""Jobs: a report from GitHub is merged into the job's row, and moves the runner it names.

The job's row, the runner's row and both events commit together (I14). A batch is merged in memory
first, so that each job is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import asyncpg

from paddock.domain.ids import HostId, JobId, RunnerId
from paddock.domain.jobs import JobFacts, JobReport, Refusal, Unplaced, merge
from paddock.domain.states import JobState, RunnerState
from paddock.store.base import Part
from paddock.store.database import Connection, retrying
from paddock.store.sql import queries

_SQL = queries("jobs")
_RUNNERS = queries("runners")
_POOLS = queries("sizing")

#: Why a job has no pool if it waited for a pool that was deleted.
POOL_DELETED: Final = "pool deleted"


class Jobs(Part):
    @retrying
    async def apply_jobs(self, reports: Iterable[JobReport], *, why: str) -> list[Unplaced]:
        merged = merge_reports(reports)
        if not merged:
            return []
        async with self._database.transaction() as connection:
            return await self._apply(connection, merged, why)

    async def _apply(
        self, connection: Connection, reports: Sequence[JobReport], why: str
    ) -> list[Unplaced]:
        now = self._clock.now()
        places = await place(connection, reports, now)
        columns = _columns(reports, places)
        await connection.execute(_SQL["merge"], *columns, now, self.actor, why)
        return await self._move_executors(connection, reports)

    async def demote_job(self, host: HostId, job: JobId, *, why: str) -> bool:
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                _SQL["demote"], host, job, self._clock.now(), self.actor, why
            )
            if row is not None and row["pool_id"] is not None:
                # The job's pool may have been deleted meanwhile; another pool may take the job.
                await connection.execute(_POOLS["refuse_jobs"], [row["pool_id"]], POOL_DELETED)
        return row is not None

    async def abandon_jobs(self, host: str, *, why: str) -> int:
        """Complete as stale all jobs of a host that have not ended: the host has forgotten them.
        Returns how many."""
        async with self._database.transaction() as connection:
            tag = await connection.execute(
                _SQL["abandon"], host, self._clock.now(), self.actor, why
            )
        return int(tag.split()[-1])

    async def _move_executors(
        self, connection: Connection, reports: Sequence[JobReport]
    ) -> list[Unplaced]:
        """`in_progress` makes the runner that GitHub names busy and `completed` makes it done, even if
        it was claimed for another job (I23), within the tenant of the event (I5)."""
        named = [report for report in reports if report.facts.executor is not None]
        if not named:
            return []
        rows = await connection.fetch(
            _SQL["executors"],
            [report.account for report in named],
            [report.facts.executor and report.facts.executor.github_id for report in named],
            [report.facts.executor and report.facts.executor.name for report in named],
        )
        ours = [(named[row["position"] - 1], row) for row in rows]
        await connection.execute(
            _SQL["attribute"],
            [report.facts.host for report, _ in ours],
            [report.facts.id for report, _ in ours],
            [row["id"] for _, row in ours],
        )
        busy = [(report, row) for report, row in ours if row["state"] == RunnerState.BUSY]
        if busy:
            await connection.execute(
                _RUNNERS["name_jobs"],
                [row["id"] for _, row in busy],
                [report.facts.id for report, _ in busy],
            )
        if ended := [row["id"] for _, row in ours if row["state"] == RunnerState.GONE]:
            await connection.execute(_SQL["heard_of"], ended)
        unplaced = []
        for report, row in ours:
            if not await self._move_executor(connection, report.facts, row):
                unplaced.append(
                    Unplaced(
                        runner=RunnerId(row["id"]),
                        name=row["name"],
                        pod_name=row["pod_name"],
                        state=RunnerState(row["state"]),
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
            _RUNNERS[step],
            row["id"],
            row["generation"],
            self._clock.now(),
            self.actor,
            why,
            None,
            facts.id,
        )
        return moved is not None


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
    asked = (_SQL["places"], accounts, hosts, repositories, pools, names, now)
    places = await connection.fetch(*asked)
    if all(place["noted"] for place in places):
        return places  # type: ignore[no-any-return]
    told = {
        (report.facts.host, report.repository.github_id): (report.account, report.repository)
        for report in reports
    }
    await connection.execute(
        _SQL["note_repositories"],
        [host for host, _ in told],
        [repository for _, repository in told],
        [account for account, _ in told.values()],
        [repository.full_name for _, repository in told.values()],
        now,
    )
    await connection.execute(_SQL["note_keys"], accounts, hosts, repositories, pools)
    return await connection.fetch(*asked)  # type: ignore[no-any-return]


def _columns(reports: Sequence[JobReport], places: Sequence[asyncpg.Record]) -> list[list[object]]:
    """The batch as columns, for `unnest`."""
    rows = [
        (
            report.facts.host,
            report.facts.id,
            report.account,
            place["repository_id"],
            report.facts.run_id,
            report.facts.run_attempt,
            report.facts.name,
            report.facts.workflow,
            "\n".join(report.facts.labels),
            report.facts.state.value,
            place["key_id"],
            report.served.reason if isinstance(report.served, Refusal) else None,
            report.served.detail if isinstance(report.served, Refusal) else None,
            report.facts.created_at,
            report.facts.waited,
            report.facts.known_queued_at,
            report.facts.started_at,
            report.facts.completed_at,
            report.facts.conclusion,
            report.facts.executor.github_id if report.facts.executor else None,
            report.facts.executor.name if report.facts.executor else None,
        )
        for report, place in zip(reports, places, strict=True)
    ]
    return [list(column) for column in zip(*rows, strict=True)]
