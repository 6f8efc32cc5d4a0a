"""RunnerPool objects mirrored into pools, with a real store. Their API server is in `tests/cluster`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from paddock.domain.pods import PodOrder
from paddock.domain.pool_objects import PoolObject, PoolObjects, PoolStatus
from paddock.pools.mirror import PoolMirror
from paddock.store.database import Database
from paddock.store.store import PgStore
from paddock.system import SystemIds
from tests.support.github import NoWakeups
from tests.support.time import ManualClock

TEMPLATE = {"spec": {"containers": [{"name": "runner", "image": "runner:1"}]}}


class Objects:
    """Kept as an API server keeps them: each write of a description is a generation."""

    def __init__(self) -> None:
        self.pools: dict[str, PoolObject] = {}
        self.told: list[PoolStatus] = []
        self.tried: list[PodOrder] = []

    def describe(self, name: str, **spec: Any) -> None:
        before = self.pools.get(name)
        described = json.dumps({"labels": ["linux"], "template": TEMPLATE, **spec}).encode()
        self.pools[name] = PoolObject(
            name=name,
            uid=f"uid-of-{name}",
            version="1",
            generation=before.generation + 1 if before else 1,
            spec=described,
            status=before.status if before else PoolStatus(),
            finalizers=before.finalizers if before else (),
        )

    async def list(self) -> PoolObjects:
        return PoolObjects(pools=list(self.pools.values()), complete=True)

    async def changes(self) -> AsyncIterator[None]:
        for _ in self.pools:
            yield

    async def set_finalizers(self, pool: PoolObject, finalizers: Sequence[str]) -> bool:
        self.pools[pool.name] = replace(pool, finalizers=tuple(finalizers))
        return True

    async def set_status(self, pool: PoolObject, status: PoolStatus) -> None:
        self.told.append(status)
        self.pools[pool.name] = replace(self.pools[pool.name], status=status)

    async def try_out(self, order: PodOrder) -> str | None:
        self.tried.append(order)
        return None


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(database: Database, clock: ManualClock) -> PgStore:
    return PgStore(database, clock=clock, ids=SystemIds(), actor="test")


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def mirror(store: PgStore, objects: Objects, clock: ManualClock) -> PoolMirror:
    return PoolMirror(store=store, pools=objects, trial=objects, clock=clock, wakeups=NoWakeups())


async def applied(database: Database) -> int:
    async with database.transaction() as connection:
        found: int = await connection.fetchval(
            "SELECT count(*) FROM events WHERE after = 'applied'"
        )
        return found


async def test_an_object_that_has_not_changed_is_applied_once(
    mirror: PoolMirror, objects: Objects, store: PgStore, database: Database, clock: ManualClock
) -> None:
    """PostgreSQL keeps a description in a hand of its own: it was taken for another one in every round,
    with a trial and an event each."""
    objects.describe("linux", minIdle=2, maxRunners=0, resources={"vcpu": "1.5"})
    for _ in range(4):
        await mirror.round()
        clock.advance(120)
    assert await applied(database) == 1
    assert len(objects.tried) == 1
    assert len(objects.told) == 1

    objects.describe("linux", minIdle=3, maxRunners=0, resources={"vcpu": "1.5"})
    for _ in range(2):
        await mirror.round()
    assert await applied(database) == 2
    [pool] = await store.list_pools()
    assert json.loads(pool.spec)["minIdle"] == 3
