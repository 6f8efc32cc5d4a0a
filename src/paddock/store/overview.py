"""The present state in numbers, and the trends of the last hour."""

from __future__ import annotations

from typing import Any, Final

from paddock.domain.overview import (
    LATELY,
    MOST_ACTIONS,
    MOST_CELLS,
    MOST_WAITING,
    TREND,
    TREND_STEP,
    BackOffLine,
    BudgetLine,
    Cell,
    EndPoint,
    LatencyPoint,
    LimitBypassLine,
    Overview,
    Pause,
    QueueLine,
    Trends,
    UnfitHost,
    WaitingJob,
    depths,
)
from paddock.domain.recovery.table import RULES
from paddock.store.database import Connection
from paddock.store.looking import Looking, line
from paddock.store.reading_lists import action_line
from paddock.store.sql import queries

_EXPECTED = [rule.name for rule in RULES if rule.expected]
_SEEN_TO_END = [rule.name for rule in RULES if rule.seen_to_end]
_SQL = queries("overview")
_LEVELS = queries("levels")
_FAULTS = queries("host_faults")

#: Percentiles of a shorter step would cover too few runners and jump.
_JIT_STEP: Final = 5 * TREND_STEP


class Overviews(Looking):
    async def overview(self) -> Overview:
        now = self._clock.now()
        async with self._looking() as connection:
            told = await self._numbers(connection)
            latency = await connection.fetchrow(_SQL["to_jit"], now - LATELY)
            cells = await connection.fetch(_SQL["cells"], MOST_CELLS)
            queues = await connection.fetch(_SQL["queues"])
            oldest = await connection.fetch(_SQL["oldest"], MOST_WAITING)
            done = await connection.fetch(
                _SQL["recovered"], now - TREND, MOST_ACTIONS, _EXPECTED, _SEEN_TO_END
            )
            pauses = await connection.fetch(_SQL["pauses"])
            backoffs = await connection.fetch(_SQL["backoffs"], now)
            budgets = await connection.fetch(_LEVELS["budgets"], now)
            faults = await connection.fetch(_FAULTS["current"])
            bypasses = await connection.fetch(_LEVELS["limit_bypasses"])
        return line(
            Overview,
            told,
            at=now,
            to_jit=dict(latency) if latency["count"] else None,
            cells=[line(Cell, row) for row in cells],
            queues=[line(QueueLine, row) for row in queues],
            oldest=[line(WaitingJob, row) for row in oldest],
            actions=[action_line(row) for row in done],
            pauses=[line(Pause, row) for row in pauses],
            backoffs=[line(BackOffLine, row) for row in backoffs],
            budgets=[
                BudgetLine(
                    app=row["app"],
                    bucket=row["bucket"],
                    account=row["account"],
                    left=row["tokens"] / row["capacity"],
                )
                for row in budgets
            ],
            unfit_hosts=[line(UnfitHost, row) for row in faults],
            limit_bypasses=[line(LimitBypassLine, row) for row in bypasses],
        )

    async def _numbers(self, connection: Connection) -> dict[str, Any]:
        since = self._clock.now() - TREND
        counts = await connection.fetchrow(_SQL["counts"])
        runners = await connection.fetch(_SQL["runners"])
        jobs = await connection.fetch(_SQL["jobs"])
        completed = await connection.fetch(_SQL["completed"], since)
        endings = await connection.fetch(_SQL["endings"], since)
        return {
            **counts,
            "runners": {row["state"]: row["runners"] for row in runners},
            "jobs": {row["state"]: row["jobs"] for row in jobs},
            "completed": {row["conclusion"]: row["jobs"] for row in completed},
            "endings": {row["ending"]: row["runners"] for row in endings},
        }

    async def trends(self) -> Trends:
        until = self._clock.now()
        since = (until - TREND).replace(second=0, microsecond=0)
        async with self._looking() as connection:
            flow = await connection.fetch(_SQL["flow"], since, TREND_STEP)
            waiting = await connection.fetchval(_SQL["waiting_now"])
            to_jit = await connection.fetch(_SQL["to_jit_steps"], since, _JIT_STEP)
            ends = await connection.fetch(_SQL["ends"], since, TREND_STEP)
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
            to_jit=[line(LatencyPoint, row) for row in to_jit],
            completed=[line(EndPoint, row) for row in ends],
        )
