"""I69: a key whose runners keep ending without a job backs off, and no other key does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paddock.domain.allocation import Withheld
from paddock.domain.github.backoffs import (
    ENDED_WITHOUT_A_JOB,
    BackOffCause,
    BackOffScope,
    BackOffSubject,
    BackOffTerms,
)
from paddock.domain.ids import AccountId, KeyId, PoolId
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import ContainerState, ContainerStatus, Terminated
from paddock.domain.pods.pod import Phase, Pod
from paddock.domain.runners.runner import Conflict, Match, Runner
from paddock.domain.states import JobState
from paddock.forensics.conclusion import Conclusion
from paddock.store.database import Database
from tests.support.fleetless import NoFleet
from tests.support.runner_rows import read_runner
from tests.support.world import World, executor

EXITED_AT_ONCE, JOB_SUCCEEDED = 1, 100


class Keys:
    """Accounts that share a pool, and runners that live and die for them."""

    def __init__(self, world: World, pool: PoolId) -> None:
        self.world = world
        self.pool = pool
        self._conclusion = Conclusion(store=world.store, fleet=NoFleet(), clock=world.clock)

    async def key(self) -> tuple[AccountId, KeyId]:
        account = await self.world.account()
        return account, await self.world.key(account, self.pool)

    async def match(self, pods: int = 1) -> Match:
        return await self.world.store.match(await self.world.idle_pods(self.pool, pods))

    async def armed(self, match: Match) -> list[Runner]:
        armed = [await self.world.arm(each.runner, each.generation) for each in match.claims]
        return [runner for runner in armed if not isinstance(runner, Conflict)]

    async def ends(self, runner: Runner, exit_code: int, *, pod_reason: str = "") -> None:
        found = await read_runner(self.world.store, runner.id)
        assert found is not None
        terminated = Terminated(exit_code=exit_code, finished_at=self.world.clock.now())
        pod = Pod(
            name=PodName(found.pod_name),
            uid=found.pod_uid or "",
            pool="linux",
            phase=Phase.FAILED,
            reason=pod_reason,
            created_at=self.world.clock.now(),
            containers=(ContainerStatus("runner", ContainerState(terminated=terminated)),),
        )
        assert await self._conclusion.conclude([(found, pod)])
        self.world.clock.advance(1)

    async def fails(self, times: int) -> None:
        for _ in range(times):
            [runner] = await self.armed(await self.match())
            await self.ends(runner, EXITED_AT_ONCE)


@pytest.fixture
async def keys(database: Database) -> Keys:
    world = await World(database).begin()
    return Keys(world, await world.pool())


async def test_the_third_runner_in_a_row_without_a_job_puts_its_key_in_back_off(
    keys: Keys,
) -> None:
    account, key = await keys.key()
    await keys.world.queue(account, key, 5)
    await keys.fails(3)

    match = await keys.match()

    assert (match.claims, match.withheld) == ((), {key: Withheld.BACK_OFF})
    [(reason,)] = await keys.world.rows("SELECT reason FROM backoffs")
    assert reason == ENDED_WITHOUT_A_JOB.reason
    keys.world.clock.advance(ENDED_WITHOUT_A_JOB.seconds)
    assert len((await keys.match()).claims) == 1, "it is tried again"


async def test_runners_that_end_with_their_node_say_nothing_of_their_key(keys: Keys) -> None:
    """I69, I77: a dead node with many runners of a key puts no key in back-off."""
    account, key = await keys.key()
    await keys.world.queue(account, key, 5)
    for runner in await keys.armed(await keys.match(4)):
        await keys.ends(runner, EXITED_AT_ONCE, pod_reason="NodeLost")

    assert await keys.world.rows("SELECT reason FROM backoffs") == []


async def test_a_runner_that_had_a_job_ends_the_row(keys: Keys) -> None:
    account, key = await keys.key()
    jobs = await keys.world.queue(account, key, 6)
    await keys.fails(2)
    [runner] = await keys.armed(await keys.match())
    facts = keys.world.facts(jobs[0], JobState.IN_PROGRESS, executor=executor(runner))
    await keys.world.report(account, key, facts)
    await keys.ends(runner, EXITED_AT_ONCE)

    await keys.fails(2)

    assert len((await keys.match()).claims) == 1


async def test_a_runner_that_says_it_had_a_job_is_believed_before_any_webhook(keys: Keys) -> None:
    """I68"""
    account, key = await keys.key()
    await keys.world.queue(account, key, 6)
    await keys.fails(2)
    [runner] = await keys.armed(await keys.match())
    await keys.ends(runner, JOB_SUCCEEDED)

    await keys.fails(2)

    assert len((await keys.match()).claims) == 1


async def test_a_runner_that_never_had_a_jit_says_nothing_of_its_key(keys: Keys) -> None:
    account, key = await keys.key()
    await keys.world.queue(account, key, 5)
    for _ in range(3):
        [claim] = (await keys.match()).claims
        claimed = await read_runner(keys.world.store, claim.runner)
        assert claimed is not None
        await keys.ends(claimed, EXITED_AT_ONCE)

    assert await keys.world.rows("SELECT FROM backoffs") == []


async def test_an_account_whose_runners_exit_at_once_does_not_slow_another(keys: Keys) -> None:
    """I26: it gets three runners for nothing; the other gets all it asks for, in every match."""
    broken, broken_key = await keys.key()
    sound, sound_key = await keys.key()
    await keys.world.queue(broken, broken_key, 50)
    await keys.fails(3)
    await keys.world.queue(sound, sound_key, 50)

    for _ in range(5):
        match = await keys.match(10)
        assert [claim.account for claim in match.claims] == [sound] * 10
        assert match.withheld.get(broken_key) is Withheld.BACK_OFF


async def test_a_burst_that_fails_at_once_is_one_failure_more_and_not_the_longest_back_off(
    keys: Keys,
) -> None:
    account, key = await keys.key()
    await keys.world.queue(account, key, 40)
    runners = await keys.armed(await keys.match(20))
    assert len(runners) == 20
    for runner in runners:
        await keys.ends(runner, EXITED_AT_ONCE)

    keys.world.clock.advance(ENDED_WITHOUT_A_JOB.seconds)

    assert len((await keys.match()).claims) == 1


async def test_failures_in_a_row_wait_twice_as_long_each_up_to_a_ceiling(keys: Keys) -> None:
    subject = BackOffSubject(BackOffScope.ACCOUNT, 1)
    terms = BackOffTerms(cause=BackOffCause.MINT_FAILED, reason="test", seconds=10, ceiling=60)
    waits = []
    for _ in range(5):
        now = keys.world.clock.now()
        until = await keys.world.store.back_off(subject, terms)
        again = await keys.world.store.back_off(subject, terms)
        assert again == until, "another that was under way"
        waits.append(until - now)
        keys.world.clock.advance(waits[-1].total_seconds())
    assert waits == [timedelta(seconds=each) for each in (10, 20, 40, 60, 60)]


async def test_short_failures_do_not_make_the_first_of_another_kind_wait_for_an_hour(
    keys: Keys,
) -> None:
    """Three time-outs of seconds, and then an account that answers 404 for a moment."""
    subject = BackOffSubject(BackOffScope.ACCOUNT, 1)
    short = BackOffTerms(cause=BackOffCause.MINT_FAILED, reason="no answer", seconds=5, ceiling=300)
    long = BackOffTerms(
        cause=BackOffCause.MINT_FAILED, reason="not found", seconds=600, ceiling=3600
    )
    for _ in range(3):
        until = await keys.world.store.back_off(subject, short)
        keys.world.clock.advance((until - keys.world.clock.now()).total_seconds())

    until = await keys.world.store.back_off(subject, long)

    assert until - keys.world.clock.now() == timedelta(seconds=600)
