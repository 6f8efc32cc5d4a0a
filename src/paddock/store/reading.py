"""Read-only queries. `paddock.ports.reading` documents each method."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg

from paddock.domain.allocation import Withheld
from paddock.domain.reading import (
    ActionFilter,
    EventFilter,
    JobCheck,
    JobStory,
    KeyLine,
    MintLine,
    PoolStory,
    RunnerStory,
    VitalsLine,
)
from paddock.ports.reading import Reading
from paddock.store.database import Connection
from paddock.store.looking import line
from paddock.store.overview import Overviews
from paddock.store.reading_lists import (
    Lists,
    action_line,
    actions,
    decision_line,
    event_line,
    events,
    job_line,
    pools,
    runner_line,
    verdict_line,
)
from paddock.store.sql import queries
from paddock.store.vitals import series_of

_SQL = queries("reading")
_SIZING = queries("sizing")


#: More events than any story has: a runner has a dozen, a job gets some more with each demotion.
_STORY: Final = 200
#: Some hours of a busy pool, whose size is decided every other second at most.
_DECISIONS: Final = 200
#: A runner that was claimed for a job is gone soon after the job is over.
_AFTERMATH: Final = timedelta(hours=1)

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


class PgReading(Lists, Overviews):
    """PostgreSQL behind the `Reading` port."""

    async def job(self, job: int, *, host: str | None = None) -> JobStory | None:
        async with self._looking() as connection:
            rows = await connection.fetch(
                _SQL["jobs"], *[None] * 5, host, False, None, None, 10, job, None
            )
            if not rows:
                return None
            row = rows[-1]  # the host that was known first
            told = await self._told(connection, EventFilter(job=job), ActionFilter(job=job))
            until = (row["completed_at"] or self._clock.now()) + _AFTERMATH
            ids = await connection.fetch(
                _SQL["runners_of_job"], job, row["seen_at"] - _AFTERMATH, until, row["host_id"]
            )
            crew = await self._runners(connection, ids=[each["id"] for each in ids])
        return JobStory(
            job=job_line(row),
            events=[event_line(each) for each in told[0] if each["host"] == row["host"]],
            actions=[action_line(each) for each in told[1] if each["host"] == row["host"]],
            runners=[runner_line(each) for each in crew],
            check=None if row["checked_at"] is None else line(JobCheck, row),
        )

    async def runner(self, name: str | UUID) -> RunnerStory | None:
        async with self._looking() as connection:
            if isinstance(name, UUID):
                rows = await self._runners(connection, ids=[name])
            else:
                rows = await self._runners(connection, name=name)
            if not rows:
                return None
            row = rows[-1]
            runner = row["id"]
            told = await self._told(
                connection, EventFilter(runner=runner), ActionFilter(runner=runner)
            )
            names = await connection.fetch(_SQL["names"], runner)
            jobs = await connection.fetch(
                _SQL["jobs"], *[None] * 6, False, None, None, _STORY, None, runner
            )
            verdicts = await connection.fetch(_SQL["verdicts"], *[None] * 8, 1, runner)
            vitals = await connection.fetchrow(_SQL["series"], runner)
            tail = await connection.fetchval(_SQL["log_tail"], runner)
        steps = {step: row[column] for step, column in _STEPS.items() if row[column] is not None}
        return RunnerStory(
            runner=runner_line(row),
            steps=dict(sorted(steps.items(), key=lambda step: step[1])),
            retire_reason=row["retire_reason"],
            names=[line(MintLine, each) for each in names],
            events=[event_line(each) for each in told[0]],
            actions=[action_line(each) for each in told[1]],
            jobs=[job_line(each) for each in jobs],
            verdict=verdict_line(verdicts[0]) if verdicts else None,
            log_tail=tail,
            vitals=[VitalsLine.of(each) for each in series_of(vitals)],
        )

    async def pool(self, name: str) -> PoolStory | None:
        async with self._looking() as connection:
            found = await pools(connection, name)
            if not found:
                return None
            [(pool, number)] = found
            decisions = await connection.fetch(_SQL["decisions"], number, _DECISIONS)
            keys = await connection.fetch(_SIZING["keys"], self._clock.now(), number)
            told = await events(connection, EventFilter(pool=name), limit=_STORY)
        return PoolStory(
            pool=pool,
            decisions=[decision_line(each) for each in decisions],
            keys=[_key_line(each, name) for each in keys],
            events=[event_line(each) for each in told],
        )

    async def _runners(
        self, connection: Connection, *, ids: Sequence[UUID] | None = None, name: str | None = None
    ) -> list[asyncpg.Record]:
        """Oldest first."""
        rows: list[asyncpg.Record] = await connection.fetch(
            _SQL["runners"], *[None] * 6, _STORY, ids, name
        )
        return rows[::-1]

    async def _told(
        self, connection: Connection, of: EventFilter, by: ActionFilter
    ) -> tuple[list[asyncpg.Record], list[asyncpg.Record]]:
        """Events and actions, oldest first."""
        happened = await events(connection, of, limit=_STORY)
        done = await actions(connection, by, limit=_STORY)
        return happened[::-1], done[::-1]


def _key_line(row: asyncpg.Record, pool: str) -> KeyLine:
    blocked: str | None = None
    if row["paused"]:
        blocked = Withheld.PAUSED
    elif row["uninstalled"]:
        blocked = Withheld.INSTALLATION
    elif row["blocked_until"] is not None:
        blocked = Withheld.BACK_OFF
    elif row["outdated"]:
        blocked = Withheld.RUNNER_VERSION
    shown: dict[str, Any] = {
        "pool": pool,
        "account": row["login"],
        "repository": row["full_name"],
        "oldest_at": row["oldest"],
        "blocked": blocked,
    }
    return line(KeyLine, row, **shown)


def _keeps_its_promises(reading: PgReading) -> Reading:
    """Lets mypy check that the class implements the port."""
    return reading
