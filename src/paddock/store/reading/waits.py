"""Why queued jobs wait: what binds them, and what the matcher would decide now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import asyncpg
import msgspec

from paddock.domain.allocation import Withheld
from paddock.domain.ids import KeyId, PoolId, RunnerId
from paddock.domain.reading.details import (
    JobDetails,
    KeyBackOff,
    RefusedVersion,
    RelatedRunner,
    Wait,
)
from paddock.domain.reading.rows import JobCheck
from paddock.domain.runners.runner import WaitingPod, WaitingPods
from paddock.domain.states import JobState
from paddock.ports import Clock
from paddock.store.database import Connection, Database
from paddock.store.matching import DemandReader
from paddock.store.reading.lists import job_line, runner_line, select
from paddock.store.reading.reader import Reader
from paddock.store.row_parts import limits_of, pause_of, used_of
from paddock.store.sql import converted, named

_SQL = named("waits")


class Waits(Reader):
    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self._demand = DemandReader(clock)

    async def waiting_jobs(self, jobs: Collection[tuple[str, int]]) -> Sequence[JobDetails]:
        wanted = set(jobs)
        async with self._reading() as connection:
            rows = [
                row
                for row in await select(
                    connection, "jobs", numbers=[number for _, number in wanted]
                )
                if (row["host"], row["id"]) in wanted and row["status"] == JobState.QUEUED
            ]
            waits = await self._waits(connection, {KeyId(row["key_id"]) for row in rows} - {None})
            places = await _places(connection, waits)
            coming = await _coming(connection, [key for key, wait in waits.items() if wait.supply])
        return [
            job_details(
                row,
                wait=_at(waits.get(row["key_id"]), places.get((row["host_id"], row["id"]))),
                runners=[
                    RelatedRunner(
                        runner=runner_line(each),
                        executed=False,
                        hinted=each["hint"] == row["id"],
                        verdict=None,
                        retire_reason=None,
                    )
                    for each in coming.get(row["key_id"], ())
                ],
            )
            for row in rows
        ]

    async def _wait(self, connection: Connection, job: asyncpg.Record) -> Wait | None:
        """`None` unless the job is queued and a pool takes it."""
        if job["key_id"] is None or job["status"] != JobState.QUEUED:
            return None
        waits = await self._waits(connection, [job["key_id"]])
        ahead = await connection.fetchval(*_SQL["ahead"](host=job["host_id"], job=job["id"]))
        return _at(waits[job["key_id"]], ahead)

    async def _waits(self, connection: Connection, keys: Collection[KeyId]) -> Mapping[KeyId, Wait]:
        """Per key, why a job waits for which no supply is on its way."""
        if not keys:
            return {}
        rows = await connection.fetch(*_SQL["waits"](keys=sorted(keys), now=self._clock.now()))
        withheld = await self._withheld(connection)
        return {KeyId(row["id"]): _wait_of(row, withheld.get(row["id"])) for row in rows}

    async def _withheld(self, connection: Connection) -> Mapping[KeyId, Withheld]:
        """What the matcher would decide now, by its own reads and decision, without writing."""
        waiting = WaitingPods(
            WaitingPod(
                id=RunnerId(row["id"]),
                pool=PoolId(row["pool_id"]),
                pod_name=row["pod_name"],
                generation=row["generation"],
            )
            for row in await connection.fetch(*_SQL["waiting_pods"]())
        )
        return await self._demand.withheld(connection, waiting)


async def _places(
    connection: Connection, waits: Mapping[KeyId, Wait]
) -> Mapping[tuple[int, int], int]:
    """How many jobs are served before each job for which supply is on its way. For the other jobs that
    count would need a scan of the whole queue."""
    served = {key: wait.ahead for key, wait in waits.items() if wait.ahead}
    if not served:
        return {}
    rows = await connection.fetch(*_SQL["first_in_line"](keys=[*served], jobs=[*served.values()]))
    return {(row["host_id"], row["id"]): row["ahead"] for row in rows}


async def _coming(
    connection: Connection, keys: Collection[KeyId]
) -> Mapping[KeyId, list[asyncpg.Record]]:
    """The runners on their way to each of these keys."""
    coming: dict[KeyId, list[asyncpg.Record]] = defaultdict(list)
    if not keys:
        return coming
    key_of = {
        row["id"]: KeyId(row["key_id"])
        for row in await connection.fetch(*_SQL["on_their_way"](keys=keys))
    }
    for row in await select(connection, "runners", ids=[*key_of]):
        coming[key_of[row["id"]]].append(row)
    return coming


def job_details(
    row: asyncpg.Record, *, wait: Wait | None, runners: list[RelatedRunner]
) -> JobDetails:
    """Without what happened to the job."""
    return converted(
        JobDetails,
        row,
        job=job_line(row),
        check=None if row["checked_at"] is None else converted(JobCheck, row),
        wait=wait,
        runners=runners,
        events=[],
        actions=[],
    )


def _at(wait: Wait | None, ahead: int | None) -> Wait | None:
    """The wait of the job before which `ahead` jobs are served."""
    if wait is None or ahead is None:
        return wait
    return msgspec.structs.replace(wait, ahead=ahead)


def _wait_of(row: asyncpg.Record, withheld: Withheld | None) -> Wait:
    return converted(
        Wait,
        row,
        ahead=row["supply"] + row["supply_graces"],
        withheld=withheld,
        dispatch_paused=pause_of(row, "all_"),
        account_paused=pause_of(row, "account_"),
        pool_paused=pause_of(row, "pool_"),
        back_off=None if row["scope"] is None else converted(KeyBackOff, row),
        refused_version=None if row["version"] is None else converted(RefusedVersion, row),
        account_limits=limits_of(row),
        account_used=used_of(row),
        repository_limits=limits_of(row, "repository_"),
        repository_used=used_of(row, "repository_"),
    )
