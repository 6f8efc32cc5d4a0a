"""Pools as rows."""

from __future__ import annotations

import asyncpg

from paddock.domain.ids import PoolId
from paddock.domain.pools import PoolFacts
from paddock.store.base import Part
from paddock.store.database import Connection
from paddock.store.errors import StoreError
from paddock.store.sql import queries

_SQL = queries("pools")


class PoolRefused(StoreError):
    """The pool as described cannot be, beside the others."""


class Pools(Part):
    async def apply_pool(self, pool: PoolFacts) -> PoolId:
        try:
            async with self._matching() as connection:
                now = self._clock.now()
                found = PoolId(
                    await connection.fetchval(
                        _SQL["apply"],
                        pool.name,
                        sorted(pool.labels),
                        pool.shape,
                        pool.cost.vcpu_milli,
                        pool.cost.memory_mib,
                        pool.max_runners,
                        pool.spec,
                        pool.spec_hash,
                        pool.runner_group,
                        now,
                    )
                )
                await self._note_pool(connection, found, "applied", pool.spec_hash)
        except asyncpg.CheckViolationError as error:
            if error.constraint_name != "pools_labels_apart":
                raise
            raise PoolRefused(
                f"Pool {pool.name} is refused: {error.args[0]}. A job that asks for the smaller set "
                "would fit both; give each a label the other lacks."
            ) from error
        return found

    async def pause_pool(self, pool: PoolId, *, why: str) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(_SQL["pause"], pool, self._clock.now(), self.actor)
            if found is not None:
                await self._note_pool(connection, pool, "paused", why)
        return found is not None

    async def resume_pool(self, pool: PoolId, *, why: str) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(_SQL["resume"], pool)
            if found is not None:
                await self._note_pool(connection, pool, "resumed", why)
        return found is not None

    async def _note_pool(self, connection: Connection, pool: PoolId, what: str, why: str) -> None:
        await connection.execute(_SQL["note"], self._clock.now(), self.actor, pool, what, why)
