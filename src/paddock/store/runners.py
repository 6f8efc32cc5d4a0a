"""The steps of a runner's life, each one transaction with its event.

Every method names the state and generation it believes in. If the row has moved on, nothing is
written and a `Conflict` says what was found: the caller decides what that means for it (I16, I32).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from paddock.domain.endings import Ending, Retired
from paddock.domain.fingerprints import Fingerprint
from paddock.domain.ids import (
    AccountId,
    GitHubRunnerId,
    JobId,
    KeyId,
    PoolId,
    RunnerId,
)
from paddock.domain.limits import Resources
from paddock.domain.runners import Conflict, Runner
from paddock.domain.states import RunnerState
from paddock.store.base import Part
from paddock.store.database import Connection, retrying
from paddock.store.sql import queries

_SQL = queries("runners")


def runner_of(row: asyncpg.Record) -> Runner:
    return Runner(
        id=RunnerId(row["id"]),
        pool=PoolId(row["pool_id"]),
        pod_name=row["pod_name"],
        pod_uid=row["pod_uid"],
        state=RunnerState(row["state"]),
        generation=row["generation"],
        since=row["since"],
        key=None if row["key_id"] is None else KeyId(row["key_id"]),
        account=None if row["account_id"] is None else AccountId(row["account_id"]),
        name=row["name"],
        mint_deadline=row["mint_deadline"],
        github_id=None if row["github_id"] is None else GitHubRunnerId(row["github_id"]),
        delivery=row["delivery_id"],
        job=None if row["job_id"] is None else JobId(row["job_id"]),
        shape=row["shape"],
        spec_hash=row["spec_hash"],
        node=row["node"],
        created_at=row["created_at"],
        heard_at=row["heard_at"],
        acknowledged_at=row["acknowledged_at"],
        job_marked_at=row["job_marked_at"],
        hint=None if row["hint_job_id"] is None else JobId(row["hint_job_id"]),
        suspect_at=row["suspect_at"],
        absent_reads=row["absent_reads"],
        absent_since=row["absent_since"],
        retire_reason=row["retire_reason"],
        deregistered_at=row["deregistered_at"],
        proved_at=row["proved_at"],
        claimed_at=row["claimed_at"],
        armed_at=row["armed_at"],
        done_at=row["done_at"],
        retiring_at=row["retiring_at"],
        retired=None if row["retired"] is None else Retired(row["retired"]),
        unregistered=row["unregistered"],
        deletion_asked_at=row["deletion_asked_at"],
        started=row["started"],
        cost=Resources(vcpu_milli=row["vcpu_milli"], memory_mib=row["memory_mib"]),
    )


class Runners(Part):
    async def runner(self, runner: RunnerId) -> Runner | None:
        row = await self._database.row(_SQL["read"], runner)
        return None if row is None else runner_of(row)

    async def live_runners(self) -> list[Runner]:
        rows = await self._database.rows(_SQL["live"])
        return [runner_of(row) for row in rows]

    async def plan_runners(
        self, pool: PoolId, pods: Sequence[tuple[RunnerId, str]], *, why: str
    ) -> list[Runner]:
        async with self._database.transaction() as connection:
            rows = await connection.fetch(
                _SQL["plan"],
                pool,
                [runner for runner, _ in pods],
                [name for _, name in pods],
                self._clock.now(),
                self.actor,
                why,
            )
        return [runner_of(row) for row in rows]

    async def hear_runner(
        self, runner: RunnerId, *, generation: int, pod_uid: str
    ) -> Runner | Conflict:
        return await self._step("hear", runner, generation, "its poller was heard", None, pod_uid)

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
            github_id,
            delivery,
            sealed_jit,
            sealing_key,
        )

    async def release_runner(
        self, runner: RunnerId, *, generation: int, why: str, no_record_because: str | None
    ) -> Runner | Conflict:
        return await self._step("release", runner, generation, why, None, no_record_because)

    async def acknowledge_runner(
        self, runner: RunnerId, *, generation: int, delivery: UUID
    ) -> Runner | Conflict:
        return await self._step(
            "acknowledge", runner, generation, "the JIT was acknowledged", None, delivery
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
        return await self._step("occupy", runner, generation, why, evidence, job)

    async def finish_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        job: JobId,
        why: str,
        evidence: str | None = None,
    ) -> Runner | Conflict:
        return await self._step("finish", runner, generation, why, evidence, job)

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
            "fence", runner, generation, why, evidence, state, retired, unregistered
        )

    async def conclude_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        state: RunnerState,
        ending: Ending,
        why: str,
        ended_at: datetime,
        fingerprint: Fingerprint | None = None,
        log_tail: str | None = None,
        evidence: str | None = None,
        echoes_until: datetime | None = None,
    ) -> Runner | Conflict:
        return await self._step(
            "conclude",
            runner,
            generation,
            why,
            evidence,
            state,
            ending,
            ending.abnormal,
            fingerprint and fingerprint.exit_code,
            fingerprint and fingerprint.signal,
            fingerprint and fingerprint.reason,
            ended_at,
            log_tail,
            echoes_until,
        )

    @retrying
    async def _step(
        self,
        query: str,
        runner: RunnerId,
        generation: int,
        why: str,
        evidence: str | None,
        *own: object,
    ) -> Runner | Conflict:
        async with self._database.statement() as connection:
            row = await connection.fetchrow(
                _SQL[query], runner, generation, self._clock.now(), self.actor, why, evidence, *own
            )
        if row is not None:
            return runner_of(row)
        return _conflict(await self._database.row(_SQL["read"], runner))

    async def _take(
        self,
        connection: Connection,
        query: str,
        runner: RunnerId,
        generation: int,
        why: str,
        evidence: str | None,
        *own: object,
    ) -> Runner | Conflict:
        row = await connection.fetchrow(
            _SQL[query], runner, generation, self._clock.now(), self.actor, why, evidence, *own
        )
        if row is not None:
            return runner_of(row)
        return _conflict(await connection.fetchrow(_SQL["read"], runner))


def _conflict(found: asyncpg.Record | None) -> Conflict:
    if found is None:
        return Conflict(None, None)
    return Conflict(RunnerState(found["state"]), found["generation"])
