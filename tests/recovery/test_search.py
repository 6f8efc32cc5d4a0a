"""The search for Pods whose names are in no row: one list per scope covers all of them (I81)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from paddock.domain.github.objects import Absent, InstallationKey, RunnerPage, RunnerRecord, Scope
from paddock.domain.ids import GitHubRunnerId, RunnerId
from paddock.domain.names import PodName, runner_name
from paddock.domain.pods.pod import Pod, PodOrder
from paddock.recovery.search import RunnerSearch
from paddock.store.database import Database
from tests.recovery.test_without_rows import STARTED, stranger
from tests.support.fleet import MemoryFleet
from tests.support.recovery import HOST, ScriptedGitHub, Yard
from tests.support.world import World

PER_PAGE = 100


@dataclass
class ScopedGitHub(ScriptedGitHub):
    """Each scope has its own runners, a hundred to a page."""

    scopes: dict[str, list[RunnerRecord]] = field(default_factory=dict)
    #: Scopes of which only the first page can be read.
    torn: set[str] = field(default_factory=set)
    #: Scopes that GitHub does not know, while their installation can be read.
    deleted: set[str] = field(default_factory=set)
    slow: asyncio.Event | None = None

    def add(self, scope: str, pod: str, *, busy: bool, generation: int = 1) -> RunnerRecord:
        number = GitHubRunnerId(sum(map(len, self.scopes.values())) + 1)
        record = RunnerRecord(
            host=HOST,
            id=number,
            name=runner_name(PodName(pod), generation),
            status="online",
            busy=busy,
            labels=(),
        )
        self.scopes.setdefault(scope, []).append(record)
        return record

    async def list_runners(
        self, who: InstallationKey, scope: Scope, *, page: str | None = None
    ) -> RunnerPage | Absent:
        if self.slow is not None:
            await self.slow.wait()
        self._called("list_runners")
        if str(scope) in self.deleted:
            return Absent(proof="the installation was read")
        first = int(page or 0)
        if first and str(scope) in self.torn:
            self.down, down = True, self.down
            try:
                self._called("list_runners")
            finally:
                self.down = down
        runners = self.scopes.get(str(scope), [])
        more = first + PER_PAGE < len(runners)
        return RunnerPage(
            runners=tuple(runners[first : first + PER_PAGE]),
            next=str(first + PER_PAGE) if more else None,
        )


@pytest.fixture
async def yard(database: Database) -> Yard:
    world = await World(database).begin()
    account, pool = await world.account(), await world.pool()
    return Yard(
        world=world,
        fleet=MemoryFleet(world.clock),
        github=ScopedGitHub(),
        account=account,
        pool=pool,
        key=await world.key(account, pool),
    )


def github(yard: Yard) -> ScopedGitHub:
    assert isinstance(yard.github, ScopedGitHub)
    return yard.github


def search(yard: Yard) -> RunnerSearch:
    world = yard.world
    return RunnerSearch(store=world.store, github=yard.github, clock=world.clock, apps=yard.apps)


async def a_pod(yard: Yard, name: str = "linux-stranger1") -> Pod:
    return await stranger(yard, STARTED, name=name, log="Listening for Jobs\n")


async def lists(yard: Yard, searching: RunnerSearch, times: int = 2) -> None:
    for _ in range(times):
        await searching.round()
        yard.world.clock.advance(60)


async def test_absence_is_believed_after_two_lists_of_every_scope(yard: Yard) -> None:
    """I81"""
    pod, searching, since = await a_pod(yard), search(yard), yard.world.clock.now()
    assert searching.registrations(pod, since=since) is None
    await lists(yard, searching, 1)
    assert searching.registrations(pod, since=since) is None
    await lists(yard, searching, 1)
    assert searching.registrations(pod, since=since) == []


async def test_lists_from_before_the_question_do_not_count(yard: Yard) -> None:
    pod, searching, since = await a_pod(yard), search(yard), yard.world.clock.now()
    searching.registrations(pod, since=since)
    await lists(yard, searching)
    later = yard.world.clock.now()
    assert searching.registrations(pod, since=later) is None
    await lists(yard, searching)
    assert searching.registrations(pod, since=later) == []


async def test_a_record_that_slipped_from_one_list_is_not_absent(yard: Yard) -> None:
    """I81: a list is not a snapshot."""
    pod, searching, since = await a_pod(yard), search(yard), yard.world.clock.now()
    github(yard).add("org-1", pod.name, busy=False)
    searching.registrations(pod, since=since)
    await lists(yard, searching, 1)
    slipped = github(yard).scopes.pop("org-1")
    await lists(yard, searching, 1)
    assert searching.registrations(pod, since=since) is None
    github(yard).scopes["org-1"] = slipped
    await lists(yard, searching, 1)
    [found] = searching.registrations(pod, since=since) or []
    assert (found.record.id, found.key, found.generation) == (1, yard.key, 1)


async def test_a_busy_record_is_believed_before_all_scopes_have_answered(yard: Yard) -> None:
    pod, searching, since = await a_pod(yard), search(yard), yard.world.clock.now()
    github(yard).add("org-1", pod.name, busy=True)
    searching.registrations(pod, since=since)
    await lists(yard, searching, 1)
    [found] = searching.registrations(pod, since=since) or []
    assert found.record.busy
    asked = github(yard).calls["list_runners"]
    await lists(yard, searching, 5)
    assert github(yard).calls["list_runners"] == asked, "an answer is good for ten minutes"


async def test_a_partial_list_is_no_answer_for_its_scope_and_is_asked_again(yard: Yard) -> None:
    """I29"""
    other = await yard.world.account()
    assert other is not None
    for number in range(PER_PAGE):
        github(yard).add("org-2", f"linux-other{number}", busy=True)
    pod, searching, since = await a_pod(yard), search(yard), yard.world.clock.now()
    github(yard).add("org-2", pod.name, busy=False)
    github(yard).torn.add("org-2")
    searching.registrations(pod, since=since)
    await lists(yard, searching, 3)
    assert searching.registrations(pod, since=since) is None
    github(yard).torn.clear()
    await lists(yard, searching, 2)
    found = searching.registrations(pod, since=since)
    assert found is not None
    assert [each.record.name for each in found] == [f"{pod.name}-1"]


async def test_a_removed_installation_is_an_answer(yard: Yard) -> None:
    """I81"""
    await yard.world.account()
    await yard.world.store.remove_installation(yard.world.host, 1002)
    pod, searching, since = await a_pod(yard), search(yard), yard.world.clock.now()
    searching.registrations(pod, since=since)
    await lists(yard, searching)
    assert searching.registrations(pod, since=since) == []
    assert github(yard).calls["list_runners"] == 2


async def test_an_app_that_is_no_longer_configured_is_not_waited_for(yard: Yard) -> None:
    """I81: its installation is active, and the account is served through another App."""
    world = yard.world
    await world.rows(
        "INSERT INTO apps (id, host_id, github_id) OVERRIDING SYSTEM VALUE VALUES (0, $1, 999)"
        " RETURNING 1",
        world.host,
    )
    await world.rows(
        "INSERT INTO installations (host_id, github_id, app_id, account_id, state,"
        " all_repositories, read_at) VALUES ($1, 4711, 0, $2, 'active', true, $3) RETURNING 1",
        world.host,
        yard.account,
        world.clock.now(),
    )
    await world.store.serve_through([world.app])
    pod, searching, since = await a_pod(yard), search(yard), world.clock.now()
    searching.registrations(pod, since=since)
    await lists(yard, searching)
    assert searching.registrations(pod, since=since) == []


async def test_a_suspended_installation_is_no_answer(yard: Yard) -> None:
    """I66"""
    await yard.world.account()
    await yard.world.rows(
        "UPDATE installations SET state = 'suspended' WHERE github_id = 1002 RETURNING 1"
    )
    pod, searching, since = await a_pod(yard), search(yard), yard.world.clock.now()
    searching.registrations(pod, since=since)
    await lists(yard, searching, 5)
    assert searching.registrations(pod, since=since) is None


async def test_a_deleted_repository_is_an_answer(yard: Yard) -> None:
    """I81"""
    await yard.world.rows(
        "INSERT INTO demand_keys (account_id, repository_id, runner_group_id, pool_id)"
        " VALUES ($1, $2, 1, $3) RETURNING 1",
        yard.account,
        yard.world.repositories[yard.account],
        yard.pool,
    )
    github(yard).deleted.add("org-1/repo")
    pod, searching, since = await a_pod(yard), search(yard), yard.world.clock.now()
    searching.registrations(pod, since=since)
    await lists(yard, searching)
    assert searching.registrations(pod, since=since) == []
    assert github(yard).calls["list_runners"] == 4


async def test_an_installation_that_the_store_does_not_know_yet_is_waited_for(yard: Yard) -> None:
    """I70: a restored backup may be older than an account."""
    github(yard).installations = [1001, 1002]
    pod, searching, since = await a_pod(yard), search(yard), yard.world.clock.now()
    searching.registrations(pod, since=since)
    await lists(yard, searching, 3)
    assert searching.registrations(pod, since=since) is None
    await yard.world.account()
    await lists(yard, searching, 3)
    assert searching.registrations(pod, since=since) == []


async def test_a_long_list_goes_on_where_its_budget_ended(yard: Yard) -> None:
    """I81: an installation's requests are limited, so that mints have their share."""
    pod, searching, since = await a_pod(yard), search(yard), yard.world.clock.now()
    for number in range(120 * PER_PAGE):
        github(yard).add("org-1", f"linux-other{number}", busy=True)
    searching.registrations(pod, since=since)
    await searching.round()
    assert github(yard).calls["list_runners"] == 100
    yard.world.clock.advance(60)
    await searching.round()
    assert github(yard).calls["list_runners"] == 120
    assert github(yard).calls["list_installations"] == 2


