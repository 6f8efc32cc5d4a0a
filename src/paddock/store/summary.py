"""Counts of jobs, runners and verdicts."""

from __future__ import annotations

from datetime import datetime

from paddock.domain.endings import Ending
from paddock.domain.states import JobState, RunnerState
from paddock.domain.summary import Summary
from paddock.store.base import Part
from paddock.store.sql import queries

_SQL = queries("summary")


class Summaries(Part):
    async def summary(self, *, since: datetime) -> Summary:
        async with self._database.transaction() as connection:
            jobs = await connection.fetch(_SQL["jobs"])
            runners = await connection.fetch(_SQL["runners"])
            endings = await connection.fetch(_SQL["endings"], since)
            oldest = await connection.fetchval(_SQL["oldest"])
            to_jit = await connection.fetchval(_SQL["to_jit"], since)
        return Summary(
            jobs={JobState(row["state"]): row["jobs"] for row in jobs},
            runners={RunnerState(row["state"]): row["runners"] for row in runners},
            oldest_queued_at=oldest,
            to_jit=None if to_jit is None else float(to_jit),
            endings={Ending(row["ending"]): row["runners"] for row in endings},
        )
