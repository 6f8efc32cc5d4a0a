"""The simulator itself: a judge that cannot be trusted proves nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from paddock.dispatch import dispatcher
from paddock.domain.limits import UNLIMITED, Limits
from paddock.domain.pods.pod import Phase
from paddock.domain.runners.runner import Match
from paddock.fakes.github.keys import make_private_key
from paddock.recovery import observe
from paddock.replica import Dispatching, FleetParts, Replica, dispatching
from paddock.services import Service
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.store import PgStore
from simulator.engine import replicas
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.engine.faults import ALL, Fault, parse_faults
from simulator.engine.ledger import Ledger
from simulator.engine.loop import Stuck, VirtualLoop
from simulator.engine.loop_intervals import LoopIntervals
from simulator.engine.recovery_times import summary
from simulator.engine.replica_process import Processes, ReplicaProcess
from simulator.engine.simulation import Key, Result, SeedPlan, simulate

#: Small enough for a test, large enough for every part to have something to do.
SMALL = 10

#: A seed in whose world paddock's loops look again as often as they do outside.
OWN_TIME = 10

_KEY = make_private_key()
_DATABASE = "sim_engine"


@pytest.fixture(scope="module")
def session(postgres: EmbeddedPostgres) -> Iterator[Session]:
    """One for all: every run begins by emptying the tables."""
    asyncio.run(_administer(postgres, f"CREATE DATABASE {_DATABASE} TEMPLATE paddock_template"))
    session = Session.open(postgres.url_of(_DATABASE))
    try:
        yield session
    finally:
        session.close()
        asyncio.run(_administer(postgres, f"DROP DATABASE {_DATABASE} WITH (FORCE)"))


async def _administer(server: EmbeddedPostgres, statement: str) -> None:
    connection = await asyncpg.connect(server.url_of("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def run(session: Session, directory: Path) -> Callable[..., Result]:
    path = directory / "app.pem"
    path.write_text(_KEY)

    def run(seed: int, faults: str = "none", **options: Any) -> Result:
        plan = SeedPlan(seed=seed, jobs=options.pop("jobs", SMALL), faults=parse_faults(faults))
        return simulate(plan, session=session, key=Key(path), **options)

    return run


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(random.Random(1))
    try:
        yield loop
    finally:
        loop.close()


def test_where_nothing_goes_wrong_every_promise_is_kept(run: Callable[..., Result]) -> None:
    result = run(OWN_TIME)
    assert result.violations == []
    assert result.exercised["ending completed"] >= SMALL - 2  # a gated job may stay gated
    ended = summary(result.times)["pod-ended"]
    assert ended["times"] >= SMALL - 2
    assert ended["longest"] < 10


def test_a_service_that_deletes_a_busy_pod_is_found_out(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "dispatching", _with(_vandalise))
    result = run(1)
    assert {violation.promise for violation in result.violations} == {Promise.LIVE_JOB}


def test_a_stamp_before_the_jit_arrived_is_found_out(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "dispatching", _with(_stamp_at_once))
    result = run(1)
    assert {violation.promise for violation in result.violations} == {Promise.CUT_OFF}


def test_a_service_that_breaks_is_found_out(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "dispatching", _with(_break))
    assert [violation.promise for violation in run(1).violations] == [Promise.SOUND]


def test_a_matcher_that_keeps_a_warm_pod_waiting_is_found_out(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I77"""

    async def nothing(_self: Any, _pods: object) -> Match:
        return Match((), {})

    monkeypatch.setattr(PgStore, "match", nothing)
    assert {violation.promise for violation in run(OWN_TIME).violations} == {Promise.PROMPT}


def _with(
    extra: Callable[[FleetParts], Any],
) -> Callable[[Replica, FleetParts, Any], Dispatching]:
    """The product's own services, and a bad one."""

    def made(replica: Replica, parts: FleetParts, sealer: Any) -> Dispatching:
        made = dispatching(replica, parts, sealer)
        bad = Service("planted", lambda: extra(parts))
        return Dispatching(made.dispatcher, made.identities, (*made.services, bad))

    return made