async def test_nothing_is_asked_while_no_pod_is_unknown(yard: Yard) -> None:
    await yard.rounds(yard.recovery(), 120)
    assert not yard.github.calls


# At the size of a fleet.

ACCOUNTS = 1_000
PODS = 5_000


async def _accounts(yard: Yard) -> None:
    """As many as there are in all; made by one statement."""
    await yard.world.rows(
        """
        WITH made AS (
            INSERT INTO accounts (host_id, github_id, login, kind, created_at)
            SELECT $1, 20000 + n, 'many-' || n, 'organization', $4 FROM generate_series(2, $3::int) n
            RETURNING id, github_id
        )
        INSERT INTO installations
               (host_id, github_id, app_id, account_id, state, all_repositories, read_at)
        SELECT $1, 10000 + github_id, $2, id, 'active', true, $4 FROM made RETURNING 1
        """,
        yard.world.host,
        yard.world.app,
        ACCOUNTS,
        yard.world.clock.now(),
    )


async def _strangers(yard: Yard) -> None:
    created = yard.world.clock.now() - timedelta(minutes=10)
    template = await stranger(yard, STARTED, name="linux-template")
    del yard.fleet.pods["linux-template"]
    for number in range(PODS):
        name = PodName(f"linux-many{number}")
        await yard.fleet.create(
            PodOrder(runner=RunnerId(yard.world.ids.uuid()), name=name, pool="linux", spec="{}")
        )
        yard.fleet.pods[name] = replace(
            template, name=name, uid=yard.fleet.pods[name].uid, created_at=created
        )
        yard.fleet.logs[name] = "Running job: build\n"
        github(yard).add(f"many-{2 + number % (ACCOUNTS - 1)}", name, busy=True)


