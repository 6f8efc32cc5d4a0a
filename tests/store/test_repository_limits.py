"""Limits of a repository are exact: they count what executes, wherever it is registered (I78)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from paddock.domain.allocation import Withheld
from paddock.domain.ids import AccountId, GitHubRunnerId, JobId, PoolId, RepositoryId
from paddock.domain.jobs.facts import Executor, JobReport, RepositoryFacts
from paddock.domain.limits import UNLIMITED, Limits, Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Claim, Runner, WaitingPod
from paddock.domain.states import JobState, RunnerState
from paddock.store import matching
from paddock.store.database import Database
from paddock.store.store import PgStore
from tests.support.runner_rows import conclude_runner
from tests.support.world import World, executor

ONE = Limits(runners=1)
_JOBS = itertools.count(5000)


class Organisation:
    """An account with two repositories, `api` and `site`, and a pool."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.account = AccountId(0)
        self.pool = PoolId(0)
        self.ids: dict[str, RepositoryId] = {}
        self.facts: dict[str, RepositoryFacts] = {}

    async def begin(self, *, limits: Limits = UNLIMITED) -> Organisation:
        world = self.world
        self.account, self.pool = await world.account(limits=limits), await world.pool()
        own = world.repository_facts[self.account]
        login = own.full_name.partition("/")[0]
        for number, name in enumerate(("api", "site")):
            self.facts[name] = RepositoryFacts(
                github_id=own.github_id * 10 + number, full_name=f"{login}/{name}"
            )
        await world.store.record_repositories(world.host, self.account, [own, *self.facts.values()])
        for name, facts in self.facts.items():
            found = await world.store.find_repository(self.account, facts.full_name)
            assert found is not None
            self.ids[name] = found[0]
        return self

    async def queue(self, name: str, count: int = 1) -> list[JobId]:
        jobs = [next(_JOBS) for _ in range(count)]
        await self.world.store.apply_jobs(
            [self._report(name, job, JobState.QUEUED) for job in jobs], why="test"
        )
        return [JobId(job) for job in jobs]

    async def executes(self, runner: Runner | Executor, name: str, job: JobId) -> None:
        by = executor(runner) if isinstance(runner, Runner) else runner
        await self.world.store.apply_jobs(
            [self._report(name, job, JobState.IN_PROGRESS, by)], why="test"
        )

    def _report(
        self, name: str, job: int, state: JobState, by: Executor | None = None
    ) -> JobReport:
        facts = self.world.facts(job, state, executor=by)
        return JobReport(
            facts=facts, account=self.account, repository=self.facts[name], served=self.pool
        )

    async def limit(self, name: str, limits: Limits = ONE) -> None:
        assert await self.world.store.set_repository_limits(self.ids[name], limits)

    async def claim(self, pods: Sequence[WaitingPod]) -> list[str | None]:
        """The repositories at which the new claims register; `None` is the organisation."""
        return [_scope(claim) for claim in (await self.world.store.match(pods)).claims]

    async def run(self, pods: Sequence[WaitingPod]) -> list[Runner]:
        """Runners that wait for jobs at GitHub."""
        running = []
        for claim in (await self.world.store.match(pods)).claims:
            armed = await self.world.arm(claim.runner, claim.generation)
            assert isinstance(armed, Runner)
            running.append(await self.world.acknowledge(armed))
        return running

    async def keys(self, name: str) -> set[tuple[bool, int]]:
        rows = await self.world.rows(
            "SELECT DISTINCT k.repository_id IS NOT NULL AS own, k.runner_group_id AS runner_group"
            "  FROM jobs j JOIN demand_keys k ON k.id = j.key_id WHERE j.repository_id = $1"
            " ORDER BY 1, 2",
            self.ids[name],
        )
        return {(row["own"], row["runner_group"]) for row in rows}


def _scope(claim: Claim) -> str | None:
    return claim.repository and claim.repository.partition("/")[2]


async def _name_a_group(world: World) -> None:
    await world.store.apply_pool(
        PoolFacts(
            name="linux",
            labels=("self-hosted", "linux"),
            shape="gated",
            cost=Resources(),
            max_runners=None,
            runner_group="builders",
            spec="{}",
            spec_hash="v2",
        )
    )


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


