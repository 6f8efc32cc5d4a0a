"""A comparison with GitHub's lists finds what no webhook reported, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from paddock.dispatch import comparison
from paddock.domain.github.budgets import Bucket, BudgetKey
from paddock.domain.github.objects import InstallationId
from paddock.domain.ids import GitHubRunnerId, JobId, PoolId, RepositoryId, RunnerId
from paddock.domain.jobs.comparison import FASTEST, RECENT
from paddock.domain.runners.runner import WaitingPod
from paddock.fakes.github import FaultKind, Faults, JobSpec
from paddock.fakes.github.records import Job
from paddock.github import client
from paddock.store.database import Database
from tests.support.missed import LABELS, Missed, missed_webhooks

MINUTE = 60.0


@pytest.fixture
async def scene(database: Database) -> AsyncIterator[Missed]:
    """A scene with a repository that is active and due."""
    async with missed_webhooks(database) as scene:
        scene.queue()
        await scene.settle()
        await scene.comparison.round()
        scene.clock.advance(FASTEST.total_seconds())
        scene.calls()
        yield scene


@pytest.fixture
def queued(scene: Missed) -> Job:
    """The job that made it active."""
    [job] = scene.fake.world.jobs.values()
    return job


def unsent(scene: Missed) -> None:
    """From now on GitHub sends no webhooks and lists none."""
    scene.fake.set_faults(Faults(hook_lost=1.0))


async def test_a_job_whose_webhook_was_never_sent_is_found(scene: Missed) -> None:
    """I8: there is nothing to redeliver."""
    unsent(scene)
    [job] = scene.queue()

    await scene.comparison.round()

    assert await scene.rows("SELECT state, why FROM jobs WHERE id = $1", job.id) == [
        ("queued", "compared with GitHub")
    ]
    keys = await scene.rows("SELECT k.pool_id FROM jobs j JOIN demand_keys k ON k.id = j.key_id")
    assert len(keys) == 2
    assert await scene.rows("SELECT rule, outcome FROM actions WHERE job_id = $1", job.id) == [
        ("job-unknown", "done")
    ]


async def test_a_job_still_queued_in_a_run_in_progress_is_found(scene: Missed) -> None:
    unsent(scene)
    group = scene.fake.world.groups[scene.site.owner.id][0]
    scene.fake.runners.add_foreign(
        scene.site.owner, name="foreign", group=group, labels=["gpu"], ephemeral=True
    )
    started, waits = scene.fake.jobs.queue_run(
        scene.site, [JobSpec(labels=("gpu",), seconds=600), JobSpec(labels=LABELS)]
    ).jobs
    assert started.run.status == "in_progress"

    await scene.comparison.round()

    assert await scene.state(waits) == "queued"
    assert await scene.state(started) is None


async def test_a_missed_completion_is_found(scene: Missed) -> None:
    [job] = scene.queue()
    await scene.settle()
    scene.clock.advance(MINUTE)
    unsent(scene)
    scene.fake.jobs.cancel(job)

    await scene.comparison.round()

    assert await scene.rows("SELECT state, conclusion FROM jobs WHERE id = $1", job.id) == [
        ("completed", "cancelled")
    ]


async def test_a_missed_start_is_found(scene: Missed, queued: Job) -> None:
    unsent(scene)
    group = scene.fake.world.groups[scene.site.owner.id][0]
    scene.fake.runners.add_foreign(scene.site.owner, name="x", group=group, labels=LABELS)
    assert queued.status == "in_progress"

    await scene.comparison.round()

    assert await scene.rows("SELECT state, executor_name FROM jobs") == [("in_progress", "x")]


async def test_a_strangers_job_on_one_of_our_runners_is_found(scene: Missed) -> None:
    """I23: it is no job of our pools, and it keeps our runner busy."""
    [(pool,)] = await scene.rows("SELECT id FROM pools")
    planned = await scene.store.plan_runners(
        PoolId(pool), [(RunnerId(UUID(int=1)), "linux-1")], why="test"
    )
    found = await scene.store.hear_pod(planned[0].pod_name, pod_uid="uid")
    assert found is not None
    heard = found.runner
    waiting = WaitingPod(id=heard.id, pool=heard.pool, pod_name=heard.pod_name, generation=0)
    [claim] = (await scene.store.match([waiting])).claims
    group = scene.fake.world.groups[scene.site.owner.id][0]
    record = scene.fake.runners.mint(
        scene.site.owner, name=claim.name, group=group, labels=["gpu"]
    ).runner
    await scene.store.arm_runner(
        heard.id,
        generation=claim.generation,
        github_id=GitHubRunnerId(record.id),
        delivery=UUID(int=2),
        sealed_jit=b"sealed",
        sealing_key="k1",
    )
    unsent(scene)
    session = scene.fake.runners.connect(
        client_id=record.client_id, secret=record.secret, version="2.330.0"
    )
    [job] = scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=("gpu",))]).jobs
    scene.fake.runners.acquire(session.id, job.id)

    await scene.comparison.round()

    assert await scene.state(job) == "in_progress"
    assert await scene.rows("SELECT state, job_id FROM runners") == [("busy", job.id)]


async def test_a_job_that_github_does_not_know_any_more_is_left_to_recovery(
    scene: Missed, queued: Job
) -> None:
    """One answer ends nothing (I29), but paddock records it."""
    scene.fake.jobs.delete_run(queued.run)

    await scene.comparison.round()

    assert await scene.state(queued) == "queued"
    assert await scene.rows("SELECT job_id, answer FROM job_checks") == [(queued.id, "absent")]


async def test_jobs_that_fit_no_pool_are_not_taken_in(scene: Missed) -> None:
    unsent(scene)
    [job] = scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=("ubuntu-latest",))]).jobs
    await scene.comparison.round()
    assert await scene.state(job) is None


async def test_repositories_without_activity_are_not_asked_about(scene: Missed) -> None:
    scene.fake.accounts.add_repository(scene.site.owner, "attic")
    await scene.settle()

    await scene.comparison.round()

    asked = scene.calls("/repos/")
    assert asked
    assert all(path.startswith("/repos/acme/site/") for _, path in asked)


async def test_without_any_activity_github_is_not_asked_at_all(scene: Missed) -> None:
    unsent(scene)
    scene.clock.advance(2 * RECENT.total_seconds())  # GitHub cancels the job after a day
    assert await scene.comparison.round() == 1
    scene.clock.advance(2 * RECENT.total_seconds())
    scene.calls()

    assert await scene.comparison.round() == 0
    assert scene.calls() == []


async def test_a_repository_is_left_alone_until_its_time_comes(scene: Missed) -> None:
    assert await scene.comparison.round() == 1
    assert await scene.comparison.round() == 0
    scene.clock.advance(FASTEST.total_seconds())
    assert await scene.comparison.round() == 1


async def test_a_spent_quota_is_left_to_those_who_need_it_more(scene: Missed) -> None:
    key = scene.registered.key
    quota = BudgetKey(
        bucket=Bucket.REST,
        host=key.host,
        app=key.app,
        installation=InstallationId(scene.installation.id),
    )
    await scene.budget.observe(quota, remaining=500)
    assert await scene.comparison.round() == 0
    assert scene.calls() == []
    scene.clock.advance(3600)
    assert await scene.comparison.round() == 1


async def test_a_list_that_is_not_whole_proves_nothing(
    scene: Missed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I29: listed jobs are news; paddock does not ask about the missing ones."""
    monkeypatch.setattr(client, "PER_PAGE", 1)
    monkeypatch.setattr(client, "RUN_PAGES", 1)
    unsent(scene)
    [newest] = scene.queue()
    scene.calls()

    await scene.comparison.round()

    assert await scene.state(newest) == "queued"
    assert scene.calls("/actions/jobs/") == []


