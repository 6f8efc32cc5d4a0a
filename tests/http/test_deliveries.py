"""From stored deliveries to rows: applied, ignored, set aside, deferred; none blocks another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from paddock.domain.ids import AppId
from paddock.fakes.github import FaultKind, JobSpec
from paddock.ports.errors import DatabaseUnavailable
from paddock.store.database import Database
from tests.support.github import LINUX, GitHubScene, github_scene
from tests.support.payloads import delivery, workflow_job


@pytest.fixture
async def scene(database: Database) -> AsyncIterator[GitHubScene]:
    async with github_scene(database) as scene:
        await scene.store.apply_pool(LINUX)
        yield scene


async def rows(scene: GitHubScene, query: str, *args: object) -> list[tuple[Any, ...]]:
    async with scene.store._database.transaction() as connection:
        return [tuple(row) for row in await connection.fetch(query, *args)]


async def states(scene: GitHubScene) -> dict[str, int]:
    counted = await rows(scene, "SELECT state::text, count(*) FROM deliveries GROUP BY state")
    return dict(counted)


async def settle(scene: GitHubScene) -> None:
    await scene.apply()


async def test_a_queued_job_becomes_demand_though_its_installation_was_unknown(
    scene: GitHubScene,
) -> None:
    """The installation is looked up when an unknown id appears."""
    scene.take()
    scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=("self-hosted", "linux"))])
    await scene.deliver()

    await settle(scene)

    assert await states(scene) == {"applied": 1}
    assert await rows(scene, "SELECT login, kind FROM accounts") == [("acme", "organization")]
    assert await rows(
        scene, "SELECT j.state, k.repository_id FROM jobs j JOIN demand_keys k ON k.id = j.key_id"
    ) == [("queued", None)]


async def test_a_users_jobs_register_at_their_repository(scene: GitHubScene) -> None:
    """I18: users have no runners of their own."""
    user = scene.fake.accounts.add_user("ana")
    repository = scene.fake.accounts.add_repository(user, "notes")
    installation = scene.fake.accounts.install(scene.app, user)
    scene.take()
    scene.fake.jobs.queue_run(repository, [JobSpec(labels=("self-hosted", "linux"))])
    await scene.store.store_deliveries(
        [replace(scene.stored(each), installation=installation.id) for each in scene.take()]
    )
    await settle(scene)
    assert await rows(
        scene,
        "SELECT r.full_name FROM demand_keys k JOIN repositories r ON r.id = k.repository_id",
    ) == [("ana/notes",)]


async def test_a_delivery_that_can_never_be_applied_does_not_delay_the_next(
    scene: GitHubScene,
) -> None:
    """I13"""
    await scene.installations.read_all()
    good = workflow_job(job=1, installation=scene.installation.id, repository="acme/site")
    bodies: list[dict[str, Any] | bytes] = [
        b"{",
        b"[]",
        b'{"action": "queued"}',
        workflow_job(job=2, installation=scene.installation.id, action="exploded"),
        workflow_job(
            job=3, installation=scene.installation.id, action="completed", conclusion=None
        ),
        good,
    ]
    host, app = scene.registered.host, scene.registered.app
    await scene.store.store_deliveries(
        [delivery(host, app, f"guid-{number}", body) for number, body in enumerate(bodies)]
    )
    await settle(scene)

    assert await states(scene) == {"dead": 5, "applied": 1}
    assert await rows(scene, "SELECT id, state FROM jobs") == [(1, "queued")]
    notes = await rows(scene, "SELECT note FROM deliveries WHERE state = 'dead'")
    assert all(note for (note,) in notes)


async def test_one_that_the_database_refuses_is_set_aside_alone(scene: GitHubScene) -> None:
    """I13, I90: an id beyond 63 bits passes no decoder, a repository without an owner no constraint."""
    await scene.installations.read_all()
    host, app = scene.registered.host, scene.registered.app
    bad = workflow_job(job=1, installation=scene.installation.id, repository="ownerless")
    good = workflow_job(job=2, installation=scene.installation.id, repository="acme/site")
    bad["repository"]["id"] = 99
    await scene.store.store_deliveries(
        [delivery(host, app, "bad", bad), delivery(host, app, "good", good)]
    )
    await settle(scene)
    assert await states(scene) == {"dead": 1, "applied": 1}

    assert await scene.store.retry_deliveries(None) == 1
    assert await states(scene) == {"pending": 1, "applied": 1}


@pytest.mark.parametrize("fails", ["intake_context", "apply_deliveries"])
async def test_what_was_taken_when_the_database_failed_is_applied_at_once(
    scene: GitHubScene, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """I72. Other replicas may not take these deliveries for seconds, but they must not wait that
    long."""
    await scene.installations.read_all()
    scene.take()
    for _ in range(50):
        scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=("self-hosted", "linux"))])
    await scene.deliver()

    async def away(*_args: Any, **_options: Any) -> Any:
        raise DatabaseUnavailable("a session was cut")

    with monkeypatch.context() as outage:
        outage.setattr(scene.store, fails, away)
        with pytest.raises(DatabaseUnavailable):
            await scene.applier.round()
    assert await scene.applier.round() == 50
    assert await rows(scene, "SELECT count(*) FROM jobs WHERE state = 'queued'") == [(50,)]
    assert await scene.applier.round() == 0


async def test_a_thousand_duplicates_change_nothing(scene: GitHubScene) -> None:
    await scene.installations.read_all()
    scene.take()
    scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=("self-hosted", "linux"))])
    [outgoing] = scene.take()
    for _ in range(10):
        await scene.deliver(*[outgoing] * 100)
    await settle(scene)
    assert await states(scene) == {"applied": 1}
    assert await rows(scene, "SELECT count(*) FROM jobs") == [(1,)]


async def test_a_job_completed_before_it_was_queued_stays_completed(scene: GitHubScene) -> None:
    """I2"""
    await scene.installations.read_all()
    scene.take()
    run = scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=("self-hosted", "linux"))])
    scene.fake.jobs.cancel(run.jobs[0])
    queued, completed = scene.take()
    await scene.deliver(completed)
    await settle(scene)
    await scene.deliver(queued)
    await settle(scene)
    assert await rows(scene, "SELECT state FROM jobs") == [("completed",)]


async def test_a_replayed_suspend_changes_nothing(scene: GitHubScene) -> None:
    """paddock does not believe an event's word about an installation; it asks GitHub."""
    scene.take()
    scene.fake.accounts.suspend(scene.installation)
    [suspend] = scene.take()
    await scene.deliver(suspend)
    await settle(scene)
    assert await rows(scene, "SELECT state FROM installations") == [("suspended",)]

    scene.fake.accounts.unsuspend(scene.installation)
    await scene.deliver()
    await settle(scene)
    replayed = replace(scene.stored(suspend), guid="another-guid")
    await scene.store.store_deliveries([replayed])
    await settle(scene)
    assert await rows(scene, "SELECT state FROM installations") == [("active",)]


