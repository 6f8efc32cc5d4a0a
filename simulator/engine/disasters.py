"""Faults that strike many at once, or from outside: nodes, accounts, repositories, the database,
GitHub's limits, and approvals that come days later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from paddock.fakes.github import FaultKind, JobSpec
from paddock.fakes.github.records import Job, Repository
from simulator.engine.faults import Fault

if TYPE_CHECKING:
    from simulator.engine.workload import Story

#: The age of a deployment at its approval (I76): more than a day. A younger deployment whose `waiting`
#: webhook was lost is dated from its creation. That is right for real days, not for short ones.
_APPROVED_AFTER: Final = (timedelta(hours=25), timedelta(hours=80))
#: The share of all nodes that are lost together.
_LOST_TOGETHER: Final = 3
#: How long a failover takes.
_FAILOVER: Final = (2.0, 25.0)
#: Operators act on this account all the time.
_KEPT: Final = "acme"


class Disasters:
    def __init__(self, story: Story, rng: random.Random) -> None:
        self._story = story
        self._stage = story.stage
        self._rng = rng

    @property
    def acts(self) -> tuple[tuple[float, Callable[[], Awaitable[None]]], ...]:
        """Each with the seconds between two opportunities."""
        return (
            (200.0, self.strike_nodes),
            (60.0, self.strike_accounts),
            (150.0, self.strike_database),
            (60.0, self.strike_limits),
            (60.0, self.approve_late),
        )

    def _chance(self, fault: Fault, probability: float) -> bool:
        faults = self._stage.faults
        if faults.in_the_air(fault) and self._rng.random() < probability:
            faults.happened(fault)
            return True
        return False

    async def strike_nodes(self) -> None:
        """A rack, or a zone: every Pod on a third of the nodes ends."""
        if self._chance(Fault.NODES_LOST, 0.3):
            nodes = list(self._stage.fleet.nodes.values())
            for node in self._rng.sample(nodes, -(-len(nodes) // _LOST_TOGETHER)):
                self._story.lose(node, silently=self._rng.random() < 0.3)

    async def strike_accounts(self) -> None:
        if self._chance(Fault.UNINSTALLED, 0.4):
            self._uninstall()
        elif self._chance(Fault.REPOSITORY_DELETED, 0.4):
            self._delete_a_repository()

    def _uninstall(self) -> None:
        story, stage = self._story, self._stage
        left = [
            each for each in story.installations if each.account.login != _KEPT and not each.removed
        ]
        if not left:
            return
        installation = self._rng.choice(left)
        login = installation.account.login
        stage.trace.note("users", f"{login} uninstalls the App")
        stage.ledger.uninstalled.add(login)
        stage.github.accounts.uninstall(installation)
        story.repositories = [each for each in story.repositories if each.owner.login != login]

    def _delete_a_repository(self) -> None:
        story, stage = self._story, self._stage
        left = [each for each in story.repositories if each.owner.login != _KEPT]
        if not left:
            return
        repository = self._rng.choice(left)
        stage.trace.note("users", f"{repository.full_name} is deleted")
        story.repositories.remove(repository)
        jobs = stage.ledger.delete(stage.github.accounts.delete_repository(repository))
        stage.ledger.jobs_of_deleted_repositories |= jobs

    async def strike_database(self) -> None:
        if self._chance(Fault.FAILOVER, 0.4):
            await self.fail_over(self._rng.uniform(*_FAILOVER))

    async def fail_over(self, seconds: float) -> None:
        """Connections break; a call that was about to commit may have committed. Then the database is
        away for seconds."""
        stage = self._stage
        stage.trace.note("database", "fails over")
        stage.faults.begin_failover()
        stage.leases.drop()
        await asyncio.sleep(seconds)
        stage.faults.end_failover()
        stage.wakeup_transport.listen_again()
        stage.trace.note("database", "is back")

    async def strike_limits(self) -> None:
        """GitHub's limits are those of one installation (I17)."""
        login = self._rng.choice(self._story.installations).account.login
        for fault, kind in (
            (Fault.PRIMARY_LIMIT, FaultKind.RATE_LIMIT),
            (Fault.SECONDARY_LIMIT, FaultKind.SECONDARY_LIMIT),
        ):
            if self._chance(fault, 0.3):
                self._stage.trace.note("github", f"limits {login}: {kind}")
                seconds = self._rng.uniform(30.0, 150.0)
                self._stage.github.inject(kind, owner=login, times=None, seconds=seconds)
                return

    async def approve_late(self) -> None:
        """A job that was created days ago is approved."""
        if not self._chance(Fault.APPROVED_LATE, 0.5):
            return
        stage, rng = self._stage, self._rng
        repository: Repository = rng.choice(self._story.repositories)
        spec = JobSpec(
            name="deploy",
            labels=rng.choice(stage.scale.pools).labels,
            seconds=rng.uniform(5.0, 60.0),
            gated=True,
        )
        age = rng.uniform(*(each.total_seconds() for each in _APPROVED_AFTER))
        [job] = stage.github.jobs.queue_run(repository, [spec], age=timedelta(seconds=age)).jobs
        stage.trace.note("users", f"job {job.id} has waited for its approval for {age:.0f} s")
        asyncio.get_running_loop().call_later(rng.uniform(10.0, 90.0), self._approve, job)

    def _approve(self, job: Job) -> None:
        self._stage.trace.note("users", f"job {job.id} is approved")
        self._stage.github.jobs.approve(job)
