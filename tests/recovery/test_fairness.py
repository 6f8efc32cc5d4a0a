"""Questions to GitHub are few: no account's jobs and runners take the places of others (I26)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddock.dispatch import refusals
from paddock.dispatch.debts import DebtCollector
from paddock.dispatch.refusals import RefusalReview
from paddock.dispatch.trust import TrustReview
from paddock.domain.github.backoffs import PausedScope
from paddock.domain.github.errors import BackOff, Failure, GitHubError, Kind
from paddock.domain.github.objects import InstallationKey, Removal, RunId, RunRecord, Scope
from paddock.domain.ids import AccountId, GitHubRunnerId, JobId, KeyId
from paddock.domain.limits import Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.runners.runner import Runner
from paddock.domain.states import JobState
from paddock.recovery.jobs import MOST
from tests.support.github import NoWakeups
from tests.support.recovery import ScriptedGitHub, Yard, waiting
from tests.support.world import PLENTY, executor

#: More than there are places in one round.
MANY = 3 * MOST
QUARTER = 15 * 60


def refused() -> GitHubError:
    return GitHubError(
        Failure(
            kind=Kind.IP_NOT_PERMITTED,
            backs_off=BackOff.ACCOUNT,
            backoff_s=600,
            ceiling_s=3600,
            retryable=False,
            sentence="GitHub refused: the account has an IP allow list",
        )
    )


async def lost_job(scene: Yard) -> JobId:
    """A job whose runner is gone, and which GitHub has queued again."""
    world, runner = scene.world, await scene.running()
    assert runner.hint is not None
    begun = world.facts(runner.hint, JobState.IN_PROGRESS, executor=executor(runner))
    await world.report(scene.account, scene.key, begun)
    scene.github.job(runner.hint, "queued", world.clock.now())
    scene.fleet.end_runner(runner.pod_name, exit_code=137, reason="Error")
    return runner.hint


async def approvals(scene: Yard, account: AccountId, key: KeyId) -> list[JobId]:
    """Jobs that wait for an approval for so long that GitHub is asked about them."""
    world = scene.world
    jobs = [JobId(900_000 + number) for number in range(MANY)]
    await world.report(account, key, *(world.facts(job, JobState.WAITING) for job in jobs))
    world.clock.advance(QUARTER + 60)
    return jobs


async def state_of(scene: Yard, job: JobId) -> str:
    [row] = await scene.world.rows("SELECT state FROM jobs WHERE id = $1", job)
    return str(row["state"])


async def test_jobs_of_a_repository_that_cannot_be_read_take_no_others_places(scene: Yard) -> None:
    """I26: not even within their account. GitHub answers 404 for the repository, which is not proven to
    be deleted."""
    world = scene.world
    readable = world.repository_facts[scene.account]
    unreadable = replace(readable, github_id=3999, full_name="org-1/other")
    world.repository_facts[scene.account] = unreadable
    await approvals(scene, scene.account, scene.key)
    world.repository_facts[scene.account] = readable
    scene.github.not_found, scene.github.listed = {"org-1/other"}, [3001, 3999]
    job = await lost_job(scene)

    await scene.rounds(scene.recovery(), 60)

    assert await state_of(scene, job) == "queued"


async def test_many_jobs_of_one_account_do_not_make_those_of_others_wait(scene: Yard) -> None:
    """I26: all can be read; a round has thirty questions."""
    other = await scene.world.account()
    jobs = await approvals(scene, other, await scene.world.key(other, scene.pool))
    for each in jobs:
        scene.github.job(each, "waiting", scene.world.clock.now())
    job = await lost_job(scene)

    await scene.rounds(scene.recovery(), 50)

    assert await state_of(scene, job) == "queued"
    assert scene.github.calls["get_job"] < MANY


async def test_every_job_that_waits_for_an_approval_has_its_turn(scene: Yard) -> None:
    """I26: also the youngest, behind a thousand that GitHub was just asked about."""
    world = scene.world
    old = [world.facts(number, JobState.WAITING) for number in range(900_000, 901_000)]
    await world.report(scene.account, scene.key, *old)
    world.clock.advance(1)
    await world.report(scene.account, scene.key, world.facts(77, JobState.WAITING))
    world.clock.advance(QUARTER + 60)
    await world.rows(
        "INSERT INTO job_checks (host_id, job_id, checked_at, answer, times)"
        " SELECT host_id, id, $1, 'waiting', 1 FROM jobs WHERE id <> 77",
        world.clock.now(),
    )
    scene.github.job(JobId(77), "completed", world.clock.now(), conclusion="cancelled")

    await scene.rounds(scene.recovery())

    assert await state_of(scene, JobId(77)) == "completed"


async def test_runners_that_ended_unexplained_take_no_others_places(scene: Yard) -> None:
    """I26: of most that ended GitHub will never say more; one is known to GitHub still."""
    recovery = scene.recovery()
    runners = [await scene.running() for _ in range(25)]
    for runner in runners:
        assert runner.hint is not None
        scene.github.job(runner.hint, "queued", scene.world.clock.now())
        scene.fleet.end_runner(runner.pod_name, exit_code=0)
        if runner is not runners[-1]:
            assert runner.github_id is not None
            del scene.github.records[runner.github_id]
        await scene.rounds(recovery)
        scene.world.clock.advance(1)

    await scene.rounds(recovery, 300)

    assert (await scene.verdict(runners[-1]))["ending"] == "never-ran"


async def ended(scene: Yard, account: AccountId, key: KeyId) -> Runner:
    world, idle = scene.world, await scene.idle()
    await world.queue(account, key, 1)
    [claim] = (await world.store.match([waiting(idle)])).claims
    armed = await world.arm(claim.runner, claim.generation)
    assert isinstance(armed, Runner)
    scene.github.register(armed)
    running = await world.acknowledge(armed)
    scene.fleet.end_poller(running.pod_name)
    scene.fleet.end_runner(running.pod_name, exit_code=0)
    await scene.rounds(scene.recovery())
    world.clock.advance(1)
    return running


async def test_open_verdicts_are_looked_at_of_every_account_in_turn(scene: Yard) -> None:
    """I26, and none of what cannot be read."""
    world = scene.world
    other = await world.account()
    key = await world.key(other, scene.pool)
    theirs = [await ended(scene, other, key) for _ in range(3)]
    ours = await ended(scene, scene.account, scene.key)
    start, now = world.clock.now().replace(year=2000), world.clock.now()

    found = await world.store.open_verdicts(after=start, until=now, limit=2)
    assert [each.runner for each in found] == [theirs[0].id, ours.id]

    unreadable = [world.repositories[other]]
    found = await world.store.open_verdicts(after=start, until=now, unreadable=unreadable, limit=9)
    assert [each.runner for each in found] == [ours.id]


async def test_what_is_paused_is_found_by_app_installation_or_repository(scene: Yard) -> None:
    """paddock reads an account through the first App that it has installed: a pause of the second one
    has no effect."""
    world = scene.world
    other = await world.account()
    second = await world.store.ensure_app(world.host, 2, mints=PLENTY)
    await world.rows(
        "INSERT INTO installations (host_id, app_id, github_id, account_id, state, all_repositories,"
        " read_at) SELECT host_id, $1, 5000, account_id, state, all_repositories, read_at"
        " FROM installations WHERE account_id = $2",
        second,
        other,
    )
    apps, both = [world.app, second], sorted(world.repositories.values())
    [theirs] = [
        row["github_id"]
        for row in await world.rows(
            "SELECT github_id FROM installations WHERE account_id = $1 AND app_id = $2",
            other,
            world.app,
        )
    ]
    read = world.store.unreadable_repositories
    app = PausedScope(app=world.app)
    assert await read([app], apps=apps) == both
    assert await read([replace(app, installation=theirs)], apps=apps) == [both[1]]
    named = replace(app, installation=theirs, repository="ORG-2/repo")
    assert await read([named], apps=apps) == [both[1]]
    assert await read([replace(named, repository="org-2/else")], apps=apps) == []
    assert await read([PausedScope(app=second)], apps=apps) == []
    assert await read([PausedScope(app=second)], apps=[second]) == [both[1]]
    assert await read([], apps=apps) == []


class WithoutRuns(ScriptedGitHub):
    """No run can be read."""

    async def get_run(self, who: InstallationKey, repository: Scope, run: RunId) -> RunRecord:
        self.calls["get_run"] += 1
        raise refused()


async def test_runs_that_cannot_be_looked_up_take_no_others_places(scene: Yard) -> None:
    """I26: the jobs of others wait for it where their pool refuses strangers."""
    world = scene.world
    await world.store.apply_pool(
        PoolFacts(
            name="linux",
            labels=("self-hosted", "linux"),
            shape="gated",
            cost=Resources(),
            max_runners=None,
            spec='{"forks": "mark"}',
            spec_hash="v2",
        )
    )
    other = await world.account()
    theirs = await world.queue(other, await world.key(other, scene.pool), 600)
    world.clock.advance(10)
    [ours] = await world.queue(scene.account, scene.key, 1)
    first = await world.store.trust_questions([world.app], limit=2)
    assert [each.job for each in first] == [theirs[0], ours]

    github = WithoutRuns()
    review = TrustReview(
        store=world.store,
        github=github,
        clock=world.clock,
        apps=scene.apps,
        wakeups=NoWakeups(),
    )
    assert await review.round() == 500
    asked = github.calls["get_run"]
    assert asked == 2, "one of each account"
    assert await review.round() == 0, "both are left alone"


class Refusing(ScriptedGitHub):
    """org-2 has an IP allow list."""

    async def delete_runner(
        self, who: InstallationKey, scope: Scope, runner: GitHubRunnerId
    ) -> Removal:
        if scope.owner == "org-2":
            self.calls["refused"] += 1
            raise refused()
        return await super().delete_runner(who, scope, runner)


async def test_records_that_cannot_be_removed_take_no_others_places(scene: Yard) -> None:
    """I26"""
    world = scene.world
    other = await world.account()
    key = await world.key(other, scene.pool)
    theirs = [await ended(scene, other, key) for _ in range(3)]
    ours = await ended(scene, scene.account, scene.key)
    world.clock.advance(700)
    found = await world.store.debts(before=world.clock.now(), limit=2)
    assert [each.name for each in found] == [theirs[0].name, ours.name]

    github = Refusing(records=scene.github.records)
    collector = DebtCollector(store=world.store, github=github, clock=world.clock)
    assert await collector.round() == 4
    assert github.calls["refused"] == 1, "the rest of the account waits with it"
    assert ours.github_id not in github.records


async def test_jobs_that_no_pool_will_take_keep_no_others_from_being_judged(
    scene: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I26"""
    monkeypatch.setattr(refusals, "_BATCH", 2)
    world = scene.world
    jobs = await world.queue(scene.account, scene.key, 7)
    await world.rows(
        "UPDATE jobs SET key_id = NULL, refusal = 'no pool', refusal_detail = 'test',"
        " labels = CASE WHEN id = $1 THEN labels ELSE '{unheard-of}' END",
        jobs[-1],
    )
    assert await RefusalReview(store=world.store, wakeups=NoWakeups()).round() == 1