@pytest.fixture
async def org(world: World) -> Organisation:
    return await Organisation(world).begin()


async def test_while_a_repository_has_limits_its_siblings_register_at_repositories_too(
    org: Organisation,
) -> None:
    """I78: a sibling's runner at the organisation could take the limited repository's jobs."""
    pods = await org.world.idle_pods(org.pool, 10)
    await org.queue("api", 4)
    await org.queue("site", 4)
    await org.limit("api")
    await org.queue("site", 1)
    assert sorted(map(str, await org.claim(pods))) == ["api", *["site"] * 5]


async def test_without_limits_of_repositories_nothing_more_is_read(
    org: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(matching._SQL, "wider_use", "SELECT 1/0")
    monkeypatch.setitem(matching._SQL, "move_misplaced", "SELECT 1/0")
    pods = await org.world.idle_pods(org.pool, 3)
    await org.queue("site", 2)
    assert await org.claim(pods[:1]) == [None]
    other = await Organisation(org.world).begin()
    await other.limit("api")
    await other.queue("site")
    assert sorted(map(str, await org.claim(pods[1:]))) == ["None", "site"]


async def test_when_the_last_limit_goes_waiting_jobs_go_back_to_the_organisation(
    org: Organisation,
) -> None:
    await org.limit("api", Limits(runners=0))
    await org.limit("site", Limits(runners=0))
    await org.queue("api")
    await org.queue("site")
    await org.limit("site", UNLIMITED)
    assert await org.keys("site") == {(True, 1)}  # the other still has one
    await org.limit("api", UNLIMITED)
    assert await org.keys("api") == await org.keys("site") == {(False, 1)}


async def test_a_job_that_came_while_the_limit_was_being_set_is_moved_before_it_is_served(
    org: Organisation,
) -> None:
    """I78: its transaction read the old scope, and committed after the limit."""
    pods = await org.world.idle_pods(org.pool, 3)
    stale = await org.world.key(org.account, org.pool)
    await org.limit("api")
    await org.queue("site", 2)
    await org.world.rows("UPDATE jobs SET key_id = $1", stale)
    assert await org.claim(pods) == ["site", "site"]


async def test_runners_of_the_organisation_count_until_they_execute_another_repositorys_job(
    org: Organisation,
) -> None:
    """I78: those from before the limit can still take its jobs."""
    world = org.world
    pods = await world.idle_pods(org.pool, 9)
    sites = await org.queue("site", 2)
    first, second = await org.run(pods[:2])
    await org.limit("api")
    [mine, *_] = await org.queue("api", 2)
    assert await org.claim(pods[2:]) == ["site", "site"]

    await org.executes(first, "site", sites[0])
    assert await org.claim(pods[4:]) == []
    await org.executes(second, "api", mine)
    assert await org.claim(pods[4:]) == []
    ended = await conclude_runner(
        world.store,
        second.id,
        generation=second.generation,
        state=RunnerState.BUSY,
        ending=Ending.COMPLETED,
        why="test",
        ended_at=world.clock.now(),
    )
    assert isinstance(ended, Runner)
    assert await org.claim(pods[4:]) == ["api"]


async def test_a_runner_that_is_busy_with_a_job_that_is_not_known_counts(
    org: Organisation,
) -> None:
    """I78: the sidecar reports it as busy, and GitHub has not said which job it has."""
    world = org.world
    pods = await world.idle_pods(org.pool, 4)
    await org.queue("site")
    [runner] = await org.run(pods[:1])
    busy = await world.store.occupy_runner(
        runner.id, generation=runner.generation, job=None, why="its own word"
    )
    assert isinstance(busy, Runner)
    await org.limit("api")
    await org.queue("api")
    match = await world.store.match(pods[1:])
    assert [_scope(claim) for claim in match.claims] == ["site"]
    assert Withheld.REPOSITORY_LIMIT in match.withheld.values()


async def test_a_pool_with_a_runner_group_stays_at_the_organisation(org: Organisation) -> None:
    """The group says which repositories its runners work for: no runner leaves it for a limit."""
    world = org.world
    await _name_a_group(world)
    await world.store.set_groups(org.account, {org.pool: 7})
    await org.limit("api")
    pods = await world.idle_pods(org.pool, 3)
    await org.queue("api", 2)
    assert await org.keys("api") == {(False, 7)}
    assert await org.claim(pods) == [None, None]


async def test_jobs_that_wait_follow_their_pool_to_another_group(org: Organisation) -> None:
    world = org.world
    pods = await world.idle_pods(org.pool, 1)
    await org.queue("site")
    await _name_a_group(world)
    await world.store.set_groups(org.account, {org.pool: 7})
    [claim] = (await world.store.match(pods)).claims
    assert (claim.repository, claim.runner_group) == (None, 7)


async def test_a_limited_repository_that_is_transferred_takes_its_limit_along(
    world: World,
) -> None:
    old, new = await Organisation(world).begin(), await Organisation(world).begin()
    await old.limit("api")
    pods = await world.idle_pods(new.pool, 4)
    await new.queue("site")
    assert await new.claim(pods[:1]) == [None]
    moved = RepositoryFacts(
        github_id=old.facts["api"].github_id,
        full_name=new.facts["api"].full_name + "-moved",
    )
    await world.store.record_repositories(world.host, new.account, [*new.facts.values(), moved])
    await new.queue("site")
    await old.queue("site")
    assert sorted(map(str, await new.claim(pods[1:]))) == ["None", "site"]


async def _transfer(old: Organisation, new: Organisation) -> None:
    """The old organisation's `api` is the new one's `moved` from now on."""
    moved = RepositoryFacts(
        github_id=old.facts["api"].github_id,
        full_name=new.facts["api"].full_name + "-moved",
    )
    facts = [*new.facts.values(), moved]
    await new.world.store.record_repositories(new.world.host, new.account, facts)
    new.facts["moved"] = moved


async def _end(world: World, runner: Runner) -> None:
    ended = await conclude_runner(
        world.store,
        runner.id,
        generation=runner.generation,
        state=RunnerState.BUSY,
        ending=Ending.COMPLETED,
        why="test",
        ended_at=world.clock.now(),
    )
    assert isinstance(ended, Runner)


@pytest.mark.parametrize("limited_first", [True, False], ids=["at the repository", "organisation"])
async def test_runners_of_the_account_before_count_for_a_transferred_repository(
    world: World, *, limited_first: bool
) -> None:
    """I78: they execute its jobs, wherever they are registered."""
    old, new = await Organisation(world).begin(), await Organisation(world).begin()
    pods = await world.idle_pods(new.pool, 4)
    if limited_first:
        await old.limit("api")
    [job] = await old.queue("api")
    [runner] = await old.run(pods[:1])
    await old.executes(runner, "api", job)
    await old.limit("api")
    await _transfer(old, new)
    await new.queue("moved")
    assert await new.claim(pods[1:]) == []
    await old.queue("site")
    assert await old.claim(pods[1:]) == [None], "what the old account holds counts once"
    await _end(world, runner)
    assert await new.claim(pods[2:]) == ["api-moved"]


async def test_jobs_that_wait_follow_their_repository_to_another_account(world: World) -> None:
    old, new = await Organisation(world).begin(), await Organisation(world).begin()
    pods = await world.idle_pods(new.pool, 4)
    await old.queue("api", 2)
    await old.queue("site")
    await world.rows("UPDATE jobs SET key_id = NULL, refusal = 'test' WHERE id % 2 = 0 RETURNING 1")
    await _transfer(old, new)
    rows = await world.rows(
        "SELECT j.account_id, k.account_id AS key, r.full_name LIKE '%-moved' AS moved FROM jobs j"
        " JOIN repositories r ON r.id = j.repository_id LEFT JOIN demand_keys k ON k.id = j.key_id"
        " ORDER BY j.id"
    )
    for row in rows:
        owner = new.account if row["moved"] else old.account
        assert (row["account_id"], row["key"] or owner) == (owner, owner)
    claims = (await world.store.match(pods)).claims
    assert new.account in {claim.account for claim in claims}


async def test_jobs_that_limits_do_not_bind_are_reported(org: Organisation) -> None:
    """I78: on runners that are not paddock's, and on those of the organisation."""
    world = org.world
    pods = await world.idle_pods(org.pool, 2)
    [first, second] = await org.queue("api", 2)
    [third] = await org.queue("site")
    [runner] = await org.run(pods[:1])
    stranger = Executor(github_id=GitHubRunnerId(77), name="foreign-runner")
    await org.executes(runner, "api", first)
    await org.executes(stranger, "api", second)
    await org.executes(stranger, "site", third)
    assert (await world.reading.levels()).limit_bypasses == []
    await org.limit("api")
    found = (await world.reading.levels()).limit_bypasses
    assert [(each.repository[-3:], each.runner, each.jobs) for each in found] == [
        ("api", "foreign", 1),
        ("api", "organisation", 1),
    ]
    details = [await world.reading.job(job) for job in (first, second, third)]
    assert [each and each.beside_limits for each in details] == [
        "organisation",
        "foreign",
        None,
    ]


async def test_pools_whose_group_makes_limits_inexact_are_named(org: Organisation) -> None:
    world = org.world
    await _name_a_group(world)
    await world.store.set_groups(org.account, {org.pool: 7})
    assert await world.store.pools_beside_limits() == []
    await org.limit("api")
    assert await world.store.pools_beside_limits(org.account) == [("org-1", "linux")]
    [job] = await org.queue("api")
    details = await world.reading.job(job)
    assert details is not None
    assert details.beside_limits == "runner group"


async def _race(
    database: Database, database_url: str, org: Organisation, pods: Sequence[WaitingPod]
) -> tuple[int, int]:
    """Two replicas match while the limit is set: how many claims are at the organisation, and how many
    at the limited repository."""
    world = org.world
    other = await Database.connect(database_url)
    try:
        replicas = [
            PgStore(each, clock=world.clock, ids=world.ids, actor=f"replica-{number}")
            for number, each in enumerate((database, other))
        ]

        begun = asyncio.Event()

        async def match(replica: PgStore, own: Sequence[WaitingPod]) -> None:
            for first in range(0, len(own), 2):
                await replica.match(own[first : first + 2])
                begun.set()

        async def limit() -> None:
            await begun.wait()
            await replicas[1].set_repository_limits(org.ids["api"], ONE)

        await asyncio.gather(limit(), *(match(replicas[n], pods[n::2]) for n in range(2)))
    finally:
        await other.close()
    rows = await world.rows(
        "SELECT k.repository_id, e.id > l.id AS after_the_limit FROM runners r"
        "  JOIN demand_keys k ON k.id = r.key_id"
        "  JOIN events e ON e.runner_id = r.id AND e.after = 'claimed'"
        "  JOIN (SELECT max(id) AS id FROM events WHERE after = 'repository limits') l ON true"
        " WHERE r.state = 'claimed' ORDER BY e.id"
    )
    assert all(row["after_the_limit"] == (row["repository_id"] is not None) for row in rows)
    scopes = [row["repository_id"] for row in rows]
    return scopes.count(None), scopes.count(org.ids["api"])


async def test_two_replicas_a_hundred_pods_and_a_limit_that_is_being_set(
    database: Database, database_url: str
) -> None:
    """I78, I25: what was claimed at the organisation before counts; nothing is claimed there after."""
    org = await Organisation(await World(database).begin()).begin()
    pods = await org.world.idle_pods(org.pool, 100)
    await org.queue("api", 50)
    await org.queue("site", 50)
    at_organisation, at_repository = await _race(database, database_url, org, pods)
    assert at_repository == (0 if at_organisation else 1)


async def test_two_replicas_a_hundred_pods_and_one_place_in_the_repository(
    database: Database, database_url: str
) -> None:
    """I78, I25"""
    org = await Organisation(await World(database).begin()).begin()
    pods = await org.world.idle_pods(org.pool, 100)
    await org.limit("api")
    await org.queue("api", 50)
    await org.queue("site", 50)
    other = await Database.connect(database_url)
    try:
        replicas = [
            PgStore(each, clock=org.world.clock, ids=org.world.ids, actor=f"replica-{number}")
            for number, each in enumerate((database, other))
        ]
        matches = await asyncio.gather(
            *(replicas[n % 2].match(pods[n * 2 : n * 2 + 2]) for n in range(50))
        )
    finally:
        await other.close()
    scopes = [_scope(claim) for match in matches for claim in match.claims]
    assert sorted(map(str, scopes)) == ["api", *["site"] * 50]
