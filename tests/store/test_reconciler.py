"""Pools over a fleet: filled, rolled, shrunk, drained and explained, with a real store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from paddock.domain.ids import PoolId, RunnerId
from paddock.domain.limits import Limits, Resources
from paddock.domain.pods.pod import PodOrder
from paddock.domain.recovery.diagnosis import diagnose
from paddock.domain.recovery.evidence import Container, Evidence, PodSeen, Sighting
from paddock.domain.recovery.records import RunnerEnd
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Conflict, Runner
from paddock.domain.states import RunnerState
from paddock.ports import Topic
from paddock.ports.errors import StoreError
from paddock.store.database import Database
from tests.support.pools import PoolWorld

BOOTING, IDLE, RETIRING = RunnerState.BOOTING, RunnerState.IDLE, RunnerState.RETIRING


class Planned(Exception):
    """The reconciler has ordered a Pod."""


@pytest.fixture
async def world(database: Database) -> PoolWorld:
    world = PoolWorld(database)
    await world.begin()
    return world


async def test_a_pool_is_filled_to_what_it_keeps_idle(world: PoolWorld) -> None:
    await world.apply(minIdle=3)
    await world.rounds()
    assert await world.counts() == {"idle": 3}


async def test_queued_jobs_bring_runners_for_themselves_beside_those_kept_idle(
    world: PoolWorld,
) -> None:
    """I44"""
    pool = await world.apply(minIdle=1)
    account = await world.account()
    await world.queue(account, await world.key(account, pool), 5)
    await world.rounds()
    assert await world.counts() == {"idle": 6}


async def test_a_burst_is_not_built_for_twice(world: PoolWorld) -> None:
    """I73"""
    pool = await world.apply()
    account = await world.account()
    await world.queue(account, await world.key(account, pool), 10)
    await world.rounds()
    assert len(await world.claim(10)) == 10
    await world.rounds()
    assert await world.counts() == {"claimed": 10}


async def test_starts_are_limited_and_unseen_creates_count(world: PoolWorld) -> None:
    """I49"""
    await world.apply(size=9, provisioning="{maxStarting: 2}")
    world.fleet.fail("create")
    for _ in range(5):
        await world.round()
    assert await world.counts() == {"booting": 2}
    world.fleet.fail("create", times=0)
    await world.rounds(12)
    assert await world.counts() == {"booting": 2}


async def test_an_order_that_was_lost_is_made_again_under_the_same_name(world: PoolWorld) -> None:
    """I28"""
    await world.apply(size=1)
    world.fleet.fail("create", times=1)
    await world.round()
    world.clock.advance(60)
    await world.rounds(2)
    assert len({order.name for order in world.fleet.orders}) == 1
    assert await world.counts() == {"idle": 1}


async def test_a_row_whose_leader_died_before_it_asked_gets_its_pod(world: PoolWorld) -> None:
    """I28"""
    await world.apply(size=1)
    orders = await world.reconciler.decide()
    assert len(orders) == 1
    world.reconciler = world.leader()
    await world.rounds(2)
    assert world.fleet.orders == []
    world.clock.advance(60)
    await world.rounds(2)
    assert await world.counts() == {"idle": 1}


async def test_a_lost_reply_makes_no_second_pod(world: PoolWorld) -> None:
    await world.apply(size=1)
    world.fleet.lose_reply("create")
    await world.rounds()
    world.clock.advance(60)
    await world.rounds()
    assert len(world.fleet.pods) == 1


async def test_a_pod_that_is_slow_to_start_is_not_asked_for_again(world: PoolWorld) -> None:
    await world.apply(size=1)
    await world.round()
    world.clock.advance(120)
    await world.round()
    assert len(world.fleet.orders) == 1


async def test_a_list_that_is_not_complete_repeats_no_create(world: PoolWorld) -> None:
    """I29"""
    await world.apply(size=1)
    await world.round()
    [name] = world.fleet.pods
    hidden = world.fleet.pods.pop(name)
    world.complete = False
    world.clock.advance(60)
    await world.round()
    assert len(world.fleet.orders) == 1
    world.fleet.pods[name] = hidden


async def test_a_pod_that_failed_holds_no_place(world: PoolWorld) -> None:
    """I40"""
    await world.apply(size=2)
    await world.rounds()
    failed = next(iter(world.fleet.pods))
    world.fleet.end_runner(failed, exit_code=1)
    await world.round()
    assert await world.counts() == {"idle": 2}, "its own end comes first"
    for _ in range(3):
        await world.round()
    await world.let_start()
    assert await world.counts() == {"idle": 3}
    assert len(world.fleet.pods) == 3


async def test_a_queued_job_does_not_wait_behind_the_ends_of_others(world: PoolWorld) -> None:
    account = await world.account()
    pool = await world.apply(minIdle=2, maxRunners=20)
    await world.rounds()
    failed = next(iter(world.fleet.pods))
    world.fleet.end_runner(failed, exit_code=1)
    await world.queue(account, await world.key(account, pool), 5)
    await world.round()
    assert len(world.fleet.pods) == 2 + 5 + 1


async def test_a_deliberate_zero_retires_all_waiting_runners(world: PoolWorld) -> None:
    """I54"""
    pool = await world.apply(minIdle=3)
    account = await world.account()
    await world.queue(account, await world.key(account, pool), 1)
    await world.rounds()
    [claimed] = await world.claim(1)
    await world.apply(minIdle=3, maxRunners=0)
    await world.rounds()
    assert await world.counts() == {"claimed": 1}
    assert (await world.runner(claimed.id)).generation == claimed.generation


async def test_one_that_is_claimed_in_the_same_moment_is_not_fenced(world: PoolWorld) -> None:
    """I16"""
    pool = await world.apply(size=1)
    account = await world.account()
    await world.queue(account, await world.key(account, pool), 1)
    await world.rounds()
    world.fleet.cordon("host-1")
    world.clock.advance(10)
    fence = world.store.fence_runner

    async def claimed_first(runner: RunnerId, **how: object) -> Runner | Conflict:
        await world.claim(1)
        return await fence(runner, **how)  # type: ignore[arg-type]

    world.store.fence_runner = claimed_first  # type: ignore[method-assign]
    await world.round()
    assert await world.counts() == {"claimed": 1}


async def test_a_blip_does_not_shrink_a_pool(world: PoolWorld) -> None:
    """I53"""
    pool = await world.apply(stabilisationWindow="2m")
    account = await world.account()
    jobs = await world.queue(account, await world.key(account, pool), 4)
    await world.rounds()
    await world.rows("UPDATE jobs SET key_id = NULL, refusal = 'blip' WHERE id = ANY ($1)", jobs)
    await world.rounds()
    assert await world.counts() == {"idle": 4}
    world.clock.advance(120)
    await world.rounds()
    assert await world.counts() == {}


async def test_a_new_leader_knows_what_was_wanted_before_it(world: PoolWorld) -> None:
    """I53: without the stored decisions its first look would be all it knows."""
    pool = await world.apply(stabilisationWindow="10m")
    account = await world.account()
    jobs = await world.queue(account, await world.key(account, pool), 4)
    await world.rounds()
    await world.rows("UPDATE jobs SET key_id = NULL, refusal = 'blip' WHERE id = ANY ($1)", jobs)
    for runner in await world.having(IDLE):
        await world.end(runner.id)
    world.reconciler = world.leader()
    await world.rounds()
    assert await world.counts() == {"idle": 4}


async def test_a_pool_that_was_never_decided_on_begins_with_the_size_it_has(
    world: PoolWorld,
) -> None:
    """I53"""
    pool = await world.apply(minIdle=0, stabilisationWindow="5m")
    await world.idle_pods(pool, 3)
    await world.rounds()
    assert await world.counts() == {"idle": 3}
    world.clock.advance(300)
    await world.rounds()
    assert await world.counts() == {}


async def test_stale_runners_are_exchanged_and_enough_stay_ready(world: PoolWorld) -> None:
    """I52"""
    await world.apply(size=4, resources="{vcpu: 1}", rollout="{maxUnavailable: 1}")
    await world.rounds()
    old = {runner.id for runner in await world.having(IDLE)}
    await world.apply(size=4, resources="{vcpu: 2}", rollout="{maxUnavailable: 1}")
    ready = []
    for _ in range(20):
        await world.round()
        ready.append(len(await world.having(IDLE)))
        await world.let_leave()
        await world.let_start()
    assert min(ready) == 3
    assert await world.counts() == {"idle": 4}
    assert not old & {runner.id for runner in await world.having(IDLE)}


async def test_a_description_that_cannot_start_does_not_empty_the_pool(world: PoolWorld) -> None:
    """I52: the new Pods never become ready, so no more of the old ones leave."""
    await world.apply(size=8, resources="{vcpu: 1}")
    await world.rounds()
    await world.apply(size=8, resources="{vcpu: 2}")
    for _ in range(10):
        await world.round()
        await world.let_leave()
    assert await world.counts() == {"idle": 6, "booting": 2}


async def test_a_deleted_pool_waits_for_its_jobs_only(world: PoolWorld) -> None:
    """I42"""
    pool = await world.apply(size=3)
    account = await world.account()
    key = await world.key(account, pool)
    await world.queue(account, key, 2)
    await world.rounds()
    [busy] = await world.claim(1)
    assert await world.store.delete_pool(pool, why="test")
    assert not await world.store.delete_pool(pool, why="again")
    await world.rounds()
    assert await world.counts() == {"claimed": 1}
    assert busy.pod_name in world.fleet.pods
    assert await states(world, pool) == ["draining"]
    await world.end(busy.id)
    await world.rounds(1)
    assert await states(world, pool) == ["deleted"]


async def test_what_waited_for_a_deleted_pool_may_be_anothers(world: PoolWorld) -> None:
    """I42: renamed is deleted and made anew."""
    pool = await world.apply()
    account = await world.account()
    key = await world.key(account, pool)
    await world.queue(account, key, 1)
    await world.store.delete_pool(pool, why="renamed")
    [job] = await world.store.refused_jobs(10)
    # Judged at the moment of the deletion.
    await world.report(account, key, world.facts(7777))
    assert len(await world.store.refused_jobs(10)) == 1
    await world.round()
    assert [each.facts.id for each in await world.store.refused_jobs(10)] == [job.facts.id, 7777]


async def test_nothing_is_planned_for_a_pool_that_is_being_deleted(world: PoolWorld) -> None:
    """I42: a leader that read the pool a moment ago plans nothing that would keep it for ever."""
    pool = await world.apply(size=2)
    plan = world.store.plan_runners

    async def deleted_first(pool: PoolId, *args: object, **how: object) -> list[Runner]:
        await world.store.delete_pool(pool, why="test")
        return await plan(pool, *args, **how)  # type: ignore[arg-type]

    world.store.plan_runners = deleted_first  # type: ignore[method-assign]
    await world.rounds(2)
    assert await world.counts() == {}
    assert await states(world, pool) == ["deleted"]


async def test_a_pool_applied_again_while_it_is_deleted_lives_on(world: PoolWorld) -> None:
    pool = await world.apply(size=1)
    await world.rounds(2)
    await world.store.delete_pool(pool, why="test")
    assert await world.apply(size=1) == pool
    await world.rounds()
    assert await world.counts() == {"idle": 1}


async def test_a_paused_pool_keeps_what_it_has(world: PoolWorld) -> None:
    pool = await world.apply(size=2)
    await world.rounds()
    await world.store.pause_pool(pool, why="test")
    await world.apply(size=4, resources="{vcpu: 2}")
    world.clock.advance(3600)
    await world.rounds()
    assert await world.counts() == {"idle": 2}


async def test_a_leaving_host_keeps_its_jobs_and_no_idle_runner(database: Database) -> None:
    """I43"""
    world = PoolWorld(database, hosts=("a", "b"))
    await world.begin()
    pool = await world.apply(size=4)
    account = await world.account()
    await world.queue(account, await world.key(account, pool), 1)
    await world.rounds()
    [at_work] = await world.claim(1)
    host = world.fleet.pods[at_work.pod_name].node
    assert host is not None
    world.fleet.cordon(host)
    world.clock.advance(10)
    await world.round()
    assert all(
        world.fleet.pods[each.pod_name].node == host for each in await world.having(RETIRING)
    )
    await world.rounds()
    on_host = [pod.name for pod in world.fleet.pods.values() if pod.node == host]
    assert on_host == [at_work.pod_name]
    assert await world.counts() == {"claimed": 1, "idle": 3}


async def test_hosts_that_cannot_be_read_are_as_they_were(database: Database) -> None:
    """I29"""
    world = PoolWorld(database)
    await world.begin()
    world.fleet.set_capacity("host-1", Resources(runners=2))
    await world.apply(size=5)
    await world.rounds()
    world.fleet.fail("hosts")
    world.clock.advance(60)
    await world.rounds()
    assert await world.counts() == {"idle": 2}


async def test_an_exchange_on_full_hosts_does_not_feed_on_itself(world: PoolWorld) -> None:
    """I52: the leaving Pods still have their places; the pool's size is not smaller for that."""
    world.fleet.set_capacity("host-1", Resources(runners=4, vcpu_milli=9000))
    await world.apply(minIdle=4, resources="{vcpu: 1}")
    await world.rounds()
    await world.apply(minIdle=4, resources="{vcpu: 2}")
    for _ in range(5):
        await world.round()
    assert await world.counts() == {"idle": 3, "retiring": 1, "booting": 1}


