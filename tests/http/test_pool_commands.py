"""`paddock pools explain` and `delete`, as they are typed."""

from __future__ import annotations

import pytest

from paddock.domain.github.backoffs import ENDED_WITHOUT_A_JOB, BackOffScope, BackOffSubject
from paddock.domain.limits import Limits, Resources
from paddock.domain.pods.pod import Host
from paddock.store.database import Database
from paddock.system import SystemClock
from tests.http.test_operating import Commands
from tests.support.pools import PoolWorld

pytestmark = pytest.mark.slow


@pytest.fixture
def paddock(database_url: str) -> Commands:
    return Commands(database_url)


@pytest.fixture
async def world(database: Database) -> PoolWorld:
    world = PoolWorld(database)
    await world.begin()
    # The command reads the time from its own clock.
    behind = SystemClock().now() - world.clock.now()
    world.clock.advance(behind.total_seconds() - 300)
    return world


async def test_a_pool_explains_its_size_and_why_it_is_not_more(
    paddock: Commands, world: PoolWorld
) -> None:
    pool = await world.apply(
        minIdle=2, maxRunners=12, provisioning="{maxStarting: 3}", resources="{vcpu: 1}"
    )
    account = await world.account(limits=Limits(runners=4))
    await world.queue(account, await world.key(account, pool), 9)
    await world.rounds(1)
    await world.round()
    text = paddock("pools", "explain", "linux").stdout
    assert "linux: active." in text
    assert (
        "should have 7: 7 wanted: 4 for queued jobs + 1 for work withheld by a cap + 2 kept idle"
        in text
    )
    assert "not more: an account's or repository's limit withholds work that is queued" in text
    assert "has 3 booting" in text
    assert "has 3 idle" in text
    assert "not more: 3 are starting, and 3 may at once (for now)" in text
    assert "org-1: 9 queued, the oldest for" in text


async def test_stale_and_leaving_runners_are_told_with_their_reasons(
    paddock: Commands, world: PoolWorld
) -> None:
    await world.apply(size=4, resources="{vcpu: 1}")
    await world.rounds(3)
    await world.apply(size=4, resources="{vcpu: 2}")
    await world.round()
    text = paddock("pools", "explain", "linux").stdout
    assert "should have 4: 4 wanted: a fixed size" in text
    assert "has 3 idle, 3 of them stale" in text
    assert "its pool's description has changed since it was made" in text


async def test_what_is_not_served_says_why(paddock: Commands, world: PoolWorld) -> None:
    pool = await world.apply()
    account = await world.account()
    key = await world.key(account, pool)
    await world.queue(account, key, 1)
    world.clock.advance(300)
    for _ in range(5):
        await world.store.back_off(BackOffSubject(BackOffScope.KEY, key), ENDED_WITHOUT_A_JOB)
    await world.round()
    assert "not served for another" in paddock("pools", "explain", "linux").stdout


async def test_hosts_that_are_unfit_are_told_where_room_is_short(
    paddock: Commands, world: PoolWorld
) -> None:
    one = Resources(runners=1, vcpu_milli=1000, memory_mib=1000)
    world.fleet.set_host(Host(name="mac-1", capacity=one))
    world.fleet.set_host(Host(name="host-1", capacity=one, fault="LoadFailed: Resource busy"))
    await world.apply(minIdle=2)
    await world.rounds()
    text = paddock("pools", "explain", "linux").stdout
    assert "not more: the hosts there are have room for 1, shared with other pools" in text
    assert "not more: host-1 is not fit for runners: LoadFailed: Resource busy" in text
    unfit = paddock("doctor")
    assert "host host-1: it has been unfit for runners since" in unfit.stdout
    assert unfit.returncode == 1


async def test_the_same_is_told_to_programs(paddock: Commands, world: PoolWorld) -> None:
    await world.apply(minIdle=2)
    await world.rounds()
    told = paddock.json("pools", "explain", "linux")
    assert told["decision"]["target"] == 2
    assert told["decision"]["terms"]["minIdle"] == 2
    assert len(told["runners"]["idle"]) == 2


async def test_a_pool_without_a_decision_asks_whether_paddock_runs(
    paddock: Commands, world: PoolWorld
) -> None:
    await world.apply()
    assert "is paddock running?" in paddock("pools", "explain", "linux").stdout


async def test_a_pool_is_deleted_when_its_last_runner_is_gone(
    paddock: Commands, world: PoolWorld
) -> None:
    """I42"""
    await world.apply(size=1)
    await world.rounds(2)
    assert "is being deleted" in paddock("pools", "delete", "linux").stdout
    assert "already" in paddock("pools", "delete", "linux").stdout
    assert "being deleted; runners left: 1." in paddock("pools", "explain", "linux").stdout
    await world.rounds(3)
    assert paddock.json("pools", "list") == []
    missing = paddock("pools", "explain", "linux")
    assert missing.returncode == 3
    assert "There is no pool linux" in missing.stderr
