"""Recovery's loops rest while nothing can have happened, and only then (docs/decisions/0015).

Their wake-ups tell of changed rows and changed Pods. What no wake-up tells, a loop must find by itself,
so it must not rest: after a look that failed, while something is left for the next round, and while a
runner that ended counts as supply.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest

from paddock.domain.runners.runner import Runner
from paddock.domain.states import JobState
from paddock.ports import Topic
from paddock.ports.errors import DatabaseUnavailable
from paddock.recovery.loop import Recovery
from tests.support.recovery import Yard, waiting
from tests.support.time import ManualClock

#: Longer than a loop that does not rest waits between two looks, and shorter than a rest.
SOON = 10.0


class EnoughLooks(Exception):
    pass


@dataclass
class Silence:
    """Wake-ups that never come: a wait takes its whole time."""

    clock: ManualClock

    async def wait(self, timeout: float) -> frozenset[Topic]:
        self.clock.advance(timeout)
        return frozenset()


async def looks(
    scene: Yard,
    recovery: Recovery,
    monkeypatch: pytest.MonkeyPatch,
    during: Sequence[Callable[[], Awaitable[None]] | Exception | None],
) -> list[float]:
    """The seconds between the looks at rows that the rounds make; `during` is done in each of them."""
    clock, read = scene.world.clock, scene.world.store.live_runners
    times: list[float] = []
    acts = iter(during)

    async def scripted() -> list[Runner]:
        times.append(clock.monotonic())
        try:
            act = next(acts)
        except StopIteration:
            raise EnoughLooks from None
        if isinstance(act, Exception):
            raise act
        if act is not None:
            await act()
        return await read()

    monkeypatch.setattr(scene.world.store, "live_runners", scripted)
    monkeypatch.setattr(recovery, "_woken", Silence(clock))
    with pytest.raises(EnoughLooks):
        await recovery._examine_for_ever()
    return [later - earlier for earlier, later in itertools.pairwise(times)]


async def test_rounds_rest_while_all_runners_wait(
    scene: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.idle()
    recovery = scene.recovery()
    await scene.viewed.refresh()
    assert min(await looks(scene, recovery, monkeypatch, [None, None])) >= 3 * SOON


async def test_rounds_do_not_rest_after_a_look_that_failed(
    scene: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wake-up that it followed is used up."""
    await scene.idle()
    recovery = scene.recovery()
    await scene.viewed.refresh()
    away = DatabaseUnavailable("The test's database is away.")
    _, after_the_failure, _ = await looks(scene, recovery, monkeypatch, [None, away, None])
    assert after_the_failure < SOON


async def test_rounds_do_not_rest_while_jobs_are_left_for_the_next_one(scene: Yard) -> None:
    """A round that is woken again within five seconds does not look at jobs."""
    await scene.idle()
    recovery = scene.recovery()
    await scene.viewed.refresh()
    assert await recovery.round()
    assert not await recovery.round()
    scene.world.clock.advance(5)
    assert await recovery.round()


async def test_rounds_do_not_rest_while_a_runner_that_ended_counts_as_supply(scene: Yard) -> None:
    """A job that comes meanwhile waits for GitHub's answer about it, beside a warm Pod."""
    spare, ended = await scene.idle(), await scene.running()
    assert ended.hint is not None
    recovery = scene.recovery()
    await scene.rounds(recovery)
    cancelled = scene.world.facts(ended.hint, JobState.COMPLETED, conclusion="cancelled")
    await scene.world.report(scene.account, scene.key, cancelled)
    scene.fleet.end_runner(ended.pod_name, exit_code=1)
    await scene.rounds(recovery, 5, every=5)

    assert (await recovery._gatherer.glance()).quiet, "all runners that are left wait"
    scene.world.clock.advance(5)
    assert not await recovery.round()

    [job] = await scene.world.queue(scene.account, scene.key, 1)
    scene.github.job(job, "queued", scene.world.clock.now())
    scene.world.clock.advance(5)
    await recovery.round()
    assert len((await scene.world.store.match([waiting(spare)])).claims) == 1


async def test_a_changed_row_ends_the_rest_of_the_loop_that_stamps(scene: Yard) -> None:
    """Where one container polls and runs, only the row tells that a Pod may be stamped."""
    runner = await scene.idle()
    recovery = scene.recovery()
    await scene.viewed.refresh()
    recovery._changed.clear()
    recovery._ends_rest = True
    await recovery.round()
    assert not recovery._changed.is_set()
    await scene.world.queue(scene.account, scene.key, 1)
    assert (await scene.world.store.match([waiting(runner)])).claims
    await recovery.round()
    assert recovery._changed.is_set()


async def test_a_slow_look_for_ends_does_not_delay_the_next_one(
    scene: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a look takes long because it waits, and Pods go on ending."""
    clock, recovery = scene.world.clock, scene.recovery()
    begun: list[float] = []

    async def slow_look(_group: object, *, whole: bool) -> bool:
        begun.append(clock.monotonic())
        if len(begun) == 3:
            raise EnoughLooks
        clock.advance(2)
        recovery._changed.set()
        return False

    monkeypatch.setattr(recovery, "_begin_ends", slow_look)
    with pytest.raises(ExceptionGroup):
        await recovery._conclude_for_ever()
    gaps = [later - earlier - 2 for earlier, later in itertools.pairwise(begun)]
    assert max(gaps) < 0.2
