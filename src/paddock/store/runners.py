"""The steps of a runner's life, each one transaction with its event.

The caller of a method names the state and generation it expects. If the row has moved on, nothing is
written and the method returns a `Conflict` with what was found; the caller decides what follows
(I16, I32).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from paddock.domain.ids import (
    GitHubRunnerId,
    JobId,
    PoolId,
    RunnerId,
)
from paddock.domain.names import PodName
from paddock.domain.recovery.records import RunnerEnd
from paddock.domain.runners.endings import Retired
from paddock.domain.runners.runner import Conflict, Runner
from paddock.domain.states import RunnerState
from paddock.store.base import StorePart
from paddock.store.database import Connection, retrying
from paddock.store.live_runners import runner_of
from paddock.store.sql import named

_SQL = named("runners")


class RunnerStore(StorePart):
    async def live_runners(self) -> list[Runner]:
        return await self._living.read(self._database.rows)

    async def live_runners_of(self, pods: Sequence[PodName]) -> list[Runner]:
        rows = await self._database.rows(*_SQL["of_pods"](pods=sorted(pods)))
        return [runner_of(row) for row in rows]

    async def plan_runners(
        self, pool: PoolId, pods: Sequence[tuple[RunnerId, str]], *, why: str
    ) -> list[Runner]:
        async with self._database.transaction() as connection:
            rows = await connection.fetch(
                *_SQL["plan"](
                    pool=pool,
                    runners=[runner for runner, _ in pods],
                    pods=[name for _, name in pods],
                    now=self._clock.now(),
                    actor=self.actor,
                    why=why,
                ),
            )
        return [runner_of(row) for row in rows]

    async def arm_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        github_id: GitHubRunnerId,
        delivery: UUID,
        sealed_jit: bytes,
        sealing_key: str,
    ) -> Runner | Conflict:
        return await self._step(
            "arm",
            runner,
            generation,
            "the JIT was minted",
            None,
            github_id=github_id,
            delivery=delivery,
            jit=sealed_jit,
            jit_key=sealing_key,
        )

    async def release_runner(
        self, runner: RunnerId, *, generation: int, why: str, no_record_because: str | None
    ) -> Runner | Conflict:
        return await self._step(
            "release", runner, generation, why, None, no_record_because=no_record_because
        )

    async def occupy_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        job: JobId | None,
        why: str,
        evidence: str | None = None,
    ) -> Runner | Conflict:
        return await self._step("occupy", runner, generation, why, evidence, job=job)

    async def fence_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        state: RunnerState,
        why: str,
        evidence: str | None = None,
        retired: Retired = Retired.GIVEN_UP,
        unregistered: bool = False,
    ) -> Runner | Conflict:
        return await self._step(
            "fence",
            runner,
            generation,
            why,
            evidence,
            state=state,
            retired=retired,
            unregistered=unregistered,
        )

    async def force_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        state: RunnerState,
        why: str,
        evidence: str | None = None,
    ) -> Runner | Conflict:
        return await self._step("force", runner, generation, why, evidence, state=state)

    @retrying
    async def conclude_runners(self, ends: Sequence[RunnerEnd]) -> list[Runner]:
        marks = [end.fingerprint for end in ends]
        async with self._database.statement() as connection:
            rows = await connection.fetch(
                *_SQL["conclude"](
                    runners=[end.runner for end in ends],
                    generations=[end.generation for end in ends],
                    now=self._clock.now(),
                    actor=self.actor,
                    whys=[end.why for end in ends],
                    evidence=[end.evidence for end in ends],
                    states=[end.state for end in ends],
                    endings=[end.ending for end in ends],
                    abnormal=[end.ending.abnormal for end in ends],
                    exit_codes=[mark and mark.exit_code for mark in marks],
                    signals=[mark and mark.signal for mark in marks],
                    reasons=[mark and mark.reason for mark in marks],
                    ended_at=[end.ended_at for end in ends],
                    log_tails=[end.log_tail for end in ends],
                    supply_grace_until=[end.supply_grace_until for end in ends],
                    log_wanted_until=[end.log_wanted_until for end in ends],
                    uids=[end.pod_uid for end in ends],
                    nodes=[end.node for end in ends],
                ),
            )
        return [runner_of(row) for row in rows]

    @retrying
    async def _step(
        self,
        query: str,
        runner: RunnerId,
        generation: int,
        why: str,
        evidence: str | None,
        **own: object,
    ) -> Runner | Conflict:
        async with self._database.statement() as connection:
            row = await connection.fetchrow(
                *_SQL[query](
                    runner=runner,
                    generation=generation,
                    now=self._clock.now(),
                    actor=self.actor,
                    why=why,
                    evidence=evidence,
                    **own,
                )
            )
        if row is not None:
            return runner_of(row)
        return _conflict(await self._database.row(*_SQL["read"](runner=runner)))

    async def _take(
        self,
        connection: Connection,
        query: str,
        runner: RunnerId,
        generation: int,
        why: str,
        evidence: str | None,
        name: str,
        mint_deadline: datetime,
        abandoned: bool,
    ) -> Runner | Conflict:
        row = await connection.fetchrow(
            *_SQL[query](
                runner=runner,
                generation=generation,
                now=self._clock.now(),
                actor=self.actor,
                why=why,
                evidence=evidence,
                name=name,
                mint_deadline=mint_deadline,
                abandoned=abandoned,
            )
        )
        if row is not None:
            return runner_of(row)
        return _conflict(await connection.fetchrow(*_SQL["read"](runner=runner)))


def _conflict(found: asyncpg.Record | None) -> Conflict:
    if found is None:
        return Conflict(None, None)
    return Conflict(RunnerState(found["state"]), found["generation"])
