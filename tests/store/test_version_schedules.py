"""GitHub is asked until when it accepts a runner version: what each answer does to what is known."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from paddock.dispatch.versions import VersionSchedules
from paddock.domain.github.objects import Absent
from paddock.domain.pods.pod import Phase, Pod
from paddock.domain.runners.versions import RunnerVersion, VersionSchedule
from paddock.ports import GitHub
from paddock.store.database import Database
from tests.support.world import World

OLD = RunnerVersion("2.330.0")


class Answers:
    """GitHub, for this one question."""

    def __init__(self, answer: VersionSchedule | Absent) -> None:
        self.answer = answer

    async def get_version_schedule(self, *_: Any) -> VersionSchedule | Absent:
        return self.answer


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


def ends(at: datetime | None) -> VersionSchedule:
    return VersionSchedule(version=OLD, registration_ends_at=None, runtime_ends_at=at)


async def test_a_version_that_github_no_longer_knows_keeps_its_date(world: World) -> None:
    """I29: a 404 is no evidence, neither for the version nor against it."""
    pool = await world.pool()
    await world.key(await world.account(), pool)
    [pod] = await world.idle_pods(pool, 1)
    now = world.clock.now()
    seen = Pod(
        name=pod.pod_name,
        uid=f"uid-{pod.pod_name}",
        pool="linux",
        phase=Phase.PENDING,
        created_at=now,
        runner_version=OLD,
    )
    await world.store.note_versions([seen])
    answers = Answers(ends(now))
    asking = VersionSchedules(store=world.store, github=cast("GitHub", answers), clock=world.clock)

    assert await asking.round() == 1
    for answer, kept in (
        (Absent(proof="404"), now),
        (ends(now + timedelta(days=30)), now + timedelta(days=30)),
        (ends(None), None),
    ):
        world.clock.advance(86_400.0)
        answers.answer = answer
        assert await asking.round() == 1
        [row] = await world.rows("SELECT runtime_ends_at FROM version_schedules")
        assert row["runtime_ends_at"] == kept
    assert await asking.round() == 0
