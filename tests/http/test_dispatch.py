"""From a queued job to a JIT at the Pod, over the fake GitHub and a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from paddock.dispatch import dispatcher
from paddock.dispatch.debts import DebtCollector
from paddock.dispatch.dispatcher import _HEAR_AGAIN, _LOOK_AGAIN, Dispatcher
from paddock.dispatch.minting import AT_ONCE, Minter
from paddock.dispatch.sealing import Sealer
from paddock.domain.accounts import InstallationFacts
from paddock.domain.github.errors import Kind
from paddock.domain.github.objects import GitHubAppId
from paddock.domain.ids import AppId, PoolId, RunnerId
from paddock.domain.limits import Limits
from paddock.domain.names import PodName, PoolName, pod_name
from paddock.domain.pods.pod import PodIdentity, PodOrder
from paddock.domain.recovery.stale_claim import MINT_DEADLINE
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.handover import Handover, Leave, NothingYet, reason_to_leave
from paddock.domain.runners.runner import Match, WaitingPod
from paddock.domain.states import RunnerState
from paddock.fakes.github import FaultKind, JobSpec
from paddock.fakes.runner import decode_jit
from paddock.forensics.conclusion import Conclusion
from paddock.ports import GitHub
from paddock.store.database import Database
from paddock.store.wakeups import PgWakeups
from paddock.system import SystemClock, SystemIds
from tests.support.fleet import MemoryFleet
from tests.support.github import LINUX, GitHubScene, github_scene
from tests.support.runner_rows import conclude_runner

KEYS = (b"1" * 32, b"2" * 32)


class ShiftedClock(SystemClock):
    """Real time, moved forwards at will."""

    def __init__(self) -> None:
        self.shift = timedelta()

    def now(self) -> datetime:
        return super().now() + self.shift


@dataclass
class Yard:
    """A pool, its Pods, and a replica's dispatcher."""

    scene: GitHubScene
    pool: PoolId
    dispatcher: Dispatcher
    clock: ShiftedClock

    async def pods(self, count: int) -> list[PodIdentity]:
        ids = SystemIds()
        pods = [
            (RunnerId(ids.uuid()), pod_name(PoolName("linux"), ids.suffix(10)))
            for _ in range(count)
        ]
        await self.scene.store.plan_runners(self.pool, pods, why="test")
        far = self.clock.now() + timedelta(hours=1)
        return [
            PodIdentity(pod_name=PodName(name), pod_uid=f"uid-{name}", expires_at=far)
            for _, name in pods
        ]

    async def queue(self, count: int = 1) -> None:
        spec = JobSpec(labels=("self-hosted", "linux"))
        self.scene.fake.jobs.queue_run(self.scene.site, [spec] * count)
        await self.scene.deliver()
        await self.scene.apply()

    async def rows(self, query: str, *args: object) -> list[tuple[Any, ...]]:
        async with self.scene.store._database.transaction() as connection:
            return [tuple(row) for row in await connection.fetch(query, *args)]

    async def states(self) -> dict[str, int]:
        found = await self.rows("SELECT state, count(*) FROM runners GROUP BY 1 ORDER BY 1")
        return {str(state): count for state, count in found}

    @asynccontextmanager
    async def replica(self, *keys: bytes) -> AsyncIterator[Dispatcher]:
        """Another server, or the same one after a restart."""
        async with replica(self.scene, self.clock, keys or KEYS) as dispatcher:
            yield dispatcher


