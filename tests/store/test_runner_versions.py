"""Nothing is minted for a runner version that GitHub refuses, on a real PostgreSQL (I91)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from paddock.domain.allocation import Withheld
from paddock.domain.ids import AccountId, KeyId, PoolId
from paddock.domain.pods.pod import Phase, Pod
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.pools.surveys import Survey
from paddock.domain.runners.runner import Runner, WaitingPod
from paddock.domain.runners.versions import (
    REFUSED,
    AcceptedRunner,
    RunnerVersion,
    VersionSchedule,
)
from paddock.store.database import Database
from tests.support.world import World

OLD, NEW = RunnerVersion("2.330.0"), RunnerVersion("2.336.0")
LATER = timedelta(days=1)


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


async def note(world: World, pods: Sequence[WaitingPod], version: RunnerVersion) -> None:
    await world.store.note_versions(
        [
            Pod(
                name=pod.pod_name,
                uid=f"uid-{pod.pod_name}",
                pool="linux",
                phase=Phase.PENDING,
                created_at=world.clock.now(),
                runner_version=version,
            )
            for pod in pods
        ]
    )


async def answer(
    world: World, account: AccountId, version: RunnerVersion, runtime: datetime | None
) -> None:
    schedule = VersionSchedule(version=version, registration_ends_at=None, runtime_ends_at=runtime)
    now = world.clock.now()
    await world.store.answer_version(account, schedule, ask_at=now + LATER)


async def scene(world: World, pods: int = 2) -> tuple[AccountId, KeyId, list[WaitingPod]]:
    account, pool = await world.account(), await world.pool()
    return account, await world.key(account, pool), await world.idle_pods(pool, pods)


async def refused_runner(world: World, pod: WaitingPod) -> None:
    """It is claimed, armed, and GitHub refuses it."""
    [claim] = (await world.store.match([pod])).claims
    await world.arm(claim.runner, claim.generation)
    assert await world.store.refuse_version(claim.runner, REFUSED) is not None


async def test_pods_of_a_refused_version_are_not_claimed(world: World) -> None:
    account, key, pods = await scene(world)
    await note(world, pods, OLD)
    await answer(world, account, OLD, world.clock.now())
    await world.queue(account, key, 3)

    match = await world.store.match(pods)

    assert match.claims == ()
    assert match.withheld == {key: Withheld.RUNNER_VERSION}
    assert not match.more


async def test_pods_of_another_version_in_the_same_pool_are_claimed(world: World) -> None:
    """During a rollout a pool has both."""
    account, key, pods = await scene(world, 6)
    await note(world, pods[:4], OLD)
    await note(world, pods[4:], NEW)
    await answer(world, account, OLD, world.clock.now())
    await world.queue(account, key, 5)

    match = await world.store.match(pods)

    assert {claim.runner for claim in match.claims} == {pod.id for pod in pods[4:]}
    assert not match.more


async def test_a_pod_whose_version_is_not_known_is_claimed(world: World) -> None:
    account, key, pods = await scene(world, 1)
    await answer(world, account, OLD, world.clock.now())
    await world.queue(account, key, 1)
    assert len((await world.store.match(pods)).claims) == 1


async def test_a_pod_that_asks_before_its_version_is_noted_waits_for_that(world: World) -> None:
    """Its first request may come before the watch's news of it. It has the version of the newest Pods
    of its description, unless it goes on without one."""
    account, key, [older, _] = await scene(world)
    await note(world, [older], OLD)
    await answer(world, account, OLD, world.clock.now())
    await world.queue(account, key, 1)
    [row] = await world.rows("SELECT pool_id FROM demand_keys WHERE id = $1", key)
    new = await world.idle_pods(PoolId(row["pool_id"]), 1)

    assert (await world.store.match(new)).withheld == {key: Withheld.RUNNER_VERSION}
    world.clock.advance(16.0)
    assert len((await world.store.match(new)).claims) == 1


async def test_a_version_is_claimed_until_its_date(world: World) -> None:
    account, key, pods = await scene(world)
    await note(world, pods, OLD)
    await answer(world, account, OLD, world.clock.now() + timedelta(hours=1))
    await world.queue(account, key, 1)
    assert len((await world.store.match(pods)).claims) == 1

    await world.queue(account, key, 1)
    world.clock.advance(3600.0)
    rest = [pod for pod in pods if pod.id != pods[0].id]
    assert (await world.store.match(rest)).withheld == {key: Withheld.RUNNER_VERSION}


async def test_a_date_that_github_moves_lets_the_jobs_go_on(world: World) -> None:
    account, key, pods = await scene(world)
    await note(world, pods, OLD)
    await answer(world, account, OLD, world.clock.now())
    await world.queue(account, key, 1)
    assert (await world.store.match(pods)).claims == ()

    await answer(world, account, OLD, world.clock.now() + timedelta(days=30))

    assert len((await world.store.match(pods)).claims) == 1


async def test_a_version_refused_to_one_account_serves_the_others(world: World) -> None:
    """I26"""
    refused, key, pods = await scene(world, 3)
    other = await world.account()
    [row] = await world.rows("SELECT pool_id FROM demand_keys WHERE id = $1", key)
    other_key = await world.key(other, PoolId(row["pool_id"]))
    await note(world, pods, OLD)
    await answer(world, refused, OLD, world.clock.now())
    await answer(world, other, OLD, None)
    await world.queue(refused, key, 2)
    await world.queue(other, other_key, 2)

    match = await world.store.match(pods)

    assert [claim.account for claim in match.claims] == [other, other]
    assert match.withheld == {key: Withheld.RUNNER_VERSION}


async def test_a_refused_runner_stops_its_version_and_each_further_one_for_longer(
    world: World,
) -> None:
    account, key, pods = await scene(world, 5)
    await note(world, pods, OLD)
    await world.queue(account, key, 5)

    waits = []
    for number in range(4):
        await refused_runner(world, pods[number])
        rest = pods[number + 1 :]
        assert (await world.store.match(rest)).withheld == {key: Withheld.RUNNER_VERSION}
        [row] = await world.rows("SELECT refused_until FROM version_schedules")
        waits.append((row["refused_until"] - world.clock.now()).total_seconds())
        world.clock.advance(waits[-1])

    assert waits == [3600.0, 7200.0, 14400.0, 28800.0]


async def test_runners_refused_in_one_burst_count_once(world: World) -> None:
    account, key, pods = await scene(world, 5)
    await note(world, pods, OLD)
    await world.queue(account, key, 5)
    claims = (await world.store.match(pods)).claims
    assert len(claims) == 5

    for claim in claims:
        await world.store.refuse_version(claim.runner, REFUSED)

    [row] = await world.rows("SELECT refusals FROM version_schedules")
    assert row["refusals"] == 1


async def test_a_refusal_is_over_when_a_later_runner_of_the_version_gets_a_job(
    world: World,
) -> None:
    account, key, pods = await scene(world, 2)
    await note(world, pods, OLD)
    await world.queue(account, key, 2)
    before = world.clock.now()
    world.clock.advance(1.0)
    await refused_runner(world, pods[0])

    def accepted(at: datetime) -> AcceptedRunner:
        return AcceptedRunner(account=account, version=OLD, claimed_at=at)

    await world.store.accept_versions([accepted(before)])
    assert (await world.store.match(pods[1:])).claims == ()
    await world.store.accept_versions([accepted(world.clock.now() + timedelta(seconds=1))])
    assert len((await world.store.match(pods[1:])).claims) == 1


async def test_a_runner_that_had_a_job_was_not_refused(world: World) -> None:
    """What a job writes to its log, or the code it makes its runner exit with, stops nothing."""
    account, key, pods = await scene(world, 1)
    await note(world, pods, OLD)
    await world.queue(account, key, 1)
    [claim] = (await world.store.match(pods)).claims
    armed = await world.arm(claim.runner, claim.generation)
    assert isinstance(armed, Runner)
    await world.rows("UPDATE runners SET job_marked_at = $1 RETURNING id", world.clock.now())

    assert await world.store.refuse_version(claim.runner, REFUSED) is None
    assert await world.rows("SELECT FROM version_schedules") == []


async def test_no_version_is_noted_for_another_pod_of_the_same_name(world: World) -> None:
    _, _, [pod] = await scene(world, 1)
    impostor = Pod(
        name=pod.pod_name,
        uid="another",
        pool="linux",
        phase=Phase.PENDING,
        created_at=world.clock.now(),
        runner_version=OLD,
    )
    await world.store.note_versions([impostor])
    [row] = await world.rows("SELECT runner_version FROM runners")
    assert row["runner_version"] is None


async def test_github_is_asked_once_for_each_version_and_account(world: World) -> None:
    account, _, pods = await scene(world, 3)
    await note(world, pods[:2], OLD)
    await note(world, pods[2:], NEW)

    questions = await world.store.version_questions(limit=10)
    assert [(each.account, each.version) for each in questions] == [(account, OLD), (account, NEW)]
    assert {str(each.scope) for each in questions} == {"org-1"}

    await answer(world, account, OLD, None)
    await world.store.postpone_version(account, NEW, ask_at=world.clock.now() + timedelta(hours=1))
    assert await world.store.version_questions(limit=10) == []
    world.clock.advance(3600.0)
    assert [each.version for each in await world.store.version_questions(limit=10)] == [NEW]
    world.clock.advance(LATER.total_seconds())
    assert len(await world.store.version_questions(limit=10)) == 2


async def test_a_failed_question_keeps_the_last_answer(world: World) -> None:
    """I29"""
    account, key, pods = await scene(world)
    await note(world, pods, OLD)
    await answer(world, account, OLD, world.clock.now())
    await world.store.postpone_version(account, OLD, ask_at=world.clock.now() + LATER)
    await world.queue(account, key, 1)
    assert (await world.store.match(pods)).claims == ()


async def test_a_pool_has_the_version_of_its_newest_pods_and_its_first_date(world: World) -> None:
    account, _, pods = await scene(world, 2)
    await note(world, pods[:1], OLD)
    await note(world, pods[1:], NEW)
    ends_at = world.clock.now() + timedelta(days=20)
    await answer(world, account, NEW, ends_at)

    [found] = await world.store.pool_versions()

    assert (found.pool, found.version, found.account) == ("linux", NEW, "org-1")
    assert found.ends_at == ends_at
    assert found.ends_soon(world.clock.now())
    assert not found.is_refused(world.clock.now())
    assert found.is_refused(ends_at)


async def test_an_account_that_is_not_served_ends_no_version(world: World) -> None:
    """Its dates are not read any more: GitHub may have moved them."""
    account, _, pods = await scene(world, 1)
    await note(world, pods, OLD)
    await answer(world, account, OLD, world.clock.now())
    await world.rows("UPDATE installations SET state = 'removed' RETURNING 1")

    [found] = await world.store.pool_versions()

    assert (found.account, found.ends_at) == (None, None)
    assert not found.is_refused(world.clock.now())


async def test_another_description_has_a_version_of_its_own(world: World) -> None:
    account, _, pods = await scene(world, 1)
    await note(world, pods, OLD)
    await answer(world, account, OLD, world.clock.now())
    await world.store.apply_pool(
        PoolFacts(
            name="linux",
            labels=("self-hosted", "linux"),
            shape="gated",
            cost=pods[0].cost,
            max_runners=None,
            spec='{"changed": true}',
            spec_hash="v2",
        )
    )
    assert await world.store.pool_versions() == []


async def test_answers_about_versions_that_are_not_used_are_deleted(world: World) -> None:
    account, _, pods = await scene(world, 1)
    await note(world, pods, NEW)
    await answer(world, account, OLD, None)
    await answer(world, account, NEW, None)
    never_answered = RunnerVersion("2.331.0")
    await world.store.postpone_version(account, never_answered, ask_at=world.clock.now())
    world.clock.advance(60.0)
    await world.store.forget_versions(before=world.clock.now())
    rows = await world.rows("SELECT version FROM version_schedules")
    assert [row["version"] for row in rows] == [NEW]


async def test_what_a_pod_reports_is_checked_by_the_schema_too(world: World) -> None:
    _, _, pods = await scene(world, 1)
    with pytest.raises(Exception, match="runner_version"):
        await note(world, pods, RunnerVersion("latest'; DROP TABLE runners"))


async def test_no_pods_are_made_for_a_version_that_is_refused_but_one_is_kept(
    world: World,
) -> None:
    account, key, pods = await scene(world, 1)
    await note(world, pods, OLD)
    await world.queue(account, key, 50)

    async def survey() -> Survey:
        return await world.store.survey_pools(ended=[], since=world.clock.now())

    [demanded] = (await survey()).keys
    assert (demanded.blocked, demanded.load.refused) == (None, False)
    await answer(world, account, OLD, world.clock.now())
    found = await survey()
    [demanded] = found.keys
    assert (demanded.blocked, demanded.load.refused) == (Withheld.RUNNER_VERSION, True)
    assert [pool.version for pool in found.pools] == [OLD]
    assert found.refused_in(demanded.pool) == {OLD}


async def test_pods_that_another_account_can_use_are_not_exchanged(world: World) -> None:
    refused, key, pods = await scene(world, 1)
    other = await world.account()
    [row] = await world.rows("SELECT pool_id FROM demand_keys WHERE id = $1", key)
    pool = PoolId(row["pool_id"])
    other_key = await world.key(other, pool)
    await note(world, pods, OLD)
    await answer(world, refused, OLD, world.clock.now())
    await world.queue(refused, key, 1)

    async def refused_in_pool() -> frozenset[str]:
        survey = await world.store.survey_pools(ended=[], since=world.clock.now())
        return survey.refused_in(pool)

    assert await refused_in_pool() == {OLD}
    await world.queue(other, other_key, 1)
    assert await refused_in_pool() == frozenset()
