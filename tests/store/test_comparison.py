"""What a comparison with GitHub reads from the store, and how its progress is stored."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paddock.domain.accounts import InstallationFacts
from paddock.domain.ids import AccountId, AppId, JobId
from paddock.domain.jobs.comparison import RECENT
from paddock.domain.states import JobState
from paddock.store.database import Database
from tests.support.world import PLENTY, World

HOUR = 3600


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


async def active(world: World, *apps: AppId) -> list[int]:
    found = await world.store.active_repositories(
        apps or (world.app,), since=world.clock.now() - RECENT
    )
    return [each.id for each in found]


async def install(
    world: World, account: AccountId, *, app: AppId, number: int, state: str = "active"
) -> None:
    [row] = await world.rows("SELECT github_id, login FROM accounts WHERE id = $1", account)
    await world.store.record_installation(
        InstallationFacts(
            host=world.host,
            app=app,
            id=number,
            account_id=row["github_id"],
            login=row["login"],
            kind="organization",
            state=state,  # type: ignore[arg-type]
            all_repositories=True,
        )
    )


async def test_only_repositories_with_activity_are_compared(world: World) -> None:
    busy, _silent = await world.account(), await world.account()
    key = await world.key(busy, await world.pool())
    assert await active(world) == []
    await world.report(busy, key, world.facts(1, JobState.COMPLETED))

    assert await active(world) == [world.repositories[busy]]
    world.clock.advance(RECENT.total_seconds() + 1)
    assert await active(world) == []


async def test_a_repository_whose_job_has_not_ended_is_compared_however_long_ago(
    world: World,
) -> None:
    account = await world.account()
    key = await world.key(account, await world.pool())
    await world.report(account, key, world.facts(1, JobState.IN_PROGRESS))
    world.clock.advance(4 * 24 * HOUR)

    [found] = await world.store.active_repositories([world.app], since=world.clock.now() - RECENT)

    assert found.id == world.repositories[account]
    assert found.has_open_jobs
    await world.report(account, key, world.facts(1, JobState.COMPLETED))
    world.clock.advance(RECENT.total_seconds() + 1)
    assert await active(world) == []


async def test_a_repository_comes_with_all_that_is_needed_to_ask_about_it(world: World) -> None:
    account = await world.account()
    key = await world.key(account, await world.pool())
    await world.queue(account, key, 1)

    [found] = await world.store.active_repositories([world.app], since=world.clock.now() - RECENT)

    facts = world.repository_facts[account]
    assert (found.github_id, found.full_name) == (facts.github_id, facts.full_name)
    assert (found.host, found.account) == (world.host, account)
    [installation] = await world.store.active_installations(world.app)
    assert found.asker == (world.app, installation)
    assert (found.active_at, found.compared_at) == (world.clock.now(), None)


async def test_what_no_app_may_read_is_not_compared(world: World) -> None:
    suspended, removed, foreign, hidden = [await world.account() for _ in range(4)]
    pool = await world.pool()
    for account in (suspended, removed, foreign, hidden):
        await world.queue(account, await world.key(account, pool), 1)
    numbers = await world.store.active_installations(world.app)
    await install(world, suspended, app=world.app, number=numbers[0], state="suspended")
    await world.store.remove_installation(world.host, numbers[1])
    await world.rows(
        "UPDATE repositories SET accessible = false WHERE account_id = $1 RETURNING 1", hidden
    )

    assert await active(world) == [world.repositories[foreign]]
    assert await active(world, AppId(world.app + 1)) == []


async def test_an_account_with_two_apps_is_asked_about_through_one(world: World) -> None:
    account = await world.account()
    await world.queue(account, await world.key(account, await world.pool()), 1)
    other = await world.store.ensure_app(world.host, 2, mints=PLENTY)
    await install(world, account, app=other, number=99)

    since = world.clock.now() - RECENT
    [found] = await world.store.active_repositories([other, world.app], since=since)
    assert found.app == world.app
    [found] = await world.store.active_repositories([other], since=since)
    assert found.asker == (other, 99)


async def test_a_comparison_is_remembered_and_wakes_no_loop(world: World) -> None:
    account = await world.account()
    await world.queue(account, await world.key(account, await world.pool()), 1)
    heard: list[str] = []
    async with world.database.acquire() as connection:
        await connection.add_listener("paddock", lambda *told: heard.append(told[-1]))
        await world.store.note_comparison(world.repositories[account])
        world.clock.advance(60)
        await world.store.note_comparison(world.repositories[account])
        await connection.execute("SELECT 1")

    [found] = await world.store.active_repositories([world.app], since=world.clock.now() - RECENT)
    assert found.compared_at == world.clock.now()
    assert heard == []


async def test_open_jobs_are_those_that_have_not_ended(world: World) -> None:
    account = await world.account()
    key = await world.key(account, await world.pool())
    other = await world.account()
    states = dict(enumerate(JobState, start=1))
    await world.report(account, key, *(world.facts(job, state) for job, state in states.items()))
    await world.queue(other, await world.key(other, await world.pool()), 1)
    world.clock.advance(60)
    await world.report(account, key, world.facts(1, JobState.QUEUED))

    found = await world.store.open_jobs(world.repositories[account])

    assert [(job.id, job.state) for job in found] == [
        (1, JobState.QUEUED),
        (2, JobState.QUEUED),
        (3, JobState.IN_PROGRESS),
    ]
    now, before = world.clock.now(), world.clock.now() - timedelta(seconds=60)
    assert [job.since for job in found] == [now, before, before]


async def test_of_jobs_asked_about_the_known_ones_are_told_ended_or_not(world: World) -> None:
    account = await world.account()
    key = await world.key(account, await world.pool())
    await world.report(account, key, world.facts(1), world.facts(2, JobState.COMPLETED))
    known = await world.store.job_states(world.host, [JobId(1), JobId(2), JobId(3)])
    assert known == {1: JobState.QUEUED, 2: JobState.COMPLETED}


async def test_a_new_apps_cursor_begins_now_and_moves_forwards_only(world: World) -> None:
    """I8: it is durable, and it never skips what lies behind."""
    begin = world.clock.now()
    assert await world.store.hook_cursor(world.app) == begin
    world.clock.advance(60)
    assert await world.store.hook_cursor(world.app) == begin

    later = world.clock.now()
    await world.store.move_hook_cursor(world.app, later)
    await world.store.move_hook_cursor(world.app, begin)

    assert await world.store.hook_cursor(world.app) == later
