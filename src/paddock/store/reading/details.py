"""All that is recorded about one job, one runner or one pool, read in one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from paddock.domain.ids import JobId
from paddock.domain.reading.details import (
    JobDetails,
    PassedOver,
    PoolDetails,
    RelatedRunner,
    RunnerDetails,
)
from paddock.domain.reading.filters import EventFilter
from paddock.domain.reading.rows import (
    ActionLine,
    EventLine,
    JobLine,
    KeyLine,
    MintLine,
    VitalsLine,
)
from paddock.store.database import Connection
from paddock.store.reading.lists import (
    action_line,
    decision_line,
    event_line,
    job_line,
    pools,
    runner_line,
    select,
    verdict_line,
)
from paddock.store.reading.waits import Waits, job_details
from paddock.store.row_parts import blocked_of, pause_of
from paddock.store.sql import converted, named
from paddock.store.vitals import series_of

_SQL = named("reading")
_SIZING = named("sizing")

#: The last events of a pool.
_POOL_EVENTS: Final = 200
#: Some hours of a busy pool, whose size is decided every other second at most.
_DECISIONS: Final = 200
#: The last few failed mints of a job's key are enough.
_FAILED_MINTS: Final = 5
#: How many deliveries are searched for a job that has no row: some minutes of a busy GitHub, and one
#: second of work.
_SEARCHED: Final = 5_000
_BIGINT: Final = 2**63

#: The stages of a runner's life in order, each with the column that holds its time.
_STEPS: Final = {
    "created": "created_at",
    "heard": "heard_at",
    "claimed": "claimed_at",
    "armed": "armed_at",
    "acknowledged": "acknowledged_at",
    "said its job began": "job_marked_at",
    "busy": "busy_at",
    "done": "done_at",
    "retiring": "retiring_at",
    "deregistered": "deregistered_at",
    "proved": "proved_at",
    "deletion asked": "deletion_asked_at",
    "gone": "gone_at",
}


class _WebhookJob(msgspec.Struct, frozen=True):
    id: int
    labels: tuple[str, ...] = ()


class _Webhook(msgspec.Struct, frozen=True):
    workflow_job: _WebhookJob


class Details(Waits):
    async def find(self, name: str) -> Sequence[JobDetails | RunnerDetails]:
        found: list[JobDetails | RunnerDetails] = []
        async with self._reading() as connection:
            if name.isascii() and name.isdigit() and int(name) < _BIGINT:
                rows = await select(connection, "jobs", numbers=[int(name)])
                found += [await self._job(connection, row) for row in reversed(rows)]
            for row in await select(connection, "runners", name=name):
                found.append(await self._runner(connection, row))
        return found

    async def job(self, job: int, *, host: str | None = None) -> JobDetails | None:
        async with self._reading() as connection:
            rows = await select(connection, "jobs", numbers=[job], host=host)
            # The last is that of the host that was known first.
            return await self._job(connection, rows[-1]) if rows else None

    async def runner(self, name: str | UUID) -> RunnerDetails | None:
        async with self._reading() as connection:
            which: dict[str, Any] = {"ids": [name]} if isinstance(name, UUID) else {"name": name}
            rows = await select(connection, "runners", **which)
            return await self._runner(connection, rows[-1]) if rows else None

    async def passed_over(self, job: JobId) -> PassedOver | None:
        async with self._reading() as connection:
            rows = await connection.fetch(*_SQL["webhooks_of_job"](job=job, searched=_SEARCHED))
        for row in rows:
            try:
                told = msgspec.json.decode(row["body"], type=_Webhook).workflow_job
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if told.id == job:
                return converted(PassedOver, row, job=job, labels=told.labels)
        return None

    async def pool(self, name: str) -> PoolDetails | None:
        async with self._reading() as connection:
            found = await pools(connection, name)
            if not found:
                return None
            [(pool, number)] = found
            decisions = await connection.fetch(*_SQL["decisions"](pool=number, limit=_DECISIONS))
            keys = await connection.fetch(*_SIZING["keys"](now=self._clock.now(), pool=number))
            happened = await select(
                connection, "events", EventFilter(pool=name), limit=_POOL_EVENTS
            )
        return PoolDetails(
            pool=pool,
            decisions=[decision_line(each) for each in decisions],
            keys=[_key_line(each, name) for each in keys],
            events=[event_line(each) for each in happened],
        )

    async def _job(self, connection: Connection, row: asyncpg.Record) -> JobDetails:
        job = {"host": row["host_id"], "job": row["id"]}
        related = await connection.fetch(*_SQL["runners_of_job"](**job))
        own = [each["id"] for each in related if each["executed"] or each["hinted"]]
        events = await connection.fetch(
            *_SQL["events_of_job"](
                **job,
                runners=own,
                key=row["key_id"],
                since=row["created_at"],
                until=row["completed_at"] or self._clock.now(),
                failed_mints=_FAILED_MINTS,
            )
        )
        actions = await connection.fetch(*_SQL["actions_of_job"](**job, runners=own))
        details = job_details(
            row,
            wait=await self._wait(connection, row),
            runners=await _related(connection, related),
        )
        return msgspec.structs.replace(
            details,
            events=await _events(connection, ids=[each["id"] for each in events]),
            actions=await _actions(connection, ids=[each["id"] for each in actions]),
        )

    async def _runner(self, connection: Connection, row: asyncpg.Record) -> RunnerDetails:
        runner = row["id"]
        idle = await connection.fetchrow(*_SQL["why_idle"](runner=runner))
        names = await connection.fetch(*_SQL["names"](runner=runner))
        verdicts = await select(connection, "verdicts", runners=[runner])
        steps = {step: row[column] for step, column in _STEPS.items() if row[column] is not None}
        return converted(
            RunnerDetails,
            row,
            runner=runner_line(row),
            steps=dict(sorted(steps.items(), key=lambda step: step[1])),
            pool_paused=pause_of(idle),
            dispatch_paused=pause_of(idle, "all_"),
            queued=idle["queued"],
            names=[converted(MintLine, each) for each in names],
            events=await _events(connection, runner=runner),
            actions=await _actions(connection, runner=runner),
            jobs=await _jobs_of(connection, row),
            verdict=verdict_line(verdicts[0]) if verdicts else None,
            log_tail=await connection.fetchval(*_SQL["log_tail"](runner=runner)),
            vitals=[
                VitalsLine.of(each)
                for each in series_of(await connection.fetchrow(*_SQL["series"](runner=runner)))
            ],
        )


async def _related(
    connection: Connection, related: Sequence[asyncpg.Record]
) -> list[RelatedRunner]:
    ids = [each["id"] for each in related]
    if not ids:
        return []
    rows = {row["id"]: row for row in await select(connection, "runners", ids=ids)}
    verdicts = {
        row["runner"]: verdict_line(row)
        for row in await select(connection, "verdicts", runners=ids)
    }
    return [
        RelatedRunner(
            runner=runner_line(rows[each["id"]]),
            executed=each["executed"],
            hinted=each["hinted"],
            verdict=verdicts.get(each["id"]),
            retire_reason=rows[each["id"]]["retire_reason"],
        )
        for each in related
    ]


async def _jobs_of(connection: Connection, runner: asyncpg.Record) -> list[JobLine]:
    """Those a runner executed, and the one it was claimed for, oldest first."""
    executed = await select(connection, "jobs", runner=runner["id"])
    numbers = [number for number in (runner["job"], runner["hint"]) if number is not None]
    meant = (
        await select(connection, "jobs", numbers=numbers, host=runner["host"]) if numbers else []
    )
    found = {(row["host_id"], row["id"]): row for row in (*executed, *meant)}
    return [
        job_line(row)
        for _, row in sorted(found.items(), key=lambda each: (each[1]["queued_at"], each[0]))
    ]


async def _events(connection: Connection, **which: Any) -> list[EventLine]:
    rows = await select(connection, "events", **which)
    return [event_line(row) for row in sorted(rows, key=_in_time)]


async def _actions(connection: Connection, **which: Any) -> list[ActionLine]:
    rows = await select(connection, "actions", **which)
    return [action_line(row) for row in sorted(rows, key=_in_time)]


def _in_time(row: asyncpg.Record) -> tuple[Any, int]:
    return row["at"], row["id"]


def _key_line(row: asyncpg.Record, pool: str) -> KeyLine:
    return converted(
        KeyLine,
        row,
        pool=pool,
        account=row["login"],
        repository=row["full_name"],
        oldest_at=row["oldest"],
        blocked=blocked_of(row),
    )
