"""Pools as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import asyncpg

from paddock.domain.ids import AccountId, PoolId
from paddock.domain.pools.pool import PoolFacts, PoolSummary
from paddock.domain.runners.dialects import RunnerProgram
from paddock.ports.pools import PoolRefused
from paddock.store.base import StorePart
from paddock.store.database import Connection
from paddock.store.row_parts import cost_of
from paddock.store.sql import converted, named

_SQL = named("pools")


class Pools(StorePart):
    async def apply_pool(self, pool: PoolFacts) -> PoolId:
        [found] = await self.apply_pools([pool])
        return found

    async def apply_pools(self, pools: Sequence[PoolFacts]) -> list[PoolId]:
        try:
            async with self._matching() as connection:
                return [await self._apply_pool(connection, pool) for pool in pools]
        except asyncpg.CheckViolationError as error:
            if error.constraint_name != "pools_labels_apart":
                raise
            raise PoolRefused(
                f"Nothing was changed: {error.args[0]}. A job that asks for the smaller set would "
                "fit both; give each a label the other lacks."
            ) from error

    async def _apply_pool(self, connection: Connection, pool: PoolFacts) -> PoolId:
        changed = await connection.fetchval(
            *_SQL["apply"](
                name=pool.name,
                labels=sorted(pool.labels),
                shape=pool.shape,
                vcpu_milli=pool.cost.vcpu_milli,
                memory_mib=pool.cost.memory_mib,
                max_runners=pool.max_runners,
                spec=pool.spec,
                spec_hash=pool.spec_hash,
                runner_group=pool.runner_group,
                runner=None if pool.runner is RunnerProgram.UNKNOWN else pool.runner,
                now=self._clock.now(),
            ),
        )
        if changed is None:
            return PoolId(await connection.fetchval(*_SQL["named"](name=pool.name)))
        await self._note_pool(connection, PoolId(changed), "applied", pool.spec_hash)
        return PoolId(changed)

    async def list_pools(self) -> list[PoolSummary]:
        rows = await self._database.rows(*_SQL["list"]())
        return [
            converted(
                PoolSummary,
                row,
                cost=cost_of(row),
                runner=row["runner"] or RunnerProgram.UNKNOWN,
            )
            for row in rows
        ]

    async def find_pool(self, name: str) -> PoolId | None:
        async with self._database.transaction() as connection:
            found = await connection.fetchval(*_SQL["named"](name=name))
        return None if found is None else PoolId(found)

    async def wanted_groups(self) -> list[tuple[PoolId, str]]:
        rows = await self._database.rows(*_SQL["group_names"]())
        return [(PoolId(row["id"]), row["runner_group"]) for row in rows]

    async def set_groups(self, account: AccountId, groups: Mapping[PoolId, int]) -> None:
        rows = await self._database.rows(*_SQL["groups"](account=account))
        if {PoolId(row["pool_id"]): row["runner_group_id"] for row in rows} == groups:
            return
        pools = sorted(groups)
        async with self._matching() as connection:
            await connection.execute(
                *_SQL["set_groups"](
                    account=account, pools=pools, groups=[groups[pool] for pool in pools]
                )
            )
            await connection.execute(*_SQL["drop_groups"](account=account, pools=pools))

    async def pause_pool(self, pool: PoolId, *, why: str) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(
                *_SQL["pause"](pool=pool, now=self._clock.now(), actor=self.actor, why=why)
            )
            if found is not None:
                await self._note_pool(connection, pool, "paused", why)
        return found is not None

    async def resume_pool(self, pool: PoolId, *, why: str) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(*_SQL["resume"](pool=pool))
            if found is not None:
                await self._note_pool(connection, pool, "resumed", why)
        return found is not None

    async def _note_pool(self, connection: Connection, pool: PoolId, what: str, why: str) -> None:
        await connection.execute(
            *_SQL["note"](now=self._clock.now(), actor=self.actor, pool=pool, what=what, why=why)
        )
