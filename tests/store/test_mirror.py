"""RunnerPool objects mirrored into pools, with a real store. Their API server is in `tests/cluster`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from paddock.domain.ids import AccountId, PoolId
from paddock.domain.pods.pod import PodOrder
from paddock.domain.pools.objects import PoolObject, PoolObjects, PoolStatus
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.runners.versions import RunnerVersion, VersionSchedule
from paddock.pools.mirror import PoolMirror
from paddock.store.database import Database
from paddock.store.store import PgStore
from paddock.system import SystemIds
from tests.support.github import NoWakeups
from tests.support.time import ManualClock
from tests.support.world import World

RUNNER = {"name": "runner", "image": "runner:1"}
TEMPLATE = {"spec": {"containers": [RUNNER]}}
#: Descriptions that once stopped the mirror, and with it all pools after theirs.
MALFORMED: dict[str, dict[str, Any]] = {
    "projected is text": {"volumes": [{"name": "v", "projected": "x"}]},
    "sources is text": {"volumes": [{"name": "v", "projected": {"sources": "x"}}]},
    "a source is text": {"volumes": [{"name": "v", "projected": {"sources": ["x"]}}]},
    "a token is text": {
        "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": "x"}]}}]
    },
    "securityContext is text": {"containers": [{**RUNNER, "securityContext": "x"}]},
    "capabilities is text": {"containers": [{**RUNNER, "securityContext": {"capabilities": "x"}}]},
    "add is a number": {
        "containers": [{**RUNNER, "securityContext": {"capabilities": {"add": 7}}}]
    },
    "resources is text": {"containers": [{**RUNNER, "resources": "x"}]},
    "limits is a list": {"containers": [{**RUNNER, "resources": {"limits": ["x"]}}]},
    "a limit overflows": {"containers": [{**RUNNER, "resources": {"limits": {"cpu": "1e999999"}}}]},
    "limits overflow together": {
        "containers": [
            {**RUNNER, "resources": {"limits": {"cpu": "2000000"}}},
            {"name": "other", "image": "x", "resources": {"limits": {"cpu": "2000000"}}},
        ]
    },
    "a name is a list": {"containers": [RUNNER, {"name": ["x"], "image": "x"}]},
    "overhead is text": {"overhead": "x"},
    "NUL cannot be stored": {"hostname": "a\0b"},
}


class Objects:
    """Keeps objects like an API server: each write of a description is a generation."""

    def __init__(self) -> None:
        self.pools: dict[str, PoolObject] = {}
        self.told: list[PoolStatus] = []
        self.tried: list[PodOrder] = []
        #: The fleet's own rules refuse these pools' Pods.
        self.refused: dict[str, str] = {}

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

    def accepted(self, name: str) -> tuple[str, str, str]:
        [condition] = [
            each for each in self.pools[name].status.conditions if each.type == "Accepted"
        ]
        return condition.status, condition.reason, condition.message

    def template_refusal(self, order: PodOrder) -> str | None:
        return self.refused.get(order.pool)

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
    """PostgreSQL normalises a stored description. The mirror took it for another one in every round,
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


@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_object_is_reported_and_holds_up_no_other(
    malformed: dict[str, Any], mirror: PoolMirror, objects: Objects, store: PgStore
) -> None:
    """I57"""
    objects.describe(
        "bad", labels=["bad"], template={"spec": {"containers": [RUNNER], **malformed}}
    )
    objects.describe("good", labels=["good"])
    for _ in range(3):
        await mirror.round()
    assert [pool.name for pool in await store.list_pools()] == ["good"]
    assert objects.accepted("good") == ("True", "Mirrored", "")
    status, reason, message = objects.accepted("bad")
    assert (status, reason) == ("False", "Refused")
    assert message.endswith(". No runner is made for it.")
    assert len(message) < 300


async def test_a_pool_whose_object_becomes_malformed_keeps_its_last_description(
    mirror: PoolMirror, objects: Objects, store: PgStore
) -> None:
    objects.describe("linux", maxRunners=3)
    for _ in range(2):
        await mirror.round()
    [before] = await store.list_pools()
    objects.describe("linux", maxRunners=7, template={"spec": {"containers": "x"}})
    for _ in range(2):
        await mirror.round()
    [after] = await store.list_pools()
    assert after == before
    status, _, message = objects.accepted("linux")
    assert status == "False"
    assert message.endswith(". The pool keeps the description that was last accepted.")