async def _protected(yard: Yard) -> int:
    [row] = await yard.world.rows(
        "SELECT count(*) FROM actions WHERE rule = 'executing-without-row'"
    )
    count: int = row["count"]
    return count


@pytest.mark.slow
async def test_five_thousand_busy_pods_in_a_thousand_accounts_are_answered_in_minutes(
    yard: Yard,
) -> None:
    """I81: 1,000 lists answer for all of them. One account is uninstalled, and one Pod beside them was
    never given a job: it is adopted."""
    recovery = yard.recovery()
    await _accounts(yard)
    await _strangers(yard)
    idle = await a_pod(yard, "linux-idle")
    await yard.world.account()
    await yard.world.store.remove_installation(yard.world.host, 1002)

    await yard.viewed.refresh()
    began = yard.world.clock.now()
    # A Pod that a busy machine let fail in one look is answered in the next.
    while not await yard.world.store.runners_of_pods([idle.name]) or await _protected(yard) < PODS:
        await recovery.round()
        await recovery.adopt()
        await recovery.search()
        yard.world.clock.advance(20)
        assert yard.world.clock.now() - began < timedelta(minutes=25)

    assert await _protected(yard) == PODS
    assert yard.deleted == []
    assert yard.github.calls["list_runners"] <= 3 * ACCOUNTS
    assert yard.github.calls["find_runner"] == 0


async def test_a_round_does_not_wait_for_a_search_that_hangs(yard: Yard) -> None:
    """I81"""
    github(yard).slow = slow = asyncio.Event()
    recovery = yard.recovery()
    await a_pod(yard)
    await yard.viewed.refresh()
    await recovery.adopt()
    hanging = asyncio.create_task(recovery.search())
    async with asyncio.timeout(5):
        await recovery.round()
        await recovery.adopt()
    assert not hanging.done()
    slow.set()
    await hanging
