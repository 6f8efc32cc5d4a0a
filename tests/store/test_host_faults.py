"""A host that reports itself unfit: its pool loses its room, every reader shows the fault, and the
host returns when it is well."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from paddock.domain.limits import Resources
from paddock.domain.pods.pod import Host
from paddock.store.database import Database
from paddock.store.reading import PgReading
from paddock.web.dashboard.attention import attention
from paddock.web.metrics import Metrics
from tests.support.pools import PoolWorld

ONE = Resources(runners=1, vcpu_milli=8000, memory_mib=16_000)
BUSY = "LoadFailed: cannot define table vm_sources: Resource busy"


@pytest.fixture
async def world(database: Database) -> PoolWorld:
    """Three hosts with room for one runner each, and a pool that wants more."""
    made = PoolWorld(database, hosts=("mac-1", "mac-2", "mac-3"))
    await made.begin()
    for name in ("mac-1", "mac-2", "mac-3"):
        made.fleet.set_host(Host(name=name, capacity=ONE))
    await made.apply("macs", minIdle=5, shape="single")
    await made.rounds()
    return made


async def fault(world: PoolWorld, host: str, why: str | None) -> None:
    world.fleet.set_host(Host(name=host, capacity=ONE, fault=why))
    world.clock.advance(10)
    await world.rounds()


async def test_a_pools_size_follows_the_faults_of_its_hosts(world: PoolWorld) -> None:
    assert await world.counts() == {"idle": 3}
    await fault(world, "mac-2", BUSY)
    assert await world.counts() == {"idle": 2}
    assert world.fleet.orders[-1].exclude in ((), ("mac-2",))
    before = len(world.fleet.orders)
    await fault(world, "mac-2", None)
    assert await world.counts() == {"idle": 3}
    assert [order.exclude for order in world.fleet.orders[before:]] == [()]


async def test_new_pods_are_not_put_where_there_is_a_fault(world: PoolWorld) -> None:
    await fault(world, "mac-2", BUSY)
    [runner, *_] = await world.store.live_runners()
    await world.end(runner.id)
    before = len(world.fleet.orders)
    await world.rounds()
    assert {order.exclude for order in world.fleet.orders[before:]} == {("mac-2",)}


async def test_a_leader_that_cannot_ask_yet_believes_the_one_before(world: PoolWorld) -> None:
    await fault(world, "mac-2", BUSY)
    [runner, *_] = await world.store.live_runners()
    await world.end(runner.id)
    world.reconciler = world.leader()
    world.fleet.fail("hosts")
    before = len(world.fleet.orders)
    await world.round()
    assert {order.exclude for order in world.fleet.orders[before:]} == {("mac-2",)}


async def test_a_fault_is_known_with_its_words_and_its_time_until_it_is_gone(
    world: PoolWorld,
) -> None:
    began = world.clock.now()
    await fault(world, "mac-2", BUSY)
    [known] = await world.store.host_faults()
    assert (known.host, known.reason, known.why) == ("mac-2", "LoadFailed", BUSY)
    await fault(world, "mac-2", "VerifyFailed: the table blocked_dst has other entries")
    [later] = await world.store.host_faults()
    assert later.reason == "VerifyFailed"
    assert later.since == known.since > began
    await fault(world, "mac-2", None)
    assert await world.store.host_faults() == []


async def test_another_leader_forgets_what_is_no_more(world: PoolWorld) -> None:
    await fault(world, "mac-2", BUSY)
    world.fleet.set_host(Host(name="mac-2", capacity=ONE))
    world.reconciler = world.leader()
    await world.round()
    assert await world.store.host_faults() == []


async def test_a_fault_is_measured_and_its_series_disappears_with_it(world: PoolWorld) -> None:
    """I61"""
    await fault(world, "mac-2", BUSY)
    world.clock.advance(300)
    assert (await series(world))["mac-2", "LoadFailed"] > 300
    await fault(world, "mac-2", None)
    assert await series(world) == {}


async def test_the_dashboards_first_page_says_so(world: PoolWorld, database: Database) -> None:
    await fault(world, "mac-2", BUSY)
    world.clock.advance(600)
    notes = attention(await PgReading(database, world.clock).overview())
    assert notes[0].kind == "bad"
    assert notes[0].text.startswith("mac-2 has been unfit for runners for 10")
    assert notes[0].text.endswith(BUSY)


async def series(world: PoolWorld) -> dict[tuple[str, str], float]:
    answer = await Metrics(PgReading(world.database, world.clock), world.clock).respond(
        Request({"type": "http"})
    )
    return {
        (sample.labels["host"], sample.labels["reason"]): sample.value
        for family in text_string_to_metric_families(bytes(answer.body).decode())
        if family.name == "paddock_host_fault_seconds"
        for sample in family.samples
    }