@asynccontextmanager
async def replica(
    scene: GitHubScene, clock: ShiftedClock, keys: tuple[bytes, ...]
) -> AsyncIterator[Dispatcher]:
    sealer = Sealer(keys)
    scene.store._clock = clock
    async with PgWakeups.listening(scene.store._database, clock) as wakeups:
        dispatcher = Dispatcher(
            store=scene.store,
            minter=Minter(
                store=scene.store,
                github=scene.client,
                sealer=sealer,
                clock=clock,
                ids=SystemIds(),
            ),
            sealer=sealer,
            clock=clock,
            wakeups=wakeups,
        )
        task = asyncio.create_task(dispatcher.run())
        try:
            yield dispatcher
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def yard(database: Database) -> AsyncIterator[Yard]:
    clock = ShiftedClock()
    async with github_scene(database) as scene:
        pool = await scene.store.apply_pool(LINUX)
        await scene.installations.read_all()
        scene.take()
        async with replica(scene, clock, KEYS) as dispatcher:
            yield Yard(scene, pool, dispatcher, clock)


async def test_a_pod_that_waits_gets_the_jit_of_a_job_that_is_queued_later(yard: Yard) -> None:
    [pod] = await yard.pods(1)
    asked = asyncio.create_task(yard.dispatcher.poll(pod, wait=30))
    await asyncio.sleep(0.2)
    await yard.queue()
    answer = await asked
    assert isinstance(answer, Handover)
    assert answer.runner_name == f"{pod.pod_name}-1"
    assert [runner.name for runner in yard.scene.fake.world.runners.values()] == [
        answer.runner_name
    ]
    assert answer.jit not in repr(answer)


async def test_a_jobs_life_can_be_followed_by_its_number_and_by_its_runner(yard: Yard) -> None:
    """S3: at level info, from the webhook that queued it to the verdict on its runner."""
    fake, store = yard.scene.fake, yard.scene.store
    fleet = MemoryFleet(yard.clock)
    [pod] = await yard.pods(1)
    with capture_logs() as lines:
        await yard.queue()
        [job] = fake.world.jobs.values()
        answer = await yard.dispatcher.poll(pod, wait=30)
        assert isinstance(answer, Handover)
        assert await yard.dispatcher.acknowledge(pod, answer.delivery)

        [record] = fake.world.runners.values()
        session = fake.runners.connect(
            client_id=record.client_id, secret=record.secret, version="2.330.0"
        )
        fake.runners.acquire(session.id, job.id)
        fake.runners.complete(session.id, job.id, "success")
        await yard.scene.deliver()
        await yard.scene.apply()

        [runner] = await store.live_runners()
        await fleet.create(PodOrder(runner=runner.id, name=pod.pod_name, pool="linux", spec="{}"))
        fleet.end_poller(pod.pod_name)
        ended = replace(fleet.end_runner(pod.pod_name, exit_code=100), uid=pod.pod_uid)
        await Conclusion(store=store, fleet=fleet, clock=yard.clock).conclude([(runner, ended)])

    told = [line for line in lines if line["log_level"] == "info"]
    of_the_job = [line for line in told if line.get("job") == job.id]
    assert [line["event"] for line in of_the_job] == [
        "job.queued",
        "claim.made",
        "mint.done",
        "runner.acknowledged",
        "job.started",
        "job.completed",
        "runner.ended",
    ]
    assert {line["account"] for line in of_the_job} == {"acme"}
    # A job has no runner before its claim; all that comes then names it.
    of_the_runner = [line for line in told if line.get("runner") == answer.runner_name]
    assert of_the_runner == of_the_job[1:]
    of_the_pod = [line for line in told if line.get("pod") == pod.pod_name]
    assert [line["event"] for line in of_the_pod] == [
        "claim.made",
        "mint.done",
        "runner.acknowledged",
        "runner.ended",
    ]
    assert {line["pool"] for line in of_the_pod} == {"linux"}
    end = of_the_job[-1]
    assert (end["ending"], end["exit_code"], end["signal"]) == ("completed", 100, None)
    assert "reason" in end


async def test_without_work_it_is_told_to_ask_again(yard: Yard) -> None:
    [pod] = await yard.pods(1)
    assert await yard.dispatcher.poll(pod, wait=0.1) == NothingYet()
    assert await yard.states() == {"idle": 1}


