"""The same job number on two GitHub hosts is two jobs (I71)."""

from __future__ import annotations

import pytest

from paddock.domain.runners.runner import Claim
from paddock.store.database import Database
from tests.support.world import PLENTY, World

JOB = 4711


class TwoHosts:
    """On both hosts one account, one job of the same number, and a runner claimed for it."""

    def __init__(self, one: World, other: World, claims: list[Claim]) -> None:
        self.one, self.other, self.claims = one, other, claims


async def claimed(world: World, account: int, pool: int) -> Claim:
    key = await world.key(account, pool)  # type: ignore[arg-type]
    await world.report(account, key, world.facts(JOB))  # type: ignore[arg-type]
    match = await world.store.match(await world.idle_pods(pool, 1))  # type: ignore[arg-type]
    [claim] = match.claims
    return claim


@pytest.fixture
async def hosts(database: Database) -> TwoHosts:
    one, other = await World(database).begin(), World(database)
    other.clock, other.store, other.ids = one.clock, one.store, one.ids
    other.host = await other.store.ensure_host("ghe.example", api_url="https://ghe.example/api/v3")
    other.app = await other.store.ensure_app(other.host, 1, mints=PLENTY)
    pool = await one.pool()
    first = await claimed(one, await one.account(), pool)
    one.clock.advance(1000.0)
    second = await claimed(other, await other.account(), pool)
    return TwoHosts(one, other, [first, second])


async def test_the_time_to_a_jit_is_that_of_the_claims_own_job(hosts: TwoHosts) -> None:
    """I71: the median would be 510 s if each runner were joined with both jobs."""
    world = hosts.one
    world.clock.advance(20.0)
    claim = hosts.claims[1]
    await world.arm(claim.runner, claim.generation)
    latency = (await world.reading.overview()).to_jit
    assert latency is not None
    assert latency.p50 == pytest.approx(20.0)


async def test_a_jobs_story_has_only_runners_of_its_host(hosts: TwoHosts) -> None:
    """I71"""
    for host, claim in zip(("github.com", "ghe.example"), hosts.claims, strict=True):
        story = await hosts.one.reading.job(JOB, host=host)
        assert story is not None
        assert [each.runner.name for each in story.runners] == [claim.name]
