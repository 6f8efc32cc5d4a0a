"""Vitals: one bounded series of samples per runner.

Two thousand busy Pods report every five seconds, so reports are written in batches, and without a lock
on rows that dispatch needs. A report only reads the runner's row; the row is written once in the
runner's life, when its job begins. The commit of samples waits for no disk, so a crash of the database
may lose the last half second of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import asyncpg
import msgspec

from paddock.domain.ids import RunnerId
from paddock.domain.runners.vitals import MOST_RECENT, Sample, VitalsOutcome, VitalsReport, extend
from paddock.store.base import StorePart
from paddock.store.database import UNFLUSHED, Connection, retrying
from paddock.store.sql import named

_SQL = named("vitals")

_decode = msgspec.msgpack.Decoder(list[Sample]).decode
_encode = msgspec.msgpack.Encoder().encode


def series_of(row: asyncpg.Record | None) -> list[Sample]:
    """The whole series, from a row of `vitals.sql`."""
    if row is None:
        return []
    return [*_part(row["series"]), *_part(row["recent"])]


def _part(encoded: bytes) -> list[Sample]:
    return _decode(encoded) if encoded else []


class Vitals(StorePart):
    @retrying
    async def add_vitals(self, reports: Sequence[VitalsReport]) -> list[VitalsOutcome]:
        """Results in the order of `reports`. Repeating a report adds nothing."""
        async with self._database.transaction(begin=UNFLUSHED) as connection:
            rows = await connection.fetch(
                *_SQL["known"](
                    pods=[each.pod_name for each in reports],
                    uids=[each.pod_uid for each in reports],
                ),
            )
            known = {(row["pod_name"], row["pod_uid"]): row for row in rows}
            await self._keep(connection, _longer(reports, known))
        marked = await self._mark(reports, known)
        return [_outcome(report, known, marked) for report in reports]

    async def _keep(self, connection: Connection, longer: Mapping[RunnerId, list[Sample]]) -> None:
        if not longer:
            return
        full = [runner for runner, recent in longer.items() if len(recent) > MOST_RECENT]
        rows = await connection.fetch(*_SQL["series"](runners=full)) if full else []
        series = {row["runner_id"]: _part(row["series"]) for row in rows}
        kept = []
        for runner in sorted(longer):
            recent, whole = longer[runner], b""
            last = datetime.fromtimestamp(min(recent[-1].at, 4e9), UTC)
            if len(recent) > MOST_RECENT:
                # The last sample stays: it shows what has been reported already.
                whole = _encode(extend(series.get(runner, []), recent[:-1]))
                recent = recent[-1:]
            kept.append((runner, whole, _encode(recent), last))
        runners, wholes, recents, times = map(list, zip(*kept, strict=True))
        await connection.execute(
            *_SQL["keep"](runners=runners, series=wholes, recent=recents, last_at=times)
        )

    async def _mark(
        self, reports: Sequence[VitalsReport], known: Mapping[tuple[str, str], asyncpg.Record]
    ) -> frozenset[RunnerId]:
        """Mark the runners whose job has begun; return those newly marked. The mark is evidence, so it
        is flushed."""
        marks = {
            row["id"]: report.job_started_at
            for report in reports
            if report.job_started_at is not None
            if (row := known.get((report.pod_name, report.pod_uid))) is not None
            if row["job_marked_at"] is None
        }
        if not marks:
            return frozenset()
        async with self._database.transaction() as connection:
            rows = await connection.fetch(
                *_SQL["mark"](runners=list(marks), times=list(marks.values()))
            )
        return frozenset(RunnerId(row["id"]) for row in rows)


def _longer(
    reports: Sequence[VitalsReport], known: Mapping[tuple[str, str], asyncpg.Record]
) -> dict[RunnerId, list[Sample]]:
    """The recent samples of every runner that reported new ones."""
    longer: dict[RunnerId, list[Sample]] = {}
    for report in reports:
        row = known.get((report.pod_name, report.pod_uid))
        if row is None:
            continue
        before = longer.get(row["id"]) or _part(row["recent"])
        after = extend(before, report.samples)
        if len(after) > len(before):
            longer[RunnerId(row["id"])] = after
    return longer


def _outcome(
    report: VitalsReport,
    known: Mapping[tuple[str, str], asyncpg.Record],
    marked: frozenset[RunnerId],
) -> VitalsOutcome:
    row = known.get((report.pod_name, report.pod_uid))
    if row is None:
        return VitalsOutcome.UNWANTED
    if report.job_started_at is None or row["job_marked_at"] is not None or row["id"] in marked:
        return VitalsOutcome.KEPT
    return VitalsOutcome.NOT_MARKED
