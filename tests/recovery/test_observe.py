"""What the fleet shows, and what that does not prove."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import PodOrder
from paddock.recovery.observe import EMPTY_READS, EVERY, RESTING
from tests.support.recovery import Yard


async def absences(scene: Yard) -> list[int]:
    rows = await scene.world.rows("SELECT absent_reads FROM runners ORDER BY created_at, id")
    return [row["absent_reads"] for row in rows]


async def test_absence_is_counted_over_complete_reads_and_forgotten_when_seen(scene: Yard) -> None:
    """I29"""
    runner, view = await scene.idle(), scene.view()
    await scene.idle()
    pod = scene.fleet.pods.pop(runner.pod_name)
    for _ in range(2):
        scene.world.clock.advance(10)
        assert await view.refresh()
    assert await absences(scene) == [2, 0]

    scene.fleet.pods[runner.pod_name] = pod
    await view.refresh()
    assert await absences(scene) == [0, 0]


@pytest.mark.parametrize("fault", ["partial", "failed"])
async def test_a_read_that_is_not_whole_proves_no_absence(scene: Yard, fault: str) -> None:
    """I29"""
    view = scene.view()
    for _ in range(3):
        await scene.idle()
    await view.refresh()
    if fault == "partial":
        scene.fleet.view = "partial"
    else:
        scene.fleet.fail("list")
    scene.world.clock.advance(10)

    assert not await view.refresh()
    assert await absences(scene) == [0, 0, 0]
    assert len(view.snapshot().pods) == 3
    assert not view.snapshot().complete


async def test_a_fleet_that_suddenly_shows_nothing_has_to_repeat_it(scene: Yard) -> None:
    """I29: an empty list is what a lost index looks like."""
    await scene.idle()
    view = scene.view()
    await view.refresh()
    scene.fleet.view = "empty"
    for _ in range(EMPTY_READS - 1):
        scene.world.clock.advance(10)
        assert not await view.refresh()
    assert await absences(scene) == [0]
    assert len(view.snapshot().pods) == 1

    scene.world.clock.advance(10)
    assert await view.refresh()
    assert await absences(scene) == [1]


async def test_an_empty_fleet_in_which_nothing_is_expected_is_just_empty(scene: Yard) -> None:
    assert await scene.view().refresh()


async def test_a_row_younger_than_the_read_is_not_missing(scene: Yard) -> None:
    runner = await scene.idle()
    del scene.fleet.pods[runner.pod_name]
    await scene.world.store.note_pods([], read_at=scene.world.clock.now())
    assert await absences(scene) == [0]


async def test_a_pod_of_another_uid_is_not_the_runners_own(scene: Yard) -> None:
    """I36"""
    runner = await scene.idle()
    old = scene.fleet.pods.pop(runner.pod_name)
    await scene.fleet.create(_order(runner.pod_name))
    assert scene.fleet.pods[runner.pod_name].uid != old.uid
    scene.world.clock.advance(10)
    await scene.view().refresh()
    assert await absences(scene) == [1]


async def test_what_the_watch_told_since_a_read_began_is_newer(
    scene: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, view = await scene.idle(), scene.view()
    await view.refresh()
    listed = await scene.fleet.list()

    async def slow_list() -> object:
        view._put(scene.fleet.end_poller(runner.pod_name))
        return listed

    monkeypatch.setattr(scene.fleet, "list", slow_list)
    await view.refresh()
    [pod] = view.snapshot().pods
    assert pod.containers[0].started


def _order(name: PodName) -> PodOrder:
    return PodOrder(runner=RunnerId(UUID(int=1)), name=name, pool="linux", spec="{}")


async def test_a_pod_that_is_heard_is_not_absent(scene: Yard) -> None:
    """I29: absences from before it was created count for nothing once its poller asks."""
    runner, view = await scene.idle(), scene.view()
    await scene.idle()
    pod = scene.fleet.pods.pop(runner.pod_name)
    scene.world.clock.advance(10)
    await view.refresh()
    assert (await scene.row(runner)).absent_reads == 1
    await scene.world.store.hear_pod(runner.pod_name, pod_uid=pod.uid)
    assert (await scene.row(runner)).absent_reads == 0


async def test_a_pod_that_no_host_takes_looks_the_same_with_any_scheduler(
    scene: Yard,
) -> None:
    """I50: the scheduler's message names other hosts each time; the wait is one wait."""
    runner, view = await scene.idle(), scene.view()
    for words in ("0/3 nodes are available", "0/4 nodes are available"):
        pod = replace(scene.fleet.pods[runner.pod_name], unschedulable=words)
        scene.fleet.pods[runner.pod_name] = pod
        await view.refresh()
        scene.world.clock.advance(60)
    assert view.unchanged(pod) == pytest.approx(120)
    scene.fleet.pods[runner.pod_name] = pod = replace(pod, unschedulable=None)
    await view.refresh()
    assert view.unchanged(pod) == 0


async def test_complete_reads_are_rare_while_nothing_is_expected_of_the_fleet(scene: Yard) -> None:
    view = scene.view()
    await scene.idle()
    reading = asyncio.create_task(view._read_for_ever())

    async def reads_within(seconds: float) -> int:
        began, before = scene.world.clock.monotonic(), scene.fleet.calls["list"]
        while scene.world.clock.monotonic() - began < seconds:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return scene.fleet.calls["list"] - before

    assert await reads_within(10 * EVERY) >= 9
    view.rest(True)
    assert await reads_within(2 * RESTING * EVERY) <= 3
    view.rest(False)
    assert await reads_within(10 * EVERY) >= 9
    reading.cancel()
