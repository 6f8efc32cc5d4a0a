"""The inputs of decisions on pool sizes, the decisions, and hosts that are not fit for runners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from paddock.domain.allocation import Withheld
from paddock.domain.ids import AccountId, PoolId, RepositoryId
from paddock.domain.pods.placement import StartFailures
from paddock.domain.pools.scaling import Allowance, KeyLoad
from paddock.domain.pools.sizing import Decision, SizeTerms
from paddock.domain.pools.surveys import (
    DemandedKey,
    PastDecision,
    PoolExplanation,
    Survey,
    SurveyedPool,
)
from paddock.domain.reading.overview import UnfitHost
from paddock.domain.recovery.evidence import Container
from paddock.domain.states import RunnerState
from paddock.store.jobs import POOL_DELETED
from paddock.store.live_runners import runner_of
from paddock.store.pools import Pools
from paddock.store.row_parts import blocked_of, cost_of, limits_of, pause_of, used_of
from paddock.store.sql import converted, named

_SQL = named("sizing")
_VERSIONS = named("versions")

#: One snapshot: without it, a runner claimed between two reads would count twice or not at all.
_ONE_MOMENT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

#: What a container that waits for its image looks like.
_OF_IMAGES: Final = [Container.PULLING, Container.IMAGE_ERROR]

#: Runners that wait for work.
_WAITING: Final = frozenset({RunnerState.BOOTING, RunnerState.IDLE})
_HANDOVER: Final = frozenset({RunnerState.CLAIMED, RunnerState.ARMED})


class Sizing(Pools):
    async def survey_pools(
        self, *, ended: Sequence[str], since: datetime, after: int | None = None
    ) -> Survey:
        async with self._database.transaction(begin=_ONE_MOMENT) as connection:
            pools = await connection.fetch(*_SQL["pools"](ended=list(ended)))
            runners = await self._living.read(connection.fetch)
            keys = await connection.fetch(*_SQL["keys"](now=self._clock.now(), pool=None))
            accounts = await connection.fetch(*_SQL["accounts"]())
            repositories = await connection.fetch(*_SQL["repositories"]())
            refused = await connection.fetch(*_VERSIONS["refused"](now=self._clock.now()))
            if after is None:
                decisions = await connection.fetch(*_SQL["decisions_since"](since=since))
            else:
                decisions = await connection.fetch(*_SQL["decisions"](after=after))
        return Survey(
            pools=tuple(_pool_of(row) for row in pools),
            waiting=tuple(runner for runner in runners if runner.state in _WAITING),
            handovers=sum(runner.state in _HANDOVER for runner in runners),
            keys=tuple(_key_of(row) for row in keys),
            accounts={AccountId(row["id"]): _allowance_of(row) for row in accounts},
            repositories={RepositoryId(row["id"]): _allowance_of(row) for row in repositories},
            decisions=tuple(_decision_of(row) for row in decisions),
            refused={AccountId(row["account_id"]): frozenset(row["versions"]) for row in refused},
        )

    async def record_decisions(self, decisions: Sequence[Decision]) -> None:
        if not decisions:
            return
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["decide"](
                    now=self._clock.now(),
                    pools=[each.pool for each in decisions],
                    wanted=[each.wanted for each in decisions],
                    targets=[each.target for each in decisions],
                    terms=[msgspec.json.encode(each.terms).decode() for each in decisions],
                    whys=[each.why for each in decisions],
                ),
            )

    async def failed_starts(self, *, since: datetime) -> list[StartFailures]:
        rows = await self._database.rows(*_SQL["failed_starts"](since=since, of_images=_OF_IMAGES))
        return [converted(StartFailures, row) for row in rows]

    async def delete_pool(self, pool: PoolId, *, why: str) -> bool:
        async with self._database.transaction() as connection:
            found = await connection.fetchval(*_SQL["drain"](pool=pool, now=self._clock.now()))
            if found is not None:
                await connection.execute(*_SQL["refuse_jobs"](pools=[pool], refusal=POOL_DELETED))
                await self._note_pool(connection, pool, "draining", why)
        return found is not None

    async def refuse_jobs_of(self, pools: Sequence[PoolId]) -> int:
        async with self._database.transaction() as connection:
            refused: int = await connection.fetchval(
                *_SQL["refuse_jobs"](pools=list(pools), refusal=POOL_DELETED)
            )
        return refused

    async def delete_drained_pools(self) -> list[str]:
        async with self._database.transaction() as connection:
            rows = await connection.fetch(*_SQL["delete_drained"](now=self._clock.now()))
            for row in rows:
                await self._note_pool(
                    connection, PoolId(row["id"]), "deleted", "its last runner is gone"
                )
        return [row["name"] for row in rows]

    async def explain_pool(self, pool: PoolId) -> PoolExplanation | None:
        async with self._database.transaction(begin=_ONE_MOMENT) as connection:
            pools = await connection.fetch(*_SQL["pools"](ended=[]))
            latest = await connection.fetchrow(*_SQL["latest"](pool=pool))
            runners = await connection.fetch(*_SQL["runners_of"](pool=pool))
            keys = await connection.fetch(*_SQL["keys"](now=self._clock.now(), pool=pool))
            faults = await connection.fetch(*_SQL["host_faults"]())
        found = next((row for row in pools if row["id"] == pool), None)
        if found is None:
            return None
        return PoolExplanation(
            pool=_pool_of(found),
            pause=pause_of(found),
            decision=latest and _decision_of(latest),
            runners=tuple(runner_of(row) for row in runners),
            keys=tuple(_key_of(row) for row in keys),
            unfit=tuple(converted(UnfitHost, row) for row in faults),
        )

    async def note_host_faults(self, faults: Mapping[str, str]) -> None:
        hosts = sorted(faults)
        async with self._database.transaction() as connection:
            await connection.execute(*_SQL["forget_host_faults"](hosts=hosts))
            await connection.execute(
                *_SQL["note_host_faults"](
                    hosts=hosts, faults=[faults[host] for host in hosts], now=self._clock.now()
                )
            )

    async def host_faults(self) -> list[UnfitHost]:
        rows = await self._database.rows(*_SQL["host_faults"]())
        return [converted(UnfitHost, row) for row in rows]


def _pool_of(row: asyncpg.Record) -> SurveyedPool:
    return converted(SurveyedPool, row, cost=cost_of(row))


def _key_of(row: asyncpg.Record) -> DemandedKey:
    blocked = blocked_of(row)
    load = converted(KeyLoad, row, refused=blocked is Withheld.RUNNER_VERSION)
    return converted(DemandedKey, row, load=load, repository=row["full_name"], blocked=blocked)


def _allowance_of(row: asyncpg.Record) -> Allowance:
    return Allowance(limits=limits_of(row), used=used_of(row))


def _decision_of(row: asyncpg.Record) -> PastDecision:
    terms = msgspec.json.decode(row["terms"], type=SizeTerms)
    decision = converted(Decision, row, pool=row["pool_id"], terms=terms)
    return PastDecision(number=row["id"], at=row["at"], decision=decision)
