"""Refused jobs are judged again when pools change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from paddock.dispatch.refusals import RefusalReview
from paddock.ports import Topic
from tests.support.recovery import Yard


class EnoughWaits(Exception):
    pass


class Woken:
    """Woken once; then `after` happens, and no further wake-up comes."""

    def __init__(self, after: Callable[[], Awaitable[object]]) -> None:
        self.waits: list[float] = []
        self._after = after

    def subscribe(self, *topics: Topic) -> Woken:
        return self

    async def wait(self, timeout: float) -> frozenset[Topic]:
        self.waits.append(timeout)
        match len(self.waits):
            case 1:
                return frozenset({Topic.POOLS})
            case 2:
                await self._after()
                return frozenset()
            case _:
                raise EnoughWaits


async def test_a_job_refused_by_the_pools_of_a_moment_ago_is_judged_within_seconds(
    scene: Yard,
) -> None:
    """Its transaction began before the pool was described, and ended after the wake-up's look."""
    world = scene.world
    [job] = await world.queue(scene.account, scene.key, 1)

    async def written_late() -> None:
        await world.rows(
            "UPDATE jobs SET key_id = NULL, refusal = 'no pool', refusal_detail = 'test'"
        )

    wakeups = Woken(written_late)
    with pytest.raises(EnoughWaits):
        await RefusalReview(store=world.store, wakeups=wakeups).run()
    [row] = await world.rows("SELECT key_id, refusal FROM jobs WHERE id = $1", job)
    assert tuple(row) == (scene.key, None)
    assert wakeups.waits[1] <= 10 < wakeups.waits[2]