async def test_a_lost_reply_is_replayed_with_the_same_jit_and_one_mint(yard: Yard) -> None:
    """I20"""
    [pod] = await yard.pods(1)
    await yard.queue()
    first = await yard.dispatcher.poll(pod, wait=30)
    async with yard.replica() as another:
        second = await another.poll(pod, wait=30)
    assert first == second
    assert isinstance(second, Handover)
    assert len(yard.scene.fake.world.runners) == 1
    assert await yard.dispatcher.acknowledge(pod, second.delivery) is True
    assert await yard.dispatcher.acknowledge(pod, second.delivery) is True, "again is fine"
    assert isinstance(await yard.dispatcher.poll(pod, wait=1), Leave)
    assert await yard.states() == {"running": 1}


async def test_a_jit_forbids_its_runner_to_update_itself(yard: Yard) -> None:
    """GitHub's do not, and a runner that updates itself ends without its job. What is replayed is the
    same."""
    [pod] = await yard.pods(1)
    await yard.queue()
    answer = await yard.dispatcher.poll(pod, wait=30)
    assert isinstance(answer, Handover)
    assert decode_jit(answer.jit)[".runner"]["DisableUpdate"] == "True"
    assert await yard.dispatcher.poll(pod, wait=1) == answer


async def test_no_other_pod_gets_the_jit_or_may_acknowledge_it(yard: Yard) -> None:
    """I20"""
    pod, other = await yard.pods(2)
    await yard.queue()
    answer = await yard.dispatcher.poll(pod, wait=30)
    assert isinstance(answer, Handover)
    assert await yard.dispatcher.poll(other, wait=0.3) == NothingYet()
    assert not await yard.dispatcher.acknowledge(other, answer.delivery)
    impostor = replace(pod, pod_uid="another-uid")
    assert await yard.dispatcher.poll(impostor, wait=0.1) is None
    assert not await yard.dispatcher.acknowledge(impostor, answer.delivery)
    assert await yard.states() == {"idle": 1, "armed": 1}


async def test_a_burst_asks_for_as_many_runners_as_jobs_and_no_more(yard: Yard) -> None:
    """I73"""
    pods = await yard.pods(30)
    asked = [asyncio.create_task(yard.dispatcher.poll(pod, wait=5)) for pod in pods]
    await asyncio.sleep(0.3)
    await yard.queue(20)
    answers = await asyncio.gather(*asked)
    assert sum(isinstance(answer, Handover) for answer in answers) == 20
    assert len(yard.scene.fake.world.runners) == 20


async def test_a_pod_that_comes_while_its_key_is_short_of_pods_is_matched_at_once(
    yard: Yard,
) -> None:
    """I77: two jobs and one Pod; the second Pod need not wait for the dispatcher's next timer."""
    first, second = await yard.pods(2)
    for pod in (first, second):
        assert await yard.dispatcher.poll(pod, wait=0) == NothingYet()
    await yard.queue(2)
    await asyncio.sleep(0.3)  # all of it was announced
    assert isinstance(await yard.dispatcher.poll(first, wait=30), Handover)
    asked = yard.clock.monotonic()
    assert isinstance(await yard.dispatcher.poll(second, wait=30), Handover)
    assert yard.clock.monotonic() - asked < _LOOK_AGAIN / 2


