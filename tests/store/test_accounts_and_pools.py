"""Accounts, limits and pools as an operator changes them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from paddock.domain.accounts import InstallationFacts
from paddock.domain.allocation import Withheld
from paddock.domain.github.backoffs import BackOffCause, BackOffScope, BackOffSubject, BackOffTerms
from paddock.domain.ids import AccountId, PoolId
from paddock.domain.limits import UNLIMITED, Limits, Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.ports.pools import PoolRefused
from paddock.store.database import Database
from tests.support.world import World


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


def pool(name: str, *labels: str) -> PoolFacts:
    return PoolFacts(
        name=name,
        labels=labels,
        shape="gated",
        cost=Resources(),
        max_runners=None,
        spec="{}",
        spec_hash="v1",
    )


@pytest.mark.parametrize(
    "labels", [("linux",), ("linux", "x64"), ("linux", "x64", "gpu")], ids=["less", "same", "more"]
)
async def test_pools_whose_labels_contain_one_another_are_refused(
    world: World, labels: tuple[str, ...]
) -> None:
    """I10"""
    await world.store.apply_pool(pool("one", "linux", "x64"))
    with pytest.raises(PoolRefused, match="pool two and of pool one contain one another"):
        await world.store.apply_pool(pool("two", *labels))


async def test_of_two_such_pools_applied_at_once_one_is_refused(world: World) -> None:
    """I10, with neither seeing the other's row."""
    results = await asyncio.gather(
        world.store.apply_pool(pool("one", "linux")),
        world.store.apply_pool(pool("two", "linux", "x64")),
        return_exceptions=True,
    )
    assert sorted(type(result).__name__ for result in results) == ["PoolRefused", "int"]


async def test_a_pool_may_be_applied_again_with_other_labels(world: World) -> None:
    first = await world.store.apply_pool(pool("one", "linux"))
    assert await world.store.apply_pool(pool("one", "linux", "x64")) == first


INSTALLATION = InstallationFacts(
    host=1,  # type: ignore[arg-type]
    app=1,  # type: ignore[arg-type]
    id=10,
    account_id=20,
    login="acme",
    kind="organization",
    state="active",
    all_repositories=True,
)


async def test_a_renamed_account_is_the_same_account_with_its_limits(world: World) -> None:
    """I4: an account's identity is its id; its name may change."""
    facts = replace(INSTALLATION, host=world.host, app=world.app)
    account = await world.store.record_installation(facts, limits=Limits(runners=3))
    await world.store.set_account_limits(account, Limits(runners=7))

    again = await world.store.record_installation(
        replace(facts, login="acme-corp"), limits=Limits(runners=3)
    )

    assert again == account
    [row] = await world.rows("SELECT login, max_runners FROM accounts")
    assert tuple(row) == ("acme-corp", 7)


async def test_an_app_installed_anew_replaces_its_old_installation(world: World) -> None:
    facts = replace(INSTALLATION, host=world.host, app=world.app)
    await world.store.record_installation(facts)
    await world.store.record_installation(replace(facts, id=11))
    rows = await world.rows("SELECT github_id, state FROM installations ORDER BY github_id")
    assert [tuple(row) for row in rows] == [(10, "removed"), (11, "active")]


async def test_every_change_of_an_operator_is_an_event_in_his_name(world: World) -> None:
    account, pool_id = await world.account(), await world.pool()
    ana = world.store.acting_as("operator:ana")
    await ana.set_account_limits(account, Limits(runners=0))
    await ana.set_weight(account, 3)
    await ana.pause_account(account, why="incident")
    await ana.resume_account(account, why="over")
    await ana.pause_pool(pool_id, why="incident")
    await ana.resume_pool(pool_id, why="over")
    events = await world.rows("SELECT after FROM events WHERE actor = 'operator:ana' ORDER BY id")
    assert [event["after"] for event in events] == [
        "limits",
        "weight",
        "paused",
        "resumed",
        "paused",
        "resumed",
    ]


async def test_what_does_not_exist_cannot_be_changed(world: World) -> None:
    unknown = AccountId(999)
    assert not await world.store.set_account_limits(unknown, UNLIMITED)
    assert not await world.store.set_weight(unknown, 2)
    assert not await world.store.pause_account(unknown, why="test")
    assert not await world.store.resume_account(unknown, why="test")
    assert not await world.store.pause_pool(PoolId(999), why="test")


async def test_a_limit_for_a_repository_moves_its_waiting_jobs_to_its_own_scope(
    world: World,
) -> None:
    """A limit finer than the registration scope would not be exact; so the scope becomes finer."""
    account, pool_id = await world.account(), await world.pool()
    organisation = await world.key(account, pool_id)
    repository = world.repositories[account]
    pods = await world.idle_pods(pool_id, 5)
    await world.queue(account, organisation, 5)

    await world.store.set_repository_limits(repository, Limits(runners=2))
    match = await world.store.match(pods)

    assert len(match.claims) == 2
    assert {claim.repository for claim in match.claims} == {"org-1/repo"}
    assert organisation not in {claim.key for claim in match.claims}

    await world.store.set_repository_limits(repository, UNLIMITED)
    left = [pod for pod in pods if pod.id not in {claim.runner for claim in match.claims}]
    again = await world.store.match(left)
    assert {claim.repository for claim in again.claims} == {None}


async def test_a_pools_maximum_holds_back_its_keys(world: World) -> None:
    account, pool_id = await world.account(), await world.pool(max_runners=1)
    key = await world.key(account, pool_id)
    pods = await world.idle_pods(pool_id, 3)
    await world.queue(account, key, 3)
    assert len((await world.store.match(pods)).claims) == 1
    assert (await world.store.match(pods)).withheld == {key: Withheld.POOL_MAXIMUM}


async def test_what_failed_because_of_a_suspension_is_forgiven_with_its_end(world: World) -> None:
    """I17: a failure for another reason keeps its back-off."""
    here = replace(INSTALLATION, host=world.host, app=world.app)
    account = await world.store.record_installation(here)
    subject = BackOffSubject(BackOffScope.ACCOUNT, account)
    terms = BackOffTerms(
        cause=BackOffCause.MINT_FAILED, reason="not found", seconds=60, ceiling=900
    )
    query = "SELECT count(*) AS n FROM backoffs"

    await world.store.back_off(subject, terms)
    await world.store.record_installation(here)
    assert (await world.rows(query))[0]["n"] == 1
    await world.store.record_installation(replace(here, state="suspended"))
    assert (await world.rows(query))[0]["n"] == 1
    await world.store.record_installation(here)
    assert (await world.rows(query))[0]["n"] == 0
