"""The lists, newest first, page by page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from paddock.domain.pods.fingerprints import describe_exit
from paddock.domain.reading.filters import (
    ActionFilter,
    BadCursor,
    DeliveryFilter,
    EventFilter,
    JobFilter,
    Page,
    Paging,
    RunnerFilter,
    VerdictFilter,
)
from paddock.domain.reading.rows import (
    AccountLine,
    ActionLine,
    DecisionLine,
    DeliveryLine,
    EndingCount,
    EventLine,
    JobLine,
    PoolLine,
    RuleCount,
    RunnerLine,
    VerdictLine,
)
from paddock.domain.recovery.table import RULES
from paddock.domain.states import RunnerState
from paddock.store.database import Connection
from paddock.store.reading.reader import Reader, number, page
from paddock.store.row_parts import cost_of, limits_of, used_of
from paddock.store.sql import converted, named

_SQL = named("reading")
Filter = JobFilter | RunnerFilter | VerdictFilter | EventFilter | DeliveryFilter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Lists(Reader):
    async def jobs(self, wanted: JobFilter, paging: Paging) -> Page[JobLine]:
        host, job = _job_cursor(paging.cursor)
        async with self._reading() as connection:
            rows = await select(
                connection, "jobs", wanted, after_host=host, after_job=job, limit=paging.limit + 1
            )
        return page(rows, paging, job_line, lambda row: f"{row['host_id']}.{row['id']}")

    async def runners(self, wanted: RunnerFilter, paging: Paging) -> Page[RunnerLine]:
        after = _uuid(paging.cursor)
        async with self._reading() as connection:
            rows = await select(
                connection,
                "runners",
                wanted,
                # `live` repeats what the state filter implies, because the index is on it.
                live=wanted.live if wanted.state is None else wanted.state is not RunnerState.GONE,
                after=after,
                limit=paging.limit + 1,
            )
        return page(rows, paging, runner_line, lambda row: row["id"])

    async def verdicts(self, wanted: VerdictFilter, paging: Paging) -> Page[VerdictLine]:
        at, runner = _verdict_cursor(paging.cursor)
        async with self._reading() as connection:
            rows = await select(
                connection,
                "verdicts",
                wanted,
                after=at,
                after_runner=runner,
                limit=paging.limit + 1,
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
        async with self._reading() as connection:
            rows = await connection.fetch(
                *_SQL["endings"](
                    since=since,
                    step=step,
                    pool=wanted.pool,
                    node=wanted.node,
                    image=wanted.image,
                )
            )
        return [converted(EndingCount, row) for row in rows]

    async def events(self, wanted: EventFilter, paging: Paging) -> Page[EventLine]:
        after = number(paging.cursor)
        async with self._reading() as connection:
            rows = await select(connection, "events", wanted, after=after, limit=paging.limit + 1)
        return page(rows, paging, event_line, lambda row: row["id"])

    async def actions(self, wanted: ActionFilter, paging: Paging) -> Page[ActionLine]:
        after = number(paging.cursor)
        async with self._reading() as connection:
            rows = await select(
                connection,
                "actions",
                rules=_rules(wanted),
                outcome=wanted.outcome,
                runner=wanted.runner,
                job=wanted.job,
                after=after,
                limit=paging.limit + 1,
            )
        return page(rows, paging, action_line, lambda row: row["id"])

    async def rule_counts(self, *, since: datetime) -> list[RuleCount]:
        async with self._reading() as connection:
            rows = await connection.fetch(*_SQL["rule_counts"](since=since))
        return [converted(RuleCount, row) for row in rows]

    async def deliveries(self, wanted: DeliveryFilter, paging: Paging) -> Page[DeliveryLine]:
        after = number(paging.cursor)
        async with self._reading() as connection:
            rows = await select(
                connection, "deliveries", wanted, after=after, limit=paging.limit + 1
            )
        return page(
            rows, paging, lambda row: converted(DeliveryLine, row), lambda row: row["number"]
        )

    async def pools(self) -> list[PoolLine]:
        async with self._reading() as connection:
            return [each for each, _ in await pools(connection)]

    async def accounts(self) -> list[AccountLine]:
        async with self._reading() as connection:
            rows = await connection.fetch(*_SQL["accounts"]())
            queues = await connection.fetch(*_SQL["queues"]())
        waiting: dict[int, list[asyncpg.Record]] = defaultdict(list)
        for queue in queues:
            waiting[queue["account_id"]].append(queue)
        return [_account_line(row, waiting[row["id"]]) for row in rows]


async def select(
    connection: Connection, listed: str, wanted: Filter | None = None, /, **more: object
) -> list[asyncpg.Record]:
    """The rows of a list. What is not given does not apply."""
    query = _SQL[listed]
    given = (
        {}
        if wanted is None
        else {field.name: getattr(wanted, field.name) for field in fields(wanted)}
    )
    found: list[asyncpg.Record] = await connection.fetch(
        *query(**{**dict.fromkeys(query.names), **given, **more})
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
    rows = await connection.fetch(*_SQL["pools"](name=name))
    counts = await connection.fetch(*_SQL["runner_counts"]())
    queues = await connection.fetch(*_SQL["queues"]())
    return [
        (
            _pool_line(
                row,
                [each for each in counts if each["pool_id"] == row["id"]],
                [each for each in queues if each["pool_id"] == row["id"]],
            ),
            row["id"],
        )
        for row in rows
    ]


def job_line(row: asyncpg.Record) -> JobLine:
    return converted(JobLine, row)


def runner_line(row: asyncpg.Record) -> RunnerLine:
    return converted(RunnerLine, row)


def verdict_line(row: asyncpg.Record) -> VerdictLine:
    said = describe_exit(row["exit_code"], row["signal"], row["reason"])
    return converted(VerdictLine, row, evidence=_json(row["evidence"]), exit_text=said or None)


def event_line(row: asyncpg.Record) -> EventLine:
    return converted(EventLine, row, evidence=_json(row["evidence"]))


def action_line(row: asyncpg.Record) -> ActionLine:
    return converted(ActionLine, row, evidence=_json(row["evidence"]))


def decision_line(row: asyncpg.Record, *, at: str = "at") -> DecisionLine:
    return converted(DecisionLine, row, at=row[at], terms=_json(row["terms"]))


def _json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _pool_line(
    row: asyncpg.Record, counts: list[asyncpg.Record], queues: list[asyncpg.Record]
) -> PoolLine:
    return converted(
        PoolLine,
        row,
        cost=cost_of(row),
        runners={each["state"]: each["runners"] for each in counts},
        stale=sum(each["stale"] for each in counts),
        queued=sum(queue["jobs"] for queue in queues),
        oldest_at=min((queue["oldest_at"] for queue in queues), default=None),
        decision=None if row["decided_at"] is None else decision_line(row, at="decided_at"),
    )


def _account_line(row: asyncpg.Record, queues: list[asyncpg.Record]) -> AccountLine:
    return converted(
        AccountLine,
        row,
        limits=limits_of(row),
        used=used_of(row),
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