async def test_new_pods_keep_away_from_a_host_on_which_none_starts(database: Database) -> None:
    """I51"""
    world = PoolWorld(database, hosts=("a", "b", "c"))
    await world.begin()
    await world.apply(size=6)
    await world.rounds()
    assert {order.avoid for order in world.fleet.orders} == {()}
    for _ in range(3):
        await failed_start(world, "b", poller=Container.BROKEN)
    for _ in range(5):
        await failed_start(world, "a", poller=Container.IMAGE_ERROR)
    await world.apply(size=9)
    world.clock.advance(60)
    await world.rounds()
    assert {order.avoid for order in world.fleet.orders[6:]} == {("b",)}


async def test_a_start_that_succeeded_since_forgives_those_that_failed(database: Database) -> None:
    """I51: a Pod from before them that goes on polling is none."""
    world = PoolWorld(database, hosts=("a", "b", "c"))
    await world.begin()
    pool = await world.apply(size=3)
    [before] = await world.idle_pods(pool, 1)
    await world.rows("UPDATE runners SET node = 'b' WHERE id = $1", before.id)
    for _ in range(3):
        await failed_start(world, "b", poller=Container.BROKEN)
    world.clock.advance(1)
    await world.store.hear_again({before.id: world.clock.now()})
    assert [each.host for each in await world.store.failed_starts(since=EVER)] == ["b"]
    [since] = await world.idle_pods(pool, 1)
    await world.rows("UPDATE runners SET node = 'b' WHERE id = $1", since.id)
    assert await world.store.failed_starts(since=EVER) == []


