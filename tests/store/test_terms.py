"""The terms of a key are cached between matches: any change to them must apply to the very next
match."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from paddock.domain.accounts import InstallationFacts
from paddock.domain.allocation import Withheld
from paddock.domain.ids import AccountId, KeyId, PoolId
from paddock.domain.limits import Limits, Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.runners.runner import Claim
from paddock.store.database import Database
from tests.support.world import World


class Scene:
    """One account whose first job was matched a moment ago, so that its terms are known."""

    def __init__(self, world: World, account: AccountId, pool: PoolId, key: KeyId) -> None:
        self.world, self.store = world, world.store
        self.account, self.pool, self.key = account, pool, key

    async def match(self) -> Claim | Withheld:
        await self.world.queue(self.account, self.key, 1)
        match = await self.store.match(await self.world.idle_pods(self.pool, 1))
        return match.claims[0] if match.claims else match.withheld[self.key]

    async def install(self, **changed: object) -> None:
        facts: dict[str, object] = {
            "host": self.world.host,
            "app": self.world.app,
            "id": 1001,
            "account_id": 2001,
            "login": "org-1",
            "kind": "organization",
            "state": "active",
            "all_repositories": True,
        }
        await self.store.record_installation(InstallationFacts(**{**facts, **changed}))  # type: ignore[arg-type]

    async def describe(self, **changed: object) -> None:
        facts: dict[str, object] = {
            "name": "linux",
            "labels": ("self-hosted", "linux"),
            "shape": "gated",
            "cost": Resources(),
            "max_runners": None,
            "spec": "{}",
            "spec_hash": "v1",
        }
        await self.store.apply_pool(PoolFacts(**{**facts, **changed}))  # type: ignore[arg-type]


@pytest.fixture
async def scene(database: Database) -> Scene:
    world = await World(database).begin()
    account, pool = await world.account(), await world.pool()
    scene = Scene(world, account, pool, await world.key(account, pool))
    assert isinstance(await scene.match(), Claim)
    return scene


Change = Callable[[Scene], Awaitable[object]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda scene: scene.store.set_account_limits(scene.account, Limits(runners=1)),
            Withheld.ACCOUNT_LIMIT,
        ),
        (lambda scene: scene.store.pause_account(scene.account, why="test"), Withheld.PAUSED),
        (lambda scene: scene.store.pause_pool(scene.pool, why="test"), Withheld.PAUSED),
        (lambda scene: scene.describe(max_runners=1), Withheld.POOL_MAXIMUM),
        (lambda scene: scene.install(state="suspended"), Withheld.INSTALLATION),
        (lambda scene: scene.store.pause_dispatch(why="test"), Withheld.PAUSED),
        (
            lambda scene: scene.store.remove_installation(scene.world.host, 1001),
            Withheld.INSTALLATION,
        ),
    ],
    ids=["limit", "account paused", "pool paused", "maximum", "suspended", "all paused", "removed"],
)
async def test_what_forbids_a_claim_binds_the_next_match(
    scene: Scene, change: Change, reason: Withheld
) -> None:
    """I25"""
    await change(scene)
    assert await scene.match() == reason


async def test_an_account_that_was_renamed_is_minted_for_by_its_new_name(scene: Scene) -> None:
    await scene.install(login="org-renamed")
    claim = await scene.match()
    assert isinstance(claim, Claim)
    assert claim.login == "org-renamed"


async def test_the_labels_of_a_pool_are_those_it_has_now(scene: Scene) -> None:
    await scene.describe(labels=("self-hosted", "linux", "x64"))
    claim = await scene.match()
    assert isinstance(claim, Claim)
    assert set(claim.labels) == {"self-hosted", "linux", "x64"}


async def test_another_replicas_change_is_seen(scene: Scene, database: Database) -> None:
    other = World(database)
    await other.store.set_account_limits(scene.account, Limits(runners=1))
    assert await scene.match() == Withheld.ACCOUNT_LIMIT


async def test_names_that_are_read_again_and_are_the_same_change_nothing(scene: Scene) -> None:
    facts = [scene.world.repository_facts[scene.account]]
    before = await scene.world.rows("SELECT version FROM terms")
    await scene.store.record_repositories(scene.world.host, scene.account, facts)
    assert await scene.world.rows("SELECT version FROM terms") == before


async def test_a_runner_cannot_be_charged_to_an_account_its_key_is_not_of(scene: Scene) -> None:
    other = await scene.world.account()
    with pytest.raises(asyncpg.ForeignKeyViolationError, match="may not be charged to account"):
        await scene.world.rows("UPDATE runners SET account_id = $1 WHERE key_id IS NOT NULL", other)


@pytest.mark.parametrize(
    "statement", ["DELETE FROM demand_keys", "UPDATE demand_keys SET runner_group_id = 7"]
)
async def test_a_key_is_what_it_is_for_ever(scene: Scene, statement: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="may not be changed or deleted"):
        await scene.world.rows(statement)
