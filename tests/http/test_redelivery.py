"""paddock requests redelivery of failed webhooks, from GitHub's own list, over HTTP."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from paddock.dispatch import redelivery
from paddock.domain.github.budgets import Bucket, BudgetKey
from paddock.domain.github.redelivery import OVERLAP, WINDOW
from paddock.fakes.github import FaultKind
from paddock.github import client
from paddock.store.database import Database
from tests.support.missed import Missed, missed_webhooks

HOUR = 3600


@pytest.fixture
async def scene(database: Database) -> AsyncIterator[Missed]:
    async with missed_webhooks(database) as scene:
        yield scene


def redelivered(scene: Missed) -> int:
    return len([method for method, _ in scene.calls("/attempts") if method == "POST"])


async def everything_arrived(scene: Missed) -> bool:
    sent = set(scene.sent)
    return await scene.store.known_guids(scene.registered.host, sorted(sent)) == sent


async def test_all_webhooks_of_an_outage_of_days_are_recovered(scene: Missed) -> None:
    """I8: two and a half days with jobs throughout; GitHub cancels some of them meanwhile."""
    jobs = []
    scene.away = 503
    for _ in range(10):
        jobs += scene.queue(8)
        scene.clock.advance(6 * HOUR)
    scene.away = None
    missed = len(scene.sent)

    await scene.rounds(-(-missed // redelivery.REDELIVERIES) + 1)

    assert await everything_arrived(scene)
    assert await scene.known() == {job.id for job in jobs}
    assert redelivered(scene) == missed


async def test_an_outage_that_began_before_a_restart_is_caught_up_with(scene: Missed) -> None:
    """I8: the cursor is in the store, and no process has to remember the outage."""
    scene.away = 503
    scene.queue(3)
    await scene.rounds(3)
    scene.clock.advance(40 * HOUR)
    scene.queue(3)
    scene.clock.advance(HOUR)
    scene.away = None

    scene.redelivery = scene.restarted()
    await scene.rounds(1)

    assert await everything_arrived(scene)


async def test_a_delivery_that_failed_first_and_succeeded_later_is_not_asked_for_again(
    scene: Missed,
) -> None:
    """I7: its failed attempt is listed for days. Also where only GitHub knows of the success."""
    scene.away = 502
    scene.queue()
    scene.clock.advance(60)
    scene.away = 200
    await scene.rounds(1)
    assert redelivered(scene) == 1

    for _ in range(20):
        await scene.rounds(1, every=HOUR)
        scene.redelivery = scene.restarted()

    assert redelivered(scene) == 0


async def test_what_arrived_is_not_asked_for_though_github_calls_it_failed(scene: Missed) -> None:
    """I7: our answer came after GitHub's ten seconds."""
    scene.queue()
    await scene.settle()
    delivery = list(scene.fake.world.deliveries.values())[-1]
    scene.fake.hooks.finished(delivery.id, 0)
    scene.clock.advance(HOUR)

    await scene.rounds(3)

    assert redelivered(scene) == 0


async def test_a_receiver_that_stays_away_is_asked_less_and_less_and_then_not_at_all(
    scene: Missed,
) -> None:
    """I7"""
    scene.away = 503
    scene.queue()
    guid = scene.sent[-1]
    sent = [1]
    for _ in range(5):
        await scene.rounds(24, every=HOUR)
        sent.append(scene.sent.count(guid))

    first, second, third, *later = [now - before for before, now in itertools.pairwise(sent)]
    assert first > second >= third > 0
    assert later == [0, 0]


async def test_what_github_no_longer_repeats_is_given_up_and_said_once(scene: Missed) -> None:
    scene.fake.world.timing = replace(scene.fake.world.timing, deliveries_for=7 * 24 * HOUR)
    scene.away = 503
    scene.fake.accounts.suspend(scene.installation)
    scene.clock.advance(WINDOW.total_seconds() + 60)

    with capture_logs() as logs:
        await scene.rounds(3)

    assert [line["event"] for line in logs] == ["redelivery.given_up"]
    assert redelivered(scene) == 0