async def test_pools_share_the_hosts_there_are(database: Database) -> None:
    """I47: real load first, then floors."""
    world = PoolWorld(database, hosts=("a", "b"))
    await world.begin()
    for host in ("a", "b"):
        world.fleet.set_capacity(host, Resources(runners=100, vcpu_milli=4000, memory_mib=99_999))
    warm = await world.apply("warm", minIdle=8, resources="{vcpu: 1}")
    await world.rounds()
    assert await world.counts(warm) == {"idle": 8}
    loaded = await world.apply("loaded", resources="{vcpu: 1}")
    account = await world.account()
    await world.queue(account, await world.key(account, loaded), 6)
    await world.rounds(12)
    assert await world.counts(warm) == {"idle": 2}
    assert await world.counts(loaded) == {"idle": 6}


async def test_a_pool_that_waits_for_new_hosts_is_not_held_to_those_there_are(
    world: PoolWorld,
) -> None:
    world.fleet.set_capacity("host-1", Resources(runners=100, vcpu_milli=2000, memory_mib=99_999))
    await world.apply(size=5, capacity="elastic", resources="{vcpu: 1}")
    await world.rounds()
    assert await world.counts() == {"idle": 5}


async def test_keys_that_dispatch_would_not_serve_are_built_nothing_for(world: PoolWorld) -> None:
    """I44"""
    pool = await world.apply()
    paused, served = await world.account(), await world.account()
    await world.queue(paused, await world.key(paused, pool), 5)
    await world.queue(served, await world.key(served, pool), 2)
    await world.store.pause_account(paused, why="test")
    await world.rounds()
    assert await world.counts() == {"idle": 2}