async def test_a_read_that_fails_changes_nothing_and_is_tried_again(scene: Missed) -> None:
    """I29"""
    [job] = scene.queue()
    await scene.settle()
    scene.clock.advance(MINUTE)
    unsent(scene)
    scene.fake.jobs.cancel(job)
    scene.fake.inject(FaultKind.BAD_GATEWAY, path="/actions/", times=None, seconds=10 * MINUTE)
    with capture_logs() as logs:
        for _ in range(10):
            await scene.comparison.round()
            scene.clock.advance(MINUTE)
    assert await scene.state(job) == "queued"
    assert [line["event"] for line in logs] == ["comparison.failed"]
    assert len(scene.calls("/actions/runs")) < 30  # three attempts each, less and less often

    scene.clock.advance(10 * MINUTE)
    await scene.comparison.round()
    assert await scene.state(job) == "completed"


async def test_one_account_that_fails_does_not_stop_the_others(scene: Missed) -> None:
    """I17: a suspended installation answers 404 to everything."""
    beta = scene.fake.accounts.add_organization("beta")
    shop = scene.fake.accounts.add_repository(beta, "shop")
    scene.fake.accounts.install(scene.app, beta)
    scene.queue(repository=shop)
    await scene.settle()
    unsent(scene)
    [missed] = scene.queue(repository=shop)
    scene.fake.inject(FaultKind.NOT_FOUND, owner="acme", times=None, seconds=10 * MINUTE)

    assert await scene.comparison.round() == 2

    assert await scene.state(missed) == "queued"


