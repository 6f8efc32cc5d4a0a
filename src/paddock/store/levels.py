"""How full everything is, for those who watch."""

from __future__ import annotations

from datetime import datetime

from paddock.domain.levels import BudgetLevel, Crew, Levels, Queue, Steps
from paddock.domain.states import RunnerState
from paddock.store.base import Part
from paddock.store.sql import queries

_SQL = queries("levels")


class Leveling(Part):
    async def levels(self) -> Levels:
        async with self._database.transaction() as connection:
            queues = await connection.fetch(_SQL["queues"])
            crews = await connection.fetch(_SQL["crews"])
            budgets = await connection.fetch(_SQL["budgets"], self._clock.now())
            owed = await connection.fetchrow(_SQL["owed"])
        return Levels(
            queues=tuple(Queue(**row) for row in queues),
            crews=tuple(
                Crew(pool=row["pool"], state=RunnerState(row["state"]), runners=row["runners"])
                for row in crews
            ),
            budgets=tuple(BudgetLevel(**row) for row in budgets),
            debts=owed["debts"],
            dead_deliveries=owed["dead_deliveries"],
        )

    async def steps(self, *, after: datetime, until: datetime) -> list[Steps]:
        rows = await self._database.rows(_SQL["steps"], after, until)
        return [Steps(**row) for row in rows]