async def test_an_uninstalled_app_leaves_a_removed_installation(scene: GitHubScene) -> None:
    await scene.installations.read_all()
    scene.take()
    scene.fake.accounts.uninstall(scene.installation)
    await scene.deliver()
    await settle(scene)
    assert await rows(scene, "SELECT state FROM installations") == [("removed",)]


async def test_an_installation_is_removed_only_if_the_apps_own_list_agrees(
    scene: GitHubScene,
) -> None:
    """I29: one wrong 404 removes no installation."""
    await scene.installations.read_all()
    which = scene.installation.id
    path = f"/app/installations/{which}"
    scene.fake.inject(FaultKind.NOT_FOUND, path=path, times=None, seconds=60)

    assert await scene.installations.read(scene.registered.app, which)
    assert await rows(scene, "SELECT state FROM installations") == [("active",)]


async def test_a_removal_no_event_told_of_is_found_when_all_are_read(scene: GitHubScene) -> None:
    await scene.installations.read_all()
    scene.fake.accounts.uninstall(scene.installation)
    assert await scene.installations.read_all()
    assert await rows(scene, "SELECT state FROM installations") == [("removed",)]


async def test_a_renamed_account_keeps_its_row(scene: GitHubScene) -> None:
    """I4"""
    await scene.installations.read_all()
    scene.fake.accounts.rename(scene.acme, "acme-corp")
    await scene.installations.read_all()
    assert await rows(scene, "SELECT login FROM accounts") == [("acme-corp",)]