async def test_a_pool_whose_stored_description_is_no_longer_permitted_says_that_it_makes_no_pods(
    mirror: PoolMirror, objects: Objects, store: PgStore
) -> None:
    """After an upgrade with stricter rules, or another setting."""
    objects.describe("linux")
    for _ in range(2):
        await mirror.round()
    assert objects.accepted("linux")[0] == "True"
    objects.refused["linux"] = "template.spec.x is refused"
    await mirror.round()
    status, reason, message = objects.accepted("linux")
    assert (status, reason) == ("False", "TemplateRefused")
    assert message == (
        "template.spec.x is refused. The pool makes no new Pods until this is corrected; the Pods it "
        "has stay."
    )
    assert [pool.state for pool in await store.list_pools()] == ["active"]
    objects.refused.clear()
    await mirror.round()
    assert objects.accepted("linux") == ("True", "Mirrored", "")


async def test_an_unexpected_failure_is_reported_and_holds_up_no_other(
    mirror: PoolMirror, objects: Objects, store: PgStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I57: for any unforeseen error."""
    apply_pool = store.apply_pool

    async def apply(pool: PoolFacts) -> PoolId:
        if pool.name == "bad":
            raise ZeroDivisionError("a bug")
        return await apply_pool(pool)

    monkeypatch.setattr(store, "apply_pool", apply)
    objects.describe("bad", labels=["bad"])
    objects.describe("good", labels=["good"])
    for _ in range(3):
        await mirror.round()
    assert objects.accepted("good")[0] == "True"
    status, reason, message = objects.accepted("bad")
    assert (status, reason) == ("False", "InternalError")
    assert "ZeroDivisionError" in message


async def test_pods_that_know_the_server_by_another_address_are_stale_if_it_is_https(
    store: PgStore, objects: Objects, database: Database, clock: ManualClock
) -> None:
    """Switching TLS on or off cuts off the existing Pods. Where all of them are cut off recovery
    retires none for silence, so a full pool would wait for ever."""
    objects.describe("linux", minIdle=2)

    async def mirrored(server: str) -> str:
        mirror = PoolMirror(
            store=store,
            pools=objects,
            trial=objects,
            clock=clock,
            wakeups=NoWakeups(),
            server=server,
        )
        for _ in range(3):
            await mirror.round()
        async with database.transaction() as connection:
            found: str = await connection.fetchval("SELECT spec_hash FROM pools")
        return found

    before = await mirrored("")
    # Without TLS the address does not count: an upgrade of paddock rolls nothing.
    assert await mirrored("http://one:8788") == before
    assert await applied(database) == 1
    secured = await mirrored("https://one:8788")
    assert secured != before
    assert await mirrored("https://one:8788") == secured
    assert await applied(database) == 2
    assert await mirrored("https://two:8788") not in (before, secured)
    assert await mirrored("http://one:8788") == before
    assert await applied(database) == 4


async def test_a_pool_says_how_long_github_accepts_its_runner_version(
    mirror: PoolMirror, objects: Objects, store: PgStore, database: Database, clock: ManualClock
) -> None:
    def told() -> tuple[str, str] | None:
        found = {each.type: each for each in objects.pools["linux"].status.conditions}
        condition = found.get("RunnerVersion")
        return None if condition is None else (condition.status, condition.reason)

    objects.describe("linux")
    await mirror.round()
    await mirror.round()
    assert told() is None

    account = await _account_with_version(database, "linux", "2.336.0")
    schedule = VersionSchedule(
        version=RunnerVersion("2.336.0"),
        registration_ends_at=None,
        runtime_ends_at=clock.now() + timedelta(days=30),
    )
    await store.answer_version(account, schedule, ask_at=clock.now() + timedelta(days=1))
    await mirror.round()
    assert told() == ("True", "Accepted")
    clock.advance(10 * 86_400.0)
    await mirror.round()
    assert told() == ("True", "EndsSoon")
    clock.advance(20 * 86_400.0)
    await mirror.round()
    assert told() == ("False", "Refused")
    assert objects.accepted("linux") == ("True", "Mirrored", "")

    objects.describe("linux", template={"spec": {"containers": [{**RUNNER, "image": "runner:2"}]}})
    await mirror.round()
    await mirror.round()
    assert told() is None


async def _account_with_version(database: Database, pool: str, version: str) -> AccountId:
    """An account that uses the pool, whose newest Pods have that version."""
    world = await World(database).begin()
    account = await world.account()
    [found] = await world.rows(
        "INSERT INTO pod_versions SELECT spec_hash, $2 FROM pools WHERE name = $1"
        " RETURNING (SELECT id FROM pools WHERE name = $1) AS pool",
        pool,
        version,
    )
    await world.key(account, PoolId(found["pool"]))
    return account