async def test_a_job_github_does_not_know_any_more_is_left_to_recovery(scene: Missed) -> None:
    [job] = scene.queue()
    await scene.settle()
    scene.clock.advance(MINUTE)
    del scene.fake.world.runs[job.run.id], scene.fake.world.jobs[job.id]

    await scene.comparison.round()

    assert scene.calls(f"/actions/jobs/{job.id}")
    assert await scene.state(job) == "queued"


async def test_a_job_that_waits_for_approval_is_not_missed(scene: Missed) -> None:
    [job] = scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=LABELS, gated=True)]).jobs
    await scene.settle()
    scene.clock.advance(MINUTE)
    scene.calls()

    await scene.comparison.round()

    assert await scene.state(job) == "waiting"
    assert scene.calls("/actions/jobs/") == []


async def test_a_known_job_is_completed_though_its_pool_takes_no_more(scene: Missed) -> None:
    [job] = scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=("linux",))]).jobs
    await scene.settle()
    scene.clock.advance(MINUTE)
    await scene.rows("UPDATE pools SET state = 'draining' RETURNING 1")
    unsent(scene)
    scene.fake.jobs.cancel(job)

    await scene.comparison.round()

    assert await scene.state(job) == "completed"


async def test_one_job_that_cannot_be_written_does_not_keep_the_others_out(scene: Missed) -> None:
    """I13"""
    unsent(scene)
    bad, good = scene.fake.jobs.queue_run(
        scene.site, [JobSpec(name="a\0b", labels=LABELS), JobSpec(labels=LABELS)]
    ).jobs

    await scene.comparison.round()

    assert await scene.state(bad) is None
    assert await scene.state(good) == "queued"


async def test_many_missed_completions_are_found_a_few_at_a_time(
    scene: Missed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "LOOK_UPS", 3)
    jobs = scene.queue(7)
    await scene.settle()
    scene.clock.advance(MINUTE)
    unsent(scene)
    scene.fake.jobs.cancel_run(jobs[0].run)
    found = []
    for _ in range(3):
        await scene.comparison.round()
        found.append(sum([await scene.state(job) == "completed" for job in jobs]))
        scene.clock.advance(FASTEST.total_seconds())
    assert found == [3, 6, 7]


async def test_jobs_that_stay_open_do_not_keep_others_from_being_asked_for(
    scene: Missed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "LOOK_UPS", 2)
    jobs = [JobId(number) for number in (1, 2, 3, 4, 5)]
    turns = [scene.comparison._turn(RepositoryId(1), jobs) for _ in range(3)]
    assert turns == [[1, 2], [3, 4], [5, 1]]