async def test_webhooks_that_mean_nothing_here_are_left_alone(scene: Missed) -> None:
    scene.away = 503
    scene.fake.hooks.ping(scene.app)
    scene.clock.advance(HOUR)
    await scene.rounds(3)
    assert redelivered(scene) == 0


async def test_a_list_too_long_for_one_round_is_read_on_in_the_next(
    scene: Missed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8: the cursor stays until all of it was read, however long that takes; what comes in
    meanwhile is not overlooked."""
    monkeypatch.setattr(client, "PER_PAGE", 10)
    monkeypatch.setattr(redelivery, "PAGES", 3)
    monkeypatch.setattr(redelivery, "REDELIVERIES", 5)
    scene.away = 503
    for _ in range(3):
        scene.queue(20)
        scene.clock.advance(HOUR)
    begin = await scene.store.hook_cursor(scene.registered.app)
    scene.calls()

    await scene.rounds(2)
    assert await scene.store.hook_cursor(scene.registered.app) == begin
    assert len([1 for method, _ in scene.calls("/app/hook") if method == "GET"]) == 6
    scene.queue(5)
    scene.away = None
    await scene.rounds(20)

    assert await everything_arrived(scene)
    cursor = await scene.store.hook_cursor(scene.registered.app)
    assert scene.clock.now() - cursor < timedelta(hours=1)


async def test_one_delivery_that_keeps_failing_does_not_have_everything_read_again(
    scene: Missed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PER_PAGE", 10)
    scene.away = 413
    scene.queue()
    stuck = scene.clock.now()
    scene.clock.advance(60)
    await scene.rounds(1)
    for _ in range(3):
        scene.away = None
        scene.queue(20)
        await scene.settle()
        scene.away = 413
        await scene.rounds(1)
        scene.clock.advance(600)
    scene.calls()

    await scene.rounds(5)

    assert len([1 for method, _ in scene.calls("/app/hook") if method == "GET"]) <= 10
    assert await scene.store.hook_cursor(scene.registered.app) == stuck


async def test_the_cursor_follows_what_arrives(scene: Missed) -> None:
    scene.clock.advance(600)
    scene.queue()
    newest = scene.clock.now()
    await scene.settle()
    scene.clock.advance(600)
    await scene.rounds(1)
    assert await scene.store.hook_cursor(scene.registered.app) == newest - OVERLAP


async def test_while_github_cannot_be_asked_nothing_moves_and_one_line_says_so(
    scene: Missed,
) -> None:
    """I29"""
    scene.away = 503
    scene.queue(2)
    scene.clock.advance(600)
    begin = await scene.store.hook_cursor(scene.registered.app)
    scene.fake.inject(FaultKind.UNAVAILABLE, route="deliveries", times=None, seconds=3 * HOUR)
    with capture_logs() as logs:
        await scene.rounds(5)
    assert [line["event"] for line in logs] == ["redelivery.failed"]
    assert await scene.store.hook_cursor(scene.registered.app) == begin

    scene.clock.advance(3 * HOUR)
    scene.away = None
    await scene.rounds(1)
    assert await everything_arrived(scene)


async def test_one_that_github_will_not_repeat_does_not_stop_the_others(scene: Missed) -> None:
    scene.away = 503
    scene.queue(3)
    scene.clock.advance(60)
    scene.away = None
    scene.fake.inject(FaultKind.NOT_FOUND, route="redeliver", times=1)

    await scene.rounds(1)
    assert len(await scene.known()) == 2
    await scene.rounds(5)

    assert await everything_arrived(scene)


async def test_the_apps_last_requests_are_left_for_its_tokens(scene: Missed) -> None:
    scene.away = 503
    scene.queue()
    scene.clock.advance(600)
    key = scene.registered.key
    quota = BudgetKey(bucket=Bucket.REST, host=key.host, app=key.app)
    await scene.budget.observe(quota, remaining=400)
    scene.calls()
    await scene.redelivery.round()
    assert scene.calls() == []