async def _vandalise(parts: FleetParts) -> None:
    while True:
        for pod in (await parts.fleet.list()).pods:
            if pod.phase is Phase.RUNNING:
                await parts.fleet.delete_live_pod(pod.name, uid=pod.uid)
        await asyncio.sleep(7.0)


async def _stamp_at_once(parts: FleetParts) -> None:
    while True:
        for pod in (await parts.fleet.list()).pods:
            await parts.fleet.stamp(pod.name, uid=pod.uid, owner="1")
        await asyncio.sleep(7.0)


async def _break(_parts: FleetParts) -> None:
    raise KeyError("planted")


def test_time_stands_still_while_the_store_is_asked(session: Session, loop: VirtualLoop) -> None:
    async def ask() -> list[str]:
        others: list[str] = []
        loop.call_soon(others.append, "another callback ran")
        await session.fetch("SELECT pg_sleep(0.02)")
        assert loop.time() == 0.0
        return list(others)

    assert loop.run_until_complete(ask()) == []


def test_a_commit_is_heard_with_its_answer(session: Session, loop: VirtualLoop) -> None:
    async def notify() -> Sequence[str]:
        await session.execute("BEGIN")
        await session.execute("SELECT pg_notify('paddock', 'demand')")
        assert session.take_heard() == []
        await session.execute("COMMIT")
        return session.take_heard()

    assert loop.run_until_complete(notify()) == ["demand"]


def test_time_jumps_to_the_next_timer(loop: VirtualLoop) -> None:
    loop.run_until_complete(asyncio.sleep(86_400.0))
    assert loop.time() == 86_400.0


def test_one_acts_at_a_time_and_the_seed_decides_who() -> None:
    orders = set()
    for seed in range(8):
        loop = VirtualLoop(random.Random(seed))
        processes, order = Processes(loop), []  # type: ignore[var-annotated]

        async def act(machine: ReplicaProcess, order: list[str] = order) -> None:
            await machine.turn("act")
            order.append(machine.name)

        async def all_act(processes: Processes = processes) -> None:
            await asyncio.gather(*(act(ReplicaProcess(name, processes)) for name in "abc"))

        loop.run_until_complete(all_act())
        assert sorted(order) == ["a", "b", "c"]
        orders.add(tuple(order))
        loop.close()
    assert len(orders) > 1


def test_a_stalled_replica_gets_no_turn(loop: VirtualLoop) -> None:
    machine = ReplicaProcess("a", Processes(loop))
    machine.stalled = True

    async def act() -> float:
        loop.call_later(30.0, setattr, machine, "stalled", False)
        await machine.turn("act")
        return loop.time()

    assert loop.run_until_complete(act()) == 30.0


def test_a_world_in_which_nothing_can_happen_says_so(loop: VirtualLoop) -> None:
    with pytest.raises(Stuck):
        loop.run_until_complete(asyncio.Event().wait())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_what_a_crashed_replica_leaves_to_do_is_not_done(loop: VirtualLoop) -> None:
    acts = []

    async def work(machine: ReplicaProcess) -> None:
        try:
            await machine.turn("work")
            acts.append("worked")
        finally:
            await machine.turn("tidy up")
            acts.append("tidied up")

    async def crash() -> None:
        machine = ReplicaProcess("a", Processes(loop))
        machine.stalled = True
        task = machine.spawn(work(machine), name="work")
        await asyncio.sleep(1.0)
        machine.crash()
        await asyncio.wait({task})

    loop.run_until_complete(crash())
    assert acts == []