async def test_a_pod_that_comes_while_a_match_is_written_is_not_forgotten(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I77: the match did not see it, and leaves a job for it. No wake-up tells of a Pod that asks
    again."""
    monkeypatch.setattr(dispatcher, "_LOOK_AGAIN", 600.0)
    monkeypatch.setattr(dispatcher, "_WITHHELD_AGAIN", 600.0)
    first, second = await yard.pods(2)
    match, late = yard.scene.store.match, list[asyncio.Task[Any]]()

    async def slowly_written(pods: Any) -> Match:
        done = await match(pods)
        if done.claims and not late:
            late.append(asyncio.create_task(other.poll(second, wait=20)))
            await asyncio.sleep(0.3)
        return done

    async with yard.replica() as other:
        for pod in (first, second):
            assert await other.poll(pod, wait=0.3) == NothingYet()
        with mute(yard.dispatcher):
            monkeypatch.setattr(yard.scene.store, "match", slowly_written)
            waits = asyncio.create_task(other.poll(first, wait=20))
            await asyncio.sleep(0.3)
            await yard.queue(2)
            assert isinstance(await waits, Handover)
            assert isinstance(await late[0], Handover)


async def test_a_pod_whose_request_ends_while_it_is_claimed_gets_its_jit_when_it_asks_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I20: its request ended after the match had chosen it. It asks again when its mint has ended."""
    [pod] = await yard.pods(1)
    match, is_claimed = yard.scene.store.match, asyncio.Event()

    async def slowly_written(pods: Any) -> Match:
        done = await match(pods)
        if done.claims:
            assert await waits == NothingYet()
            is_claimed.set()
        return done

    assert await yard.dispatcher.poll(pod, wait=0.3) == NothingYet()
    monkeypatch.setattr(yard.scene.store, "match", slowly_written)
    waits = asyncio.create_task(yard.dispatcher.poll(pod, wait=2))
    await asyncio.sleep(0.1)
    await yard.queue()
    await is_claimed.wait()
    async with asyncio.timeout(60):
        while await yard.states() != {"armed": 1}:  # noqa: ASYNC110 -- the database's doing
            await asyncio.sleep(0.05)
    asked = yard.clock.monotonic()
    assert isinstance(await yard.dispatcher.poll(pod, wait=20), Handover)
    assert yard.clock.monotonic() - asked < _HEAR_AGAIN / 2


async def test_a_pod_that_is_claimed_while_its_row_is_read_gets_its_jit(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I20: its request ended after the match had chosen it, and it asked again before that match was
    written. What was read is out of date when it arrives."""
    [pod] = await yard.pods(1)
    match, hear = yard.scene.store.match, yard.scene.store.hear_pod
    again = list[asyncio.Task[Any]]()

    async def slowly_written(pods: Any) -> Match:
        yard.dispatcher._returning.forget()
        again.append(asyncio.create_task(yard.dispatcher.poll(pod, wait=20)))
        await is_read.wait()
        return await match(pods)

    async def slowly_read(name: str, *, pod_uid: str) -> Any:
        heard = await hear(name, pod_uid=pod_uid)
        is_read.set()
        while again and await yard.states() != {"armed": 1}:  # noqa: ASYNC110 -- the database's doing
            await asyncio.sleep(0.05)
        return heard

    is_read = asyncio.Event()
    assert await yard.dispatcher.poll(pod, wait=0.3) == NothingYet()
    is_read.clear()
    waiting = asyncio.create_task(yard.dispatcher.poll(pod, wait=1))
    await asyncio.sleep(0.1)
    monkeypatch.setattr(yard.scene.store, "match", slowly_written)
    monkeypatch.setattr(yard.scene.store, "hear_pod", slowly_read)
    began = yard.clock.monotonic()
    await yard.queue()
    await waiting
    assert isinstance(await again[0], Handover)
    assert yard.clock.monotonic() - began < _HEAR_AGAIN / 2


async def test_an_answer_that_comes_when_the_request_ends_is_not_lost(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I20: asyncio ends the request although its answer is there."""
    [pod] = await yard.pods(1)
    limits, timeout = dict[Any, asyncio.Timeout](), asyncio.timeout

    def recorded(delay: float | None) -> asyncio.Timeout:
        limits[asyncio.current_task()] = limit = timeout(delay)
        return limit

    monkeypatch.setattr(asyncio, "timeout", recorded)
    request = asyncio.create_task(yard.dispatcher.poll(pod, wait=20))
    while not len(yard.dispatcher._waiting):  # noqa: ASYNC110 -- the dispatcher's doing
        await asyncio.sleep(0.01)
    [waiter] = yard.dispatcher._waiting._waiters.values()
    limits[request].reschedule(asyncio.get_running_loop().time())
    waiter.tell(Leave("test"))
    assert await request == Leave("test")


async def test_a_request_that_another_replica_has_answered_keeps_no_pod_from_its_job(
    yard: Yard,
) -> None:
    """I77: the Pod's connection broke unnoticed, and another replica claimed it. Its old request comes
    before the others of its pool in every match here."""
    stale, fresh = await yard.pods(2)
    async with yard.replica() as other:
        old = asyncio.create_task(yard.dispatcher.poll(stale, wait=30))
        await asyncio.sleep(0.3)
        with mute(yard.dispatcher):
            again = asyncio.create_task(other.poll(stale, wait=30))
            await asyncio.sleep(0.3)
            await yard.queue()
            assert isinstance(await again, Handover)
        waits = asyncio.create_task(yard.dispatcher.poll(fresh, wait=30))
        await asyncio.sleep(0.3)
        await yard.queue()
        asked = yard.clock.monotonic()
        assert isinstance(await waits, Handover)
        assert yard.clock.monotonic() - asked < _LOOK_AGAIN / 2
        assert isinstance(await old, Handover)


@contextmanager
def mute(dispatcher: Dispatcher) -> Iterator[None]:
    """It makes no matches for a while."""
    match = dispatcher.match

    async def nothing() -> bool:
        return False

    dispatcher.match = nothing  # type: ignore[method-assign]
    try:
        yield
    finally:
        dispatcher.match = match  # type: ignore[method-assign]
        dispatcher._unmet = True


async def test_a_hang_up_frees_the_place_at_once(yard: Yard) -> None:
    gone, stays = await yard.pods(2)
    asked = asyncio.create_task(yard.dispatcher.poll(gone, wait=30))
    await asyncio.sleep(0.2)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert len(yard.dispatcher._waiting) == 0
    await yard.queue()
    assert isinstance(await yard.dispatcher.poll(stays, wait=30), Handover)


async def test_a_pod_that_asks_twice_is_one_pod(yard: Yard) -> None:
    [pod] = await yard.pods(1)
    first = asyncio.create_task(yard.dispatcher.poll(pod, wait=30))
    await asyncio.sleep(0.2)
    second = asyncio.create_task(yard.dispatcher.poll(pod, wait=30))
    assert await first == NothingYet()
    await yard.queue(2)
    assert isinstance(await second, Handover)
    assert len(yard.scene.fake.world.runners) == 1


@pytest.mark.parametrize(
    "kind", [FaultKind.SERVER_ERROR, FaultKind.SUSPENDED, FaultKind.RUNNERS_DISABLED]
)
async def test_a_failed_mint_backs_off_and_leaves_the_pod_for_others(
    yard: Yard, kind: FaultKind
) -> None:
    """I17: the failing account waits; the same Pod, in the same poll, serves another."""
    other = yard.scene.fake.accounts.add_organization("other")
    repository = yard.scene.fake.accounts.add_repository(other, "repo")
    installed = yard.scene.fake.accounts.install(yard.scene.app, other)
    await yard.scene.installations.read_all()
    yard.scene.take()
    yard.scene.fake.inject(kind, owner="acme", times=None, seconds=60)
    [pod] = await yard.pods(1)
    await yard.queue()
    asked = asyncio.create_task(yard.dispatcher.poll(pod, wait=30))
    await asyncio.sleep(0.5)
    yard.scene.fake.jobs.queue_run(repository, [JobSpec(labels=("self-hosted", "linux"))])
    await yard.scene.store.store_deliveries(
        [replace(yard.scene.stored(each), installation=installed.id) for each in yard.scene.take()]
    )
    await yard.scene.apply()

    answer = await asked

    assert isinstance(answer, Handover)
    assert [runner.owner.login for runner in yard.scene.fake.world.runners.values()] == ["other"]
    assert await yard.rows("SELECT count(*) FROM backoffs") == [(1,)]


async def test_a_mint_whose_answer_is_lost_leaves_a_debt_that_is_paid(yard: Yard) -> None:
    """I41: GitHub made a record, but no Pod ever got its JIT."""
    [pod] = await yard.pods(1)
    yard.scene.fake.inject(FaultKind.REPLY_LOST, path="generate-jitconfig", times=1)
    await yard.queue()
    answer = await yard.dispatcher.poll(pod, wait=30)
    if not isinstance(answer, Handover):
        yard.clock.shift += timedelta(minutes=10)
        answer = await yard.dispatcher.poll(pod, wait=30)
    assert isinstance(answer, Handover)
    assert len(yard.scene.fake.world.runners) == 2
    yard.clock.shift += timedelta(minutes=2)

    collector = DebtCollector(store=yard.scene.store, github=yard.scene.client, clock=yard.clock)
    assert await collector.round() == 1
    assert [runner.name for runner in yard.scene.fake.world.runners.values()] == [
        answer.runner_name
    ]
    owed = await yard.scene.store.debts(before=yard.clock.now() + timedelta(days=1), limit=1)
    assert owed == []
    assert await collector.round() == 0


async def test_a_claim_of_a_dead_replica_is_taken_over_under_a_fresh_name(yard: Yard) -> None:
    """The replica died between the claim and the mint: its Pod polls another one."""
    [pod] = await yard.pods(1)
    await yard.dispatcher.poll(pod, wait=0.1)
    await yard.queue()
    [(runner, generation)] = await yard.rows("SELECT id, generation FROM runners")
    await yard.scene.store.match(
        [WaitingPod(id=runner, pool=yard.pool, pod_name=pod.pod_name, generation=generation)]
    )
    assert await yard.dispatcher.poll(pod, wait=0.5) == NothingYet()
    yard.clock.shift += MINT_DEADLINE + timedelta(seconds=1)
    answer = await yard.dispatcher.poll(pod, wait=30)
    assert isinstance(answer, Handover)
    assert answer.runner_name == f"{pod.pod_name}-2"


async def test_a_jit_that_can_no_longer_be_unsealed_is_retired(yard: Yard) -> None:
    [pod] = await yard.pods(1)
    await yard.queue()
    assert isinstance(await yard.dispatcher.poll(pod, wait=30), Handover)
    async with yard.replica(b"3" * 32) as stranger:
        assert isinstance(await stranger.poll(pod, wait=1), Leave)
    assert await yard.states() == {"retiring": 1}


async def test_a_pod_fenced_before_it_acknowledged_is_told_to_leave(yard: Yard) -> None:
    """Its runner has not started: it can still go without a job."""
    [pod] = await yard.pods(1)
    await yard.queue()
    answer = await yard.dispatcher.poll(pod, wait=30)
    assert isinstance(answer, Handover)
    [(runner, generation)] = await yard.rows("SELECT id, generation FROM runners")
    await yard.scene.store.fence_runner(
        runner, generation=generation, state=RunnerState.ARMED, why="drained"
    )
    assert isinstance(await yard.dispatcher.acknowledge(pod, answer.delivery), Leave)


async def test_a_key_that_was_rotated_still_opens_what_it_sealed(yard: Yard) -> None:
    [pod] = await yard.pods(1)
    await yard.queue()
    first = await yard.dispatcher.poll(pod, wait=30)
    async with yard.replica(b"3" * 32, *KEYS) as rotated:
        assert await rotated.poll(pod, wait=1) == first


async def test_an_unknown_pod_gets_no_work(yard: Yard) -> None:
    stranger = PodIdentity(pod_name=PodName("stranger"), pod_uid="x", expires_at=yard.clock.now())
    assert await yard.dispatcher.poll(stranger, wait=1) is None


async def test_limits_hold_while_two_replicas_match(yard: Yard) -> None:
    """I25"""
    [(account,)] = await yard.rows("SELECT id FROM accounts")
    await yard.scene.store.set_account_limits(account, Limits(runners=1))
    pods = await yard.pods(20)
    async with yard.replica() as other:
        asked = [
            asyncio.create_task((yard.dispatcher, other)[n % 2].poll(pod, wait=60))
            for n, pod in enumerate(pods)
        ]
        await yard.queue(20)
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        # Time for a second one, if the limit allowed it.
        await asyncio.sleep(1)
        await yard.dispatcher.close()
        await other.close()
        answers = await asyncio.gather(*asked)
    assert sum(isinstance(answer, Handover) for answer in answers) == 1


async def test_a_server_that_closes_answers_those_who_wait(yard: Yard) -> None:
    [pod] = await yard.pods(1)
    asked = asyncio.create_task(yard.dispatcher.poll(pod, wait=30))
    await asyncio.sleep(0.2)
    await yard.dispatcher.close()
    assert await asked == NothingYet()


def test_states_a_pod_may_wait_in() -> None:
    waits = {state for state in RunnerState if reason_to_leave(state) is None}
    assert waits == {
        RunnerState.BOOTING,
        RunnerState.IDLE,
        RunnerState.CLAIMED,
        RunnerState.ARMED,
    }


async def test_a_pod_that_does_not_wait_is_still_there_for_one_match(yard: Yard) -> None:
    [pod] = await yard.pods(1)
    await yard.queue()
    # The mint may take longer than the poll, but it was made for this Pod all the same.
    answers = [await yard.dispatcher.poll(pod, wait=0) for _ in range(20)]
    assert any(isinstance(answer, Handover) for answer in answers)


async def test_a_pod_that_asks_again_waits_at_once_and_is_heard_with_the_others(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = await yard.pods(3)
    for pod in pods:
        assert await yard.dispatcher.poll(pod, wait=0.25) == NothingYet()
    before = await yard.rows("SELECT max(heard_at) FROM runners")
    with monkeypatch.context() as patched:
        patched.setattr(yard.scene.store, "hear_pod", None)
        again = [asyncio.create_task(yard.dispatcher.poll(pod, wait=30)) for pod in pods]
        await asyncio.sleep(0)
    assert await yard.rows("SELECT max(heard_at) FROM runners") == before

    await yard.dispatcher.hear_again(expected_since=0.0)
    [(earliest,)] = await yard.rows("SELECT min(heard_at) FROM runners")
    assert earliest > before[0][0]
    await yard.queue(3)
    answers = await asyncio.gather(*again)
    assert all(isinstance(answer, Handover) for answer in answers)


async def test_a_pod_that_was_fenced_between_two_requests_is_told_to_leave(yard: Yard) -> None:
    [pod] = await yard.pods(1)
    assert await yard.dispatcher.poll(pod, wait=0.25) == NothingYet()
    [(runner, generation)] = await yard.rows("SELECT id, generation FROM runners")
    await yard.scene.store.fence_runner(
        runner, generation=generation, state=RunnerState.IDLE, why="test"
    )
    again = asyncio.create_task(yard.dispatcher.poll(pod, wait=30))
    await asyncio.sleep(0)
    await yard.dispatcher.hear_again(expected_since=0.0)
    assert isinstance(await again, Leave)


async def _installed_too(yard: Yard) -> None:
    """The account has another App installed, the first by number, whose key no replica has."""
    scene = yard.scene
    [(account, login)] = await yard.rows("SELECT github_id, login FROM accounts")
    await yard.rows(
        "INSERT INTO apps (id, host_id, github_id) OVERRIDING SYSTEM VALUE VALUES (0, $1, 999)"
        " RETURNING 1",
        scene.registered.host,
    )
    await scene.store.record_installation(
        InstallationFacts(
            host=scene.registered.host,
            app=AppId(0),
            id=4711,
            account_id=account,
            login=login,
            kind="organization",
            state="active",
            all_repositories=True,
        )
    )


async def test_an_account_is_served_through_an_app_that_is_configured(yard: Yard) -> None:
    """I17: the App of before is still installed, but no longer in the settings."""
    await _installed_too(yard)
    [pod] = await yard.pods(1)
    await yard.queue()
    assert isinstance(await yard.dispatcher.poll(pod, wait=30), Handover)


async def test_an_app_that_is_not_configured_absorbs_no_pods(yard: Yard) -> None:
    """I17: claims for it fail like any other mint, and the App backs off."""
    await _installed_too(yard)
    await yard.scene.store.serve_through([AppId(0)])
    pods = await yard.pods(3)
    await yard.queue(3)
    with capture_logs() as logs:
        asked = [asyncio.create_task(yard.dispatcher.poll(pod, wait=2)) for pod in pods]
        assert await asyncio.gather(*asked) == [NothingYet()] * 3
    assert {log["kind"] for log in logs if log["event"] == "mint.failed"} == {Kind.NOT_CONFIGURED}
    released = [log for log in logs if log["event"] == "claim.released"]
    assert released
    assert all(log["job"] and log["pod"] and log["why"] for log in released)
    assert await yard.states() == {"idle": 3}
    assert await yard.rows("SELECT scope, subject FROM backoffs") == [("app", 0)]


async def test_what_an_app_owes_that_is_not_configured_delays_no_others_debts(yard: Yard) -> None:
    """I26"""
    await _installed_too(yard)
    await yard.queue(2)
    for pod in await yard.pods(2):
        assert isinstance(await yard.dispatcher.poll(pod, wait=30), Handover)
    for runner, generation in await yard.rows("SELECT id, generation FROM runners"):
        await conclude_runner(
            yard.scene.store,
            runner,
            generation=generation,
            state=RunnerState.ARMED,
            ending=Ending.HARD_DELETED,
            why="test",
            ended_at=yard.clock.now(),
        )
    await yard.rows(
        "UPDATE mints SET app_id = 0 WHERE name = (SELECT min(name) FROM mints) RETURNING 1"
    )
    collector = DebtCollector(store=yard.scene.store, github=yard.scene.client, clock=yard.clock)
    yard.clock.shift += timedelta(minutes=5)
    assert await collector.round() == 2
    assert await yard.rows("SELECT app_id FROM mints WHERE state <> 'settled'") == [(0,)]


async def test_a_host_that_does_not_answer_delays_no_mint_at_another(yard: Yard) -> None:
    """I26: each App has its own places."""
    scene = yard.scene
    [pod] = await yard.pods(1)
    await yard.queue()
    await scene.store.hear_pod(pod.pod_name, pod_uid=pod.pod_uid)
    [(runner, generation)] = await yard.rows("SELECT id, generation FROM runners")
    waiting = WaitingPod(id=runner, pool=yard.pool, pod_name=pod.pod_name, generation=generation)
    [claim] = (await scene.store.match([waiting])).claims

    class Hanging:
        """Answers nothing for App 999."""

        async def mint_jit(self, who: Any, *args: Any, **named: Any) -> Any:
            if who.app == 999:
                await asyncio.Event().wait()
            return await scene.client.mint_jit(who, *args, **named)

    minter = Minter(
        store=scene.store,
        github=cast("GitHub", Hanging()),
        sealer=Sealer(KEYS),
        clock=yard.clock,
        ids=SystemIds(),
    )
    stuck = msgspec.structs.replace(claim, app=AppId(0), github_app=GitHubAppId(999))
    tasks = [asyncio.create_task(minter.mint(stuck)) for _ in range(AT_ONCE)]
    await asyncio.sleep(0.1)
    try:
        async with asyncio.timeout(30):
            assert await minter.mint(claim) is not None
    finally:
        for task in tasks:
            task.cancel()
