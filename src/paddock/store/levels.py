"""Queue lengths, runner counts and budgets, for the metrics."""

from __future__ import annotations

from datetime import datetime

from paddock.domain.levels import (
    BudgetLevel,
    HostFault,
    Levels,
    LimitBypass,
    PoolLevel,
    Queue,
    RunnerCount,
    Steps,
)
from paddock.domain.states import RunnerState
from paddock.store.base import Part
from paddock.store.sql import queries

_SQL = queries("levels")
_FAULTS = queries("host_faults")


class Leveling(Part):
    async def levels(self) -> Levels:
        async with self._database.transaction() as connection:
            queues = await connection.fetch(_SQL["queues"])
            crews = await connection.fetch(_SQL["crews"])
            pools = await connection.fetch(_SQL["pools"])
            budgets = await connection.fetch(_SQL["budgets"], self._clock.now())
            faults = await connection.fetch(_FAULTS["current"])
            bypasses = await connection.fetch(_SQL["limit_bypasses"])
            owed = await connection.fetchrow(_SQL["owed"])
        return Levels(
            queues=tuple(Queue(**row) for row in queues),
            crews=tuple(
                RunnerCount(
                    pool=row["pool"], state=RunnerState(row["state"]), runners=row["runners"]
                )
                for row in crews
            ),
            pools=tuple(PoolLevel(**row) for row in pools),
            budgets=tuple(BudgetLevel(**row) for row in budgets),
            host_faults=tuple(HostFault(**row) for row in faults),
            limit_bypasses=tuple(LimitBypass(**row) for row in bypasses),
            debts=owed["debts"],
            dead_deliveries=owed["dead_deliveries"],
            oldest_pending_at=owed["oldest_pending_at"],
        )

    async def limit_bypasses(self) -> list[LimitBypass]:
        return [LimitBypass(**row) for row in await self._database.rows(_SQL["limit_bypasses"])]

    async def steps(self, *, after: datetime, until: datetime) -> list[Steps]:
        rows = await self._database.rows(_SQL["steps"], after, until)
        return [Steps(**row) for row in rows]
