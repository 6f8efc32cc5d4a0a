"""A small world of accounts, pools, jobs and Pods in a real store."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from paddock.domain.accounts import InstallationFacts, MintBudget
from paddock.domain.ids import (
    AccountId,
    AppId,
    GitHubRunnerId,
    HostId,
    JobId,
    KeyId,
    PoolId,
    RepositoryId,
    RunnerId,
)
from paddock.domain.jobs.facts import Executor, JobFacts, JobReport, RepositoryFacts
from paddock.domain.limits import UNLIMITED, Limits, Resources
from paddock.domain.names import PoolName, pod_name
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.runners.runner import Conflict, Runner, WaitingPod
from paddock.domain.states import JobState
from paddock.store.database import Database
from paddock.store.reading import PgReading
from paddock.store.store import PgStore
from tests.support.time import ManualClock, SeededIds

PLENTY = MintBudget(per_minute=None, per_hour=None)


class World:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = ManualClock()
        self.ids = SeededIds()
        self.store = PgStore(database, clock=self.clock, ids=self.ids, actor="test")
        self.reading = PgReading(database, self.clock)
        self.host = HostId(0)
        self.app = AppId(0)
        self.repositories: dict[AccountId, RepositoryId] = {}
        self.repository_facts: dict[AccountId, RepositoryFacts] = {}
        self._pool_of: dict[KeyId, PoolId] = {}
        self._numbers = itertools.count(1)

    async def begin(self, *, mints: MintBudget = PLENTY) -> World:
        self.host = await self.store.ensure_host("github.com", api_url="https://api.github.com")
        self.app = await self.store.ensure_app(self.host, 1, mints=mints)
        return self

    async def account(self, *, limits: Limits = UNLIMITED, weight: int = 1) -> AccountId:
        number = next(self._numbers)
        account = await self.store.record_installation(
            InstallationFacts(
                host=self.host,
                app=self.app,
                id=1000 + number,
                account_id=2000 + number,
                login=f"org-{number}",
                kind="organization",
                state="active",
                all_repositories=True,
            ),
            limits=limits,
            weight=weight,
        )
        facts = RepositoryFacts(github_id=3000 + number, full_name=f"org-{number}/repo")
        self.repository_facts[account] = facts
        await self.store.record_repositories(self.host, account, [facts])
        found = await self.store.find_repository(account, facts.full_name)
        assert found is not None
        self.repositories[account] = found[0]
        return account

    async def pool(
        self, name: str = "linux", *, max_runners: int | None = None, cost: Resources = Resources()
    ) -> PoolId:
        return await self.store.apply_pool(
            PoolFacts(
                name=name,
                labels=("self-hosted", name),
                shape="gated",
                cost=cost,
                max_runners=max_runners,
                spec="{}",
                spec_hash="v1",
            )
        )

    async def key(self, account: AccountId, pool: PoolId) -> KeyId:
        """The organisation's key, as the account's first job for the pool would make it."""
        [row] = await self.rows(
            "INSERT INTO demand_keys (account_id, runner_group_id, pool_id) VALUES ($1, 1, $2)"
            " ON CONFLICT (account_id, repository_id, runner_group_id, pool_id)"
            " DO UPDATE SET pool_id = excluded.pool_id RETURNING id",
            account,
            pool,
        )
        self._pool_of[row["id"]] = pool
        return KeyId(row["id"])

    async def idle_pods(self, pool: PoolId, count: int, *, name: str = "linux") -> list[WaitingPod]:
        pods = [
            (RunnerId(self.ids.uuid()), pod_name(PoolName(name), self.ids.suffix(10)))
            for _ in range(count)
        ]
        planned = await self.store.plan_runners(pool, pods, why="test")
        return [await self.hear(runner) for runner in planned]

    async def hear(self, runner: Runner) -> WaitingPod:
        found = await self.store.hear_pod(runner.pod_name, pod_uid=f"uid-{runner.pod_name}")
        assert found is not None
        heard = found.runner
        return WaitingPod(
            id=heard.id,
            pool=heard.pool,
            pod_name=heard.pod_name,
            generation=heard.generation,
            cost=heard.cost,
        )

    async def acknowledge(self, runner: Runner) -> Runner:
        """Its Pod reports that it holds the JIT."""
        assert runner.pod_uid is not None
        assert runner.delivery is not None
        running = await self.store.acknowledge_delivery(
            runner.pod_name, pod_uid=runner.pod_uid, delivery=runner.delivery
        )
        assert isinstance(running, Runner)
        return running

    def facts(self, job: int, state: JobState = JobState.QUEUED, **changes: Any) -> JobFacts:
        at = changes.pop("created_at", self.clock.now())
        if state in (JobState.IN_PROGRESS, JobState.COMPLETED):
            changes.setdefault("started_at", at)
        if state is JobState.COMPLETED:
            changes.setdefault("completed_at", at)
            changes.setdefault("conclusion", "success")
        return JobFacts(
            host=self.host,
            id=JobId(job),
            run_id=job // 256,
            run_attempt=1,
            name=f"job {job}",
            workflow="ci",
            labels=("self-hosted", "linux"),
            created_at=at,
            state=state,
            **changes,
        )

    async def report(self, account: AccountId, key: KeyId, *facts: JobFacts) -> list[Any]:
        return await self.store.apply_jobs(
            [
                JobReport(
                    facts=one,
                    account=account,
                    repository=self.repository_facts[account],
                    served=self._pool_of[key],
                )
                for one in facts
            ],
            why="test",
        )

    async def queue(self, account: AccountId, key: KeyId, count: int) -> list[JobId]:
        jobs = [next(self._numbers) for _ in range(count)]
        start: datetime = self.clock.now()
        await self.report(
            account,
            key,
            *(
                self.facts(job, created_at=start + timedelta(milliseconds=number))
                for number, job in enumerate(jobs)
            ),
        )
        return [JobId(job) for job in jobs]

    async def arm(self, runner: RunnerId, generation: int) -> Runner | Conflict:
        number = next(self._numbers)
        return await self.store.arm_runner(
            runner,
            generation=generation,
            github_id=GitHubRunnerId(number),
            delivery=self.ids.uuid(),
            sealed_jit=b"sealed",
            sealing_key="k1",
        )

    async def rows(self, query: str, *args: object) -> Sequence[Any]:
        async with self.database.transaction() as connection:
            return await connection.fetch(query, *args)


def executor(runner: Runner) -> Executor:
    assert runner.github_id is not None
    assert runner.name is not None
    return Executor(github_id=runner.github_id, name=runner.name)