async def test_work_withheld_by_a_cap_keeps_one_pod(world: PoolWorld) -> None:
    """I44"""
    pool = await world.apply()
    account = await world.account(limits=Limits(runners=2))
    await world.queue(account, await world.key(account, pool), 9)
    await world.rounds()
    assert await world.counts() == {"idle": 3}


async def test_suspects_and_echoes_count_as_the_matcher_counts_them(world: PoolWorld) -> None:
    """I73: sized by another supply than dispatch serves by, a pool has too many or too few."""
    pool = await world.apply(stabilisationWindow="0s")
    account = await world.account()
    key = await world.key(account, pool)
    await world.queue(account, key, 2)
    await world.rounds()
    one, other = await world.claim(2)
    await world.rows("UPDATE runners SET suspect_at = $2 WHERE id = $1", one.id, world.clock.now())
    await world.rounds()
    assert await world.counts() == {"claimed": 2, "idle": 1}
    await world.end(other.id)
    await world.rows(
        "INSERT INTO supply_graces VALUES ($1, $2, $3::timestamptz + interval '2 min')",
        other.id,
        key,
        world.clock.now(),
    )
    await world.rounds()
    assert await world.counts() == {"claimed": 1, "idle": 1}


async def test_one_fence_that_fails_holds_up_no_other(world: PoolWorld) -> None:
    """I57"""
    await world.apply(size=3)
    await world.rounds()
    fence, stuck = world.store.fence_runner, (await world.having(IDLE))[0].id

    async def failing(runner: RunnerId, **how: object) -> Runner | Conflict:
        if runner == stuck:
            raise StoreError("the test says so")
        return await fence(runner, **how)  # type: ignore[arg-type]

    world.store.fence_runner = failing  # type: ignore[method-assign]
    await world.apply(size=0)
    await world.rounds()
    assert [runner.id for runner in await world.store.live_runners()] == [stuck]


