"""What Pods ask for and are given, back-offs, and names that may still be registered at GitHub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from paddock.domain.github.backoffs import BackOffSubject, BackOffTerms
from paddock.domain.github.debts import Debt, MintOutcome
from paddock.domain.ids import RunnerId
from paddock.domain.runners.handover import Heard, SealedJit, StepDurations
from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState
from paddock.store.base import StorePart
from paddock.store.database import retrying
from paddock.store.live_runners import runner_of
from paddock.store.row_parts import installation_of, scope_of
from paddock.store.sql import converted, named

_SQL = named("dispatch")


class Dispatch(StorePart):
    @retrying
    async def hear_pod(self, pod_name: str, *, pod_uid: str) -> Heard | None:
        async with self._database.statement() as connection:
            row = await connection.fetchrow(
                *_SQL["hear"](pod=pod_name, uid=pod_uid, now=self._clock.now(), actor=self.actor)
            )
        if row is None:
            async with self._database.statement() as connection:
                row = await connection.fetchrow(*_SQL["gone"](pod=pod_name, uid=pod_uid))
        return None if row is None else _heard_of(row)

    @retrying
    async def hear_again(self, asked: Mapping[RunnerId, datetime]) -> frozenset[RunnerId]:
        async with self._database.statement() as connection:
            rows = await connection.fetch(
                *_SQL["hear_again"](runners=list(asked.keys()), times=list(asked.values()))
            )
        return frozenset(RunnerId(row["id"]) for row in rows)

    async def has_demand(self) -> bool:
        return await self._database.row(*_SQL["demand"]()) is not None

    @retrying
    async def acknowledge_delivery(
        self, pod_name: str, *, pod_uid: str, delivery: UUID
    ) -> Runner | RunnerState | None:
        async with self._database.statement() as connection:
            row = await connection.fetchrow(
                *_SQL["acknowledge"](
                    pod=pod_name,
                    uid=pod_uid,
                    now=self._clock.now(),
                    actor=self.actor,
                    delivery=delivery,
                )
            )
        if row is not None:
            return runner_of(row)
        async with self._database.statement() as connection:
            state = await connection.fetchval(
                *_SQL["delivered"](pod=pod_name, uid=pod_uid, delivery=delivery)
            )
        return None if state is None else RunnerState(state)

    @retrying
    async def back_off(self, subject: BackOffSubject, terms: BackOffTerms) -> datetime:
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                *_SQL["back_off"](
                    scope=subject.scope,
                    subject=subject.id,
                    now=self._clock.now(),
                    reason=terms.reason,
                    seconds=terms.seconds,
                    ceiling=terms.ceiling,
                    forgiven=terms.forgiven,
                    cause=terms.cause,
                ),
            )
        until: datetime = row["until"]
        return until

    async def recover_from_backoffs(self, subjects: Sequence[BackOffSubject]) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["recover"](
                    scopes=[subject.scope for subject in subjects],
                    subjects=[subject.id for subject in subjects],
                ),
            )

    async def debts(self, *, before: datetime, limit: int) -> list[Debt]:
        rows = await self._database.rows(
            *_SQL["debts"](before=before, limit=limit, now=self._clock.now())
        )
        return [converted(Debt, row, who=installation_of(row), scope=scope_of(row)) for row in rows]

    async def settle_mint(self, name: str, *, outcome: MintOutcome) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["settle"](name=name, outcome=outcome, now=self._clock.now())
            )

    async def postpone_debt(self, name: str, *, until: datetime) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(*_SQL["postpone_debt"](name=name, until=until))

    async def steps(self, *, after: datetime, until: datetime) -> list[StepDurations]:
        rows = await self._database.rows(*_SQL["steps"](after=after, until=until))
        return [converted(StepDurations, row) for row in rows]


def _heard_of(row: asyncpg.Record) -> Heard:
    jit = None
    if row["jit"] is not None:
        jit = SealedJit(sealed=row["jit"], key=row["jit_key"])
    return Heard(runner=runner_of(row), jit=jit)
