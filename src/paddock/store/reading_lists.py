"""The lists, newest first, page by page."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from paddock.domain.fingerprints import describe_exit
from paddock.domain.limits import Limits, Resources
from paddock.domain.reading import (
    AccountLine,
    ActionFilter,
    ActionLine,
    BadCursor,
    DecisionLine,
    DeliveryFilter,
    DeliveryLine,
    EndingCount,
    EventFilter,
    EventLine,
    JobFilter,
    JobLine,
    Page,
    Paging,
    PoolLine,
    RuleCount,
    RunnerFilter,
    RunnerLine,
    VerdictFilter,
    VerdictLine,
)
from paddock.domain.recovery.table import RULES
from paddock.domain.states import RunnerState
from paddock.store.database import Connection
from paddock.store.looking import Looking, line, number, page
from paddock.store.sql import queries

_SQL = queries("reading")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Lists(Looking):
    async def jobs(self, wanted: JobFilter, paging: Paging) -> Page[JobLine]:
        host, job = _job_cursor(paging.cursor)
        async with self._looking() as connection:
            rows = await connection.fetch(
                _SQL["jobs"],
                wanted.status,
                wanted.account,
                wanted.repository,
                wanted.pool,
                wanted.conclusion,
                wanted.host,
                wanted.refused,
                host,
                job,
                paging.limit + 1,
                None,
                None,
            )
        return page(rows, paging, job_line, lambda row: f"{row['host_id']}.{row['id']}")

    async def runners(self, wanted: RunnerFilter, paging: Paging) -> Page[RunnerLine]:
        after = _uuid(paging.cursor)
        async with self._looking() as connection:
            rows = await connection.fetch(
                _SQL["runners"],
                wanted.state,
                wanted.pool,
                wanted.account,
                wanted.node,
                # `live` repeats what the state filter implies, because the index is on it.
                wanted.live if wanted.state is None else wanted.state is not RunnerState.GONE,
                after,
                paging.limit + 1,
                None,
                None,
            )
        return page(rows, paging, runner_line, lambda row: row["id"])

    async def verdicts(self, wanted: VerdictFilter, paging: Paging) -> Page[VerdictLine]:
        at, runner = _verdict_cursor(paging.cursor)
        async with self._looking() as connection:
            rows = await connection.fetch(
                _SQL["verdicts"],
                wanted.ending,
                wanted.abnormal,
                wanted.pool,
                wanted.node,
                wanted.image,
                wanted.since,
                at,
                runner,
                paging.limit + 1,
                None,
            )
        return page(
            rows,
            paging,
            verdict_line,
            lambda row: f"{(row['ended_at'] - _EPOCH) // _MICROSECOND}.{row['runner']}",
        )

    async def endings(
        self, wanted: VerdictFilter, *, since: datetime, step: timedelta
    ) -> list[EndingCount]:
        async with self._looking() as connection:
            rows = await connection.fetch(
                _SQL["endings"], since, step, wanted.pool, wanted.node, wanted.image
            )
        return [msgspec.convert(dict(row), EndingCount) for row in rows]

    async def events(self, wanted: EventFilter, paging: Paging) -> Page[EventLine]:
        after = number(paging.cursor)
        async with self._looking() as connection:
            rows = await events(connection, wanted, after=after, limit=paging.limit + 1)
        return page(rows, paging, event_line, lambda row: row["id"])

    async def actions(self, wanted: ActionFilter, paging: Paging) -> Page[ActionLine]:
        after = number(paging.cursor)
        async with self._looking() as connection:
            rows = await actions(connection, wanted, after=after, limit=paging.limit + 1)
        return page(rows, paging, action_line, lambda row: row["id"])

    async def rule_counts(self, *, since: datetime) -> list[RuleCount]:
        async with self._looking() as connection:
            rows = await connection.fetch(_SQL["rule_counts"], since)
        return [msgspec.convert(dict(row), RuleCount) for row in rows]

    async def deliveries(self, wanted: DeliveryFilter, paging: Paging) -> Page[DeliveryLine]:
        after = number(paging.cursor)
        async with self._looking() as connection:
            rows = await connection.fetch(
                _SQL["deliveries"], wanted.state, wanted.event, after, paging.limit + 1
            )
        return page(rows, paging, lambda row: line(DeliveryLine, row), lambda row: row["number"])

    async def pools(self) -> list[PoolLine]:
        async with self._looking() as connection:
            return [each for each, _ in await pools(connection)]

    async def accounts(self) -> list[AccountLine]:
        async with self._looking() as connection:
            rows = await connection.fetch(_SQL["accounts"], None)
            queues = await connection.fetch(_SQL["queues"])
        waiting: dict[int, list[asyncpg.Record]] = defaultdict(list)
        for queue in queues:
            waiting[queue["account_id"]].append(queue)
        return [_account_line(row, waiting[row["id"]]) for row in rows]


async def events(
    connection: Connection, wanted: EventFilter, *, after: int | None = None, limit: int
) -> list[asyncpg.Record]:
    found: list[asyncpg.Record] = await connection.fetch(
        _SQL["events"], wanted.runner, wanted.job, wanted.account, wanted.pool, after, limit
    )
    return found


async def actions(
    connection: Connection, wanted: ActionFilter, *, after: int | None = None, limit: int
) -> list[asyncpg.Record]:
    found: list[asyncpg.Record] = await connection.fetch(
        _SQL["actions"], _rules(wanted), wanted.outcome, wanted.runner, wanted.job, after, limit
    )
    return found


def _rules(wanted: ActionFilter) -> list[str] | None:
    """Rules by name, so that the query uses their index: "all but two" would read every row."""
    if wanted.rule is not None:
        return [wanted.rule]
    if wanted.noteworthy:
        return [rule.name for rule in RULES if not rule.expected]
    return None


async def pools(connection: Connection, name: str | None = None) -> list[tuple[PoolLine, int]]:
    """The pools with their ids."""
    rows = await connection.fetch(_SQL["pools"], name)
    crews = await connection.fetch(_SQL["crews"])
    queues = await connection.fetch(_SQL["queues"])
    return [
        (
            _pool_line(
                row,
                [crew for crew in crews if crew["pool_id"] == row["id"]],
                [queue for queue in queues if queue["pool_id"] == row["id"]],
            ),
            row["id"],
        )
        for row in rows
    ]


def job_line(row: asyncpg.Record) -> JobLine:
    return line(JobLine, row)


def runner_line(row: asyncpg.Record) -> RunnerLine:
    return line(RunnerLine, row)


def verdict_line(row: asyncpg.Record) -> VerdictLine:
    said = describe_exit(row["exit_code"], row["signal"], row["reason"])
    return line(VerdictLine, row, evidence=_json(row["evidence"]), exit_text=said or None)


def event_line(row: asyncpg.Record) -> EventLine:
    return line(EventLine, row, evidence=_json(row["evidence"]))


def action_line(row: asyncpg.Record) -> ActionLine:
    return line(ActionLine, row, evidence=_json(row["evidence"]))


def decision_line(row: asyncpg.Record, *, at: str = "at") -> DecisionLine:
    return line(DecisionLine, row, at=row[at], terms=_json(row["terms"]))


def _json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _pool_line(
    row: asyncpg.Record, crews: list[asyncpg.Record], queues: list[asyncpg.Record]
) -> PoolLine:
    return line(
        PoolLine,
        row,
        cost=Resources(vcpu_milli=row["vcpu_milli"], memory_mib=row["memory_mib"]),
        runners={crew["state"]: crew["runners"] for crew in crews},
        stale=sum(crew["stale"] for crew in crews),
        queued=sum(queue["jobs"] for queue in queues),
        oldest_at=min((queue["oldest_at"] for queue in queues), default=None),
        decision=None if row["decided_at"] is None else decision_line(row, at="decided_at"),
    )


def _account_line(row: asyncpg.Record, queues: list[asyncpg.Record]) -> AccountLine:
    return line(
        AccountLine,
        row,
        limits=Limits(
            runners=row["max_runners"],
            vcpu_milli=row["max_vcpu_milli"],
            memory_mib=row["max_memory_mib"],
        ),
        used=Resources(
            runners=row["runners"], vcpu_milli=row["vcpu_milli"], memory_mib=row["memory_mib"]
        ),
        queued=sum(queue["jobs"] for queue in queues),
        oldest_at=min((queue["oldest_at"] for queue in queues), default=None),
    )


def _job_cursor(cursor: str | None) -> tuple[int | None, int | None]:
    if cursor is None:
        return None, None
    host, _, job = cursor.partition(".")
    found = number(host), number(job)
    if found[0] is None or found[0] > 2**15 - 1:
        raise BadCursor(cursor)
    return found


def _verdict_cursor(cursor: str | None) -> tuple[datetime | None, UUID | None]:
    if cursor is None:
        return None, None
    at, _, runner = cursor.partition(".")
    try:
        return _EPOCH + (number(at) or 0) * _MICROSECOND, _uuid(runner)
    except OverflowError:
        raise BadCursor(cursor) from None


def _uuid(cursor: str | None) -> UUID | None:
    if cursor is None:
        return None
    try:
        return UUID(cursor)
    except ValueError:
        raise BadCursor(cursor) from None
