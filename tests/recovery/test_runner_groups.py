"""The numbers of runner groups: a failure for one account is its own, and short."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from paddock.dispatch.groups import RunnerGroups
from paddock.domain.github.errors import BackOff, Failure, GitHubError, Kind
from paddock.domain.github.objects import InstallationKey, RunnerGroup, RunnerGroupId, Scope
from paddock.domain.limits import Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.ports import Topic
from tests.support.recovery import Yard


class EnoughWaits(Exception):
    pass


class Silence:
    """Wake-ups that never come."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def subscribe(self, *topics: Topic) -> Silence:
        return self

    async def wait(self, timeout: float) -> frozenset[Topic]:
        self.waits.append(timeout)
        if len(self.waits) == 2:
            raise EnoughWaits
        return frozenset()


class Groups:
    """GitHub answers 502 to the first request of all."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def list_runner_groups(self, who: InstallationKey, scope: Scope) -> list[RunnerGroup]:
        self.asked[scope.owner] += 1
        if self.asked.total() == 1:
            raise GitHubError(
                Failure(
                    kind=Kind.SERVER_ERROR,
                    backs_off=BackOff.NONE,
                    backoff_s=1,
                    ceiling_s=1,
                    retryable=True,
                    sentence="GitHub answered 502",
                )
            )
        return [
            RunnerGroup(
                host=scope.host,
                id=RunnerGroupId(7),
                name="large",
                default=False,
                visibility="all",
                allows_public_repositories=False,
            )
        ]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nothing else is asked: {name}")


async def test_an_account_whose_groups_could_not_be_read_is_read_again_soon(scene: Yard) -> None:
    """Until then its jobs for pools with a group are refused. The other account is not read again."""
    world = scene.world
    await world.account()
    await world.store.apply_pool(
        PoolFacts(
            name="grouped",
            labels=("self-hosted", "grouped"),
            shape="gated",
            cost=Resources(),
            max_runners=None,
            spec="{}",
            spec_hash="v1",
            runner_group="large",
        )
    )
    github, silence = Groups(), Silence()
    groups = RunnerGroups(store=world.store, github=github, apps=scene.apps, wakeups=silence)
    with pytest.raises(EnoughWaits):
        await groups.run()
    assert sorted(github.asked.values()) == [1, 2]
    assert silence.waits[0] < 60 < silence.waits[1]
    [row] = await world.rows("SELECT count(*) AS accounts FROM pool_groups")
    assert row["accounts"] == 2