def test_loops_look_less_often_in_most_worlds_and_as_before_when_one_has_ended() -> None:
    own = (dispatcher._LOOK_AGAIN, observe.EVERY)
    for slow in (True, False):
        rhythm = LoopIntervals(slow=slow)
        assert (own != (dispatcher._LOOK_AGAIN, observe.EVERY)) is slow
        rhythm.calm()
        assert (own[1] < observe.EVERY) is slow
        assert own[0] < dispatcher._LOOK_AGAIN, "no wake-up is lost any more"
        rhythm.end()
        assert own == (dispatcher._LOOK_AGAIN, observe.EVERY)


def test_recovery_is_timed_where_loops_keep_the_products_own_time() -> None:
    drawn = [_rhythm(seed) for seed in range(200)]
    assert 0.15 < drawn.count(False) / len(drawn) < 0.35
    assert not _rhythm(OWN_TIME)


def _rhythm(seed: int) -> bool:
    rhythm = LoopIntervals.draw(random.Random(f"{seed}/rhythm"))
    rhythm.end()
    return rhythm.slow


def test_a_world_that_never_lets_time_pass_says_so(loop: VirtualLoop) -> None:
    def again() -> None:
        loop.call_at(0.0, again)

    again()
    with pytest.raises(Stuck, match="never lets time pass"):
        loop.run_forever()


def test_faults_are_chosen_by_name() -> None:
    assert parse_faults("all") == ALL
    assert parse_faults("oom, sigkill") == {Fault.OOM, Fault.SIGKILL}
    assert parse_faults("-oom") == ALL - {Fault.OOM}


def test_a_fault_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match=r"no fault omo; there are .*oom"):
        parse_faults("omo")


#: Two of many: `make sim` runs two hundred.
@pytest.mark.parametrize("seed", [103, pytest.param(106, marks=pytest.mark.slow)])
def test_with_every_fault_every_promise_is_kept_twice_alike(
    run: Callable[..., Result], seed: int
) -> None:
    first, second = run(seed, "all"), run(seed, "all")
    assert [str(violation) for violation in first.violations] == []
    assert (first.digest, first.steps) == (second.digest, second.steps)


def test_limits_of_every_kind_are_held_against_what_pods_take() -> None:
    """I92"""
    ledger = Ledger(first_job=0.0)
    ledger.set_limits("acme", Limits(vcpu_milli=4000), at=0.0)
    ledger.set_limits("acme", Limits(vcpu_milli=2000, memory_mib=1024), at=100.0)
    assert ledger.limits_at("acme", 50.0) == Limits(vcpu_milli=4000)
    assert ledger.limits_at("acme", 100.0) == Limits(vcpu_milli=4000)  # either may have held
    assert ledger.limits_at("acme", 100.1) == Limits(vcpu_milli=2000, memory_mib=1024)
    assert ledger.limits_at("umbrella", 0.0) == UNLIMITED


def test_limits_set_before_the_first_job_have_always_held() -> None:
    ledger = Ledger()
    ledger.set_limits("acme", Limits(runners=3), at=5.0)
    ledger.first_job = 20.0
    ledger.set_limits("umbrella", Limits(runners=3), at=25.0)
    assert ledger.limits_at("acme", -100.0) == Limits(runners=3)
    assert ledger.limits_at("umbrella", 20.0) == UNLIMITED


def test_a_transaction_that_only_reads_is_not_begun(session: Session, loop: VirtualLoop) -> None:
    async def read() -> tuple[bool, bool]:
        await session.execute("BEGIN")
        await session.fetchval("SELECT 1")
        reading = session._connection.is_in_transaction()
        await session.fetchval("SELECT pg_advisory_xact_lock(1)")
        locking = session._connection.is_in_transaction()
        await session.execute("ROLLBACK")
        return reading, locking

    assert loop.run_until_complete(read()) == (False, True)


def test_statements_leave_nothing_behind(session: Session, loop: VirtualLoop) -> None:
    """The worker of a long run once kept every row it had ever read."""
    loop.run_until_complete(session.fetch("SELECT 1"))
    assert not session._ready