async def test_one_create_that_fails_holds_up_no_other(world: PoolWorld) -> None:
    """I57"""
    await world.apply(size=3)
    orders = await world.reconciler.decide()
    world.fleet.fail("create", pod=orders[0].name)
    world.clock.advance(60)
    await world.rounds()
    assert await world.counts() == {"booting": 1, "idle": 2}


async def test_a_fleet_that_is_slow_to_create_holds_up_no_other(world: PoolWorld) -> None:
    """I57: the real loop runs, and none of its creates is answered."""
    await world.apply("slow", size=1)
    with world.fleet.stalled("create"):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(world.leader(Restless()).run())
            await until(lambda: len(world.fleet.orders) == 1)
            await world.apply("quick", size=2)
            await until(lambda: len(world.fleet.orders) == 3)
            running.cancel()
    assert {order.pool for order in world.fleet.orders} == {"slow", "quick"}
    assert world.fleet.pods == {}


async def handing_over(world: PoolWorld) -> None:
    """The only idle runner of a pool that keeps one was claimed, and its JIT is handed over."""
    pool = await world.apply(minIdle=1)
    await world.rounds()
    account = await world.account()
    await world.queue(account, await world.key(account, pool), 1)
    assert len(await world.claim(1)) == 1


async def test_replacements_wait_for_a_handover_but_not_for_long(world: PoolWorld) -> None:
    await handing_over(world)
    assert await world.reconciler.decide() == []
    world.clock.advance(2.6)
    assert len(await world.reconciler.decide()) == 1