async def test_repositories_that_were_taken_away_are_out_of_reach(scene: GitHubScene) -> None:
    other = scene.fake.accounts.add_repository(scene.acme, "other")
    scene.fake.accounts.select_repositories(scene.installation, [scene.site, other])
    await scene.installations.read_all()
    scene.fake.accounts.select_repositories(scene.installation, [scene.site])
    await scene.installations.read_all()
    assert await rows(scene, "SELECT full_name, accessible FROM repositories ORDER BY 1") == [
        ("acme/other", False),
        ("acme/site", True),
    ]


async def test_jobs_of_others_are_passed_over_and_near_misses_kept_with_their_reason(
    scene: GitHubScene,
) -> None:
    """I11"""
    await scene.installations.read_all()
    scene.take()
    for labels in (("ubuntu-latest",), ("self-hosted", "linux", "gpu")):
        scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=labels)])
    await scene.deliver()
    await settle(scene)
    assert await states(scene) == {"applied": 1, "ignored": 1}
    [(refusal, detail)] = await rows(scene, "SELECT refusal, refusal_detail FROM jobs")
    assert refusal == "near-miss"
    assert "gpu" in detail


async def test_an_installation_that_cannot_be_read_puts_its_deliveries_off_and_no_others(
    scene: GitHubScene,
) -> None:
    """I9: the failure is not remembered; the delivery is looked at again a little later."""
    scene.take()
    scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=("self-hosted", "linux"))])
    await scene.deliver()
    scene.fake.inject(FaultKind.SERVER_ERROR, times=10)
    await scene.apply()
    assert await states(scene) == {"pending": 1}
    [(attempts, note)] = await rows(scene, "SELECT attempts, note FROM deliveries")
    assert attempts == 1
    assert note


async def test_no_queued_job_waits_while_github_is_slow_to_show_an_installation(
    scene: GitHubScene,
) -> None:
    """I83: with GitHub taking four seconds a known account's job is demand at once, and the job of an
    account that is not known yet follows when its installation was read."""
    await scene.installations.read_all()
    user = scene.fake.accounts.add_user("ana")
    notes = scene.fake.accounts.add_repository(user, "notes")
    new = scene.fake.accounts.install(scene.app, user)
    scene.take()
    scene.fake.set_faults(msgspec.structs.replace(scene.fake.world.faults, latency=(4.0, 4.0)))
    reading = asyncio.create_task(scene.reads.run())
    try:
        job = JobSpec(labels=("self-hosted", "linux"))
        scene.fake.jobs.queue_run(notes, [job])
        await scene.store.store_deliveries(
            [replace(scene.stored(each), installation=new.id) for each in scene.take()]
        )
        await scene.applier.round()
        scene.fake.jobs.queue_run(scene.site, [job])
        await scene.deliver()
        await scene.applier.round()
        assert await rows(scene, "SELECT state FROM jobs") == [("queued",)]
        while len(await rows(scene, "SELECT FROM jobs")) < 2:
            await asyncio.sleep(0.1)
            await scene.applier.round()
    finally:
        reading.cancel()


async def test_an_installation_is_read_once_for_all_that_wait_for_it(scene: GitHubScene) -> None:
    """Also for a delivery that comes back while its installation is being read."""
    scene.take()
    scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=("self-hosted", "linux"))] * 3)
    await scene.deliver()
    scene.fake.set_faults(msgspec.structs.replace(scene.fake.world.faults, latency=(0.5, 0.5)))
    reads = 0
    read = scene.installations.read

    async def counted(app: AppId, installation: int, **how: Any) -> bool:
        nonlocal reads
        reads += 1
        return await read(app, installation, **how)

    scene.installations.read = counted  # type: ignore[method-assign]
    reading = asyncio.create_task(scene.reads.run())
    try:
        await scene.applier.round()
        await asyncio.sleep(0.1)
        await rows(scene, "UPDATE deliveries SET not_before = received_at RETURNING 1")
        await scene.applier.round()
        while await states(scene) != {"applied": 3}:
            await asyncio.sleep(0.05)
            await scene.applier.round()
    finally:
        reading.cancel()
    assert reads == 1
