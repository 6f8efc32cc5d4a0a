"""The present state in numbers, the trends of the last hour, and the levels of the metrics."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from paddock.domain.reading.overview import (
    LATELY,
    MOST_ACTIONS,
    MOST_CELLS,
    MOST_WAITING,
    TREND,
    TREND_STEP,
    ActiveBackOff,
    BudgetLine,
    Cell,
    EndPoint,
    LatencyPoint,
    Levels,
    LimitBypassLine,
    Overview,
    PauseLine,
    PoolVersionLine,
    QueueLine,
    Trends,
    UnfitHost,
    WaitingJob,
    depths,
)
from paddock.domain.recovery.table import RULES
from paddock.store.database import Connection
from paddock.store.reading.lists import action_line, pools
from paddock.store.reading.reader import Reader
from paddock.store.sql import converted, named

_EXPECTED = [rule.name for rule in RULES if rule.expected]
_SEEN_TO_END = [rule.name for rule in RULES if rule.seen_to_end]
_SQL = named("overview")
_SIZING = named("sizing")
_VERSIONS = named("versions")

#: Percentiles of a shorter step would cover too few runners and jump.
_JIT_STEP: Final = 5 * TREND_STEP


class Overviews(Reader):
    async def overview(self) -> Overview:
        now = self._clock.now()
        async with self._reading() as connection:
            numbers = await self._numbers(connection, since=now - TREND)
            latency = await connection.fetchrow(*_SQL["to_jit"](since=now - LATELY))
            cells = await connection.fetch(*_SQL["cells"](limit=MOST_CELLS))
            oldest = await connection.fetch(*_SQL["oldest"](limit=MOST_WAITING))
            done = await connection.fetch(
                *_SQL["recovered"](
                    since=now - TREND,
                    limit=MOST_ACTIONS,
                    expected=_EXPECTED,
                    seen_to_end=_SEEN_TO_END,
                )
            )
            pauses = await connection.fetch(*_SQL["pauses"]())
            backoffs = await connection.fetch(*_SQL["backoffs"](now=now))
            shared = await _shared(connection, now)
        return converted(
            Overview,
            numbers,
            **shared,
            at=now,
            to_jit=dict(latency) if latency["count"] else None,
            cells=[converted(Cell, row) for row in cells],
            oldest=[converted(WaitingJob, row) for row in oldest],
            actions=[action_line(row) for row in done],
            pauses=[converted(PauseLine, row) for row in pauses],
            backoffs=[converted(ActiveBackOff, row) for row in backoffs],
        )

    async def _numbers(self, connection: Connection, *, since: datetime) -> dict[str, Any]:
        counts = await connection.fetchrow(*_SQL["counts"]())
        runners = await connection.fetch(*_SQL["runners"]())
        jobs = await connection.fetch(*_SQL["jobs"]())
        completed = await connection.fetch(*_SQL["completed"](since=since))
        endings = await connection.fetch(*_SQL["endings"](since=since))
        return {
            **counts,
            "runners": {row["state"]: row["runners"] for row in runners},
            "jobs": {row["state"]: row["jobs"] for row in jobs},
            "completed": {row["conclusion"]: row["jobs"] for row in completed},
            "endings": {row["ending"]: row["runners"] for row in endings},
        }

    async def levels(self) -> Levels:
        async with self._reading() as connection:
            counts = await connection.fetchrow(*_SQL["counts"]())
            found = await pools(connection)
            suspects = await connection.fetch(*_SQL["suspects"]())
            shared = await _shared(connection, self._clock.now())
        return converted(
            Levels,
            counts,
            **shared,
            pools=[pool for pool, _ in found],
            suspects={row["pool"]: row["runners"] for row in suspects},
        )

    async def trends(self) -> Trends:
        until = self._clock.now()
        since = (until - TREND).replace(second=0, microsecond=0)
        async with self._reading() as connection:
            flow = await connection.fetch(*_SQL["flow"](since=since, step=TREND_STEP))
            waiting = await connection.fetchval(*_SQL["waiting_now"]())
            to_jit = await connection.fetch(*_SQL["to_jit_steps"](since=since, step=_JIT_STEP))
            ends = await connection.fetch(*_SQL["ends"](since=since, step=TREND_STEP))
        return Trends(
            since=since,
            until=until,
            queue=depths(
                since=since,
                until=until,
                came={row["at"]: row["came"] for row in flow},
                went={row["at"]: row["went"] for row in flow},
                now=waiting,
            ),
            to_jit=[converted(LatencyPoint, row) for row in to_jit],
            completed=[converted(EndPoint, row) for row in ends],
        )


async def _shared(connection: Connection, now: datetime) -> dict[str, Any]:
    """What the overview and the metrics both show."""
    queues = await connection.fetch(*_SQL["queues"]())
    budgets = await connection.fetch(*_SQL["budgets"](now=now))
    faults = await connection.fetch(*_SIZING["host_faults"]())
    versions = await connection.fetch(*_VERSIONS["pools"](now=now))
    bypasses = await connection.fetch(*_SQL["limit_bypasses"]())
    return {
        "queues": [converted(QueueLine, row) for row in queues],
        "budgets": [converted(BudgetLine, row) for row in budgets],
        "unfit_hosts": [converted(UnfitHost, row) for row in faults],
        "runner_versions": [converted(PoolVersionLine, row) for row in versions],
        "limit_bypasses": [converted(LimitBypassLine, row) for row in bypasses],
    }