async def test_replacements_do_not_wait_longer_where_a_look_takes_long(world: PoolWorld) -> None:
    """On a busy machine the loop pauses for many times as long as its look took."""
    await handing_over(world)
    began, decide = world.clock.monotonic(), world.reconciler.decide

    async def slowly() -> list[PodOrder]:
        if orders := await decide():
            raise Planned(world.clock.monotonic() - began)
        world.clock.advance(0.3)
        return orders

    world.reconciler.decide = slowly  # type: ignore[method-assign]
    with pytest.RaisesGroup(Planned) as raised:
        await world.reconciler.run()
    [planned] = raised.value.exceptions
    assert planned.args[0] < 3


async def test_a_pool_whose_description_is_no_use_stops_no_other(world: PoolWorld) -> None:
    """I57, I88"""
    broken = await world.apply("broken", size=2)
    await world.apply("sound", size=1)
    await world.rows('UPDATE pools SET spec = \'{"size": "many"}\' WHERE id = $1', broken)
    await world.rounds()
    assert await world.counts() == {"idle": 1}


async def test_two_leaders_at_once_settle_on_the_size(world: PoolWorld) -> None:
    """I28"""
    await world.apply(size=4)
    first, second = world.reconciler, world.leader()
    for _ in range(6):
        await first.round()
        await second.round()
        await world.let_start()
        await world.let_leave()
    assert await world.counts() == {"idle": 4}


async def test_each_decision_is_stored_with_its_terms(world: PoolWorld) -> None:
    pool = await world.apply(minIdle=2, maxRunners=4)
    account = await world.account()
    await world.rounds(3)
    await world.queue(account, await world.key(account, pool), 3)
    await world.rounds(3)
    rows = await world.rows("SELECT wanted, target, why FROM pool_decisions ORDER BY id")
    assert [tuple(row) for row in rows] == [
        (2, 2, "2 wanted: 2 kept idle"),
        (4, 4, "4 wanted: 3 for queued jobs + 2 kept idle, limited to the maximum of 4"),
    ]


EVER = datetime(2020, 1, 1, tzinfo=UTC)


class Restless:
    """A waiter that is woken all the time."""

    def subscribe(self, *topics: Topic) -> Restless:
        return self

    async def wait(self, timeout: float) -> frozenset[Topic]:
        await asyncio.sleep(0.01)
        return frozenset({Topic.DEMAND})


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  # no event reports it
        await asyncio.sleep(0.01)


async def failed_start(world: PoolWorld, host: str, *, poller: Container) -> None:
    """A runner that recovery gave up because its Pod did not reach its poller, for the reason that it
    really writes, and what its Pod's events said."""
    world.clock.advance(1)
    [pool] = [row["id"] for row in await world.rows("SELECT id FROM pools")]
    [runner] = await world.idle_pods(pool, 1)
    await world.rows("UPDATE runners SET node = $2, heard_at = NULL WHERE id = $1", runner.id, host)
    seen = PodSeen(
        sighting=Sighting.PRESENT, unchanged=3600, poller=poller, runner=Container.WAITING
    )
    evidence = Evidence(state=RunnerState.BOOTING, since=3600, shape="gated", pod=seen)
    verdict = diagnose(evidence, Thresholds())
    assert verdict.rule == "never-started"
    fenced = await world.store.fence_runner(
        runner.id,
        generation=runner.generation,
        state=RunnerState.IDLE,
        why=f"{verdict.rule}: {verdict.why}",
        evidence=msgspec.json.encode(evidence).decode(),
    )
    assert isinstance(fenced, Runner)
    events = (
        '{"circumstances": ["Pulled: Container image \\"runner\\" already present on machine"]}'
    )
    await world.store.conclude_runners(
        [
            RunnerEnd(
                runner=fenced.id,
                generation=fenced.generation,
                state=fenced.state,
                ending=Ending.NEVER_STARTED,
                why="It was given up because its runner container did not start.",
                ended_at=world.clock.now(),
                evidence=events,
            )
        ]
    )


async def states(world: PoolWorld, pool: PoolId) -> list[str]:
    return [row["state"] for row in await world.rows("SELECT state FROM pools WHERE id = $1", pool)]
