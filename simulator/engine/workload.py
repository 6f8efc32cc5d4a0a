"""What people and hardware do in one seed: jobs come and are cancelled, operators change limits, nodes
die. All of it is drawn from the seed: before the run, or from the seed's own generator during it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from paddock.domain.runners.endings import Ending
from paddock.fakes.github import FakeGitHub, FaultKind, JobSpec
from paddock.fakes.github.records import Account, App, Installation, JobStatus, Repository, Run
from paddock.ports import Store
from simulator.engine.database import Session
from simulator.engine.disasters import Disasters
from simulator.engine.faults import CHANCE, Fault, Faults
from simulator.engine.fleet import Node, SimFleet
from simulator.engine.gates import Leases, WakeupTransport
from simulator.engine.ledger import Ledger
from simulator.engine.operators import Operators
from simulator.engine.pods import Pods
from simulator.engine.replicas import SimReplica
from simulator.engine.scale import LINUX, MACOS, SMALL, Scale
from simulator.engine.time import VirtualClock
from simulator.engine.trace import Trace

#: The first jobs come when the first Pods are about to be ready.
_FIRST_JOB: Final = 20.0
#: How long jobs keep coming.
_SHORTEST, _PER_JOB = 420.0, 3.0
#: Faults continue for a while after the last job.
_FAULTS_AFTER: Final = 120.0


@dataclass(slots=True, kw_only=True)
class Stage:
    """What the story acts on."""

    github: FakeGitHub
    fleet: SimFleet
    pods: Pods
    replicas: list[SimReplica]
    operator: Store
    session: Session
    leases: Leases
    wakeup_transport: WakeupTransport
    ledger: Ledger
    clock: VirtualClock
    database_clock: VirtualClock
    faults: Faults
    trace: Trace
    app: App
    scale: Scale
    #: Draws the faults that strike many at once.
    disasters: random.Random


@dataclass(slots=True)
class Story:
    stage: Stage
    rng: random.Random
    jobs: int
    repositories: list[Repository] = field(default_factory=list)
    installations: list[Installation] = field(default_factory=list)
    operators: Operators = field(init=False)
    disasters: Disasters = field(init=False)

    def __post_init__(self) -> None:
        self.operators = Operators(self.stage, self.rng)
        self.disasters = Disasters(self, self.stage.disasters)

    @property
    def lasts(self) -> float:
        return _FIRST_JOB + max(_SHORTEST, _PER_JOB * self.jobs / self.stage.scale.busier)

    async def begin(self) -> None:
        """Accounts at GitHub, pools here."""
        accounts, scale = self.stage.github.accounts, self.stage.scale
        for login, names in scale.organizations:
            self._install(accounts.add_organization(login), names)
        for login, names in scale.users:
            self._install(accounts.add_user(login), names)
        await self.operators.begin()

    def _install(self, account: Account, names: tuple[str, ...]) -> None:
        accounts = self.stage.github.accounts
        self.repositories += [accounts.add_repository(account, name) for name in names]
        self.installations.append(accounts.install(self.stage.app, account))

    async def unfold(self) -> None:
        """Returns when the last job has come and faults have stopped."""
        async with asyncio.TaskGroup() as group:
            acts = [
                self._queue_jobs(),
                self.operators.set_first_limits(),
                self._every(10.0 / self.stage.scale.busier, self._strike_pods),
                self._every(45.0, self._strike_nodes),
                self._every(50.0, self._strike_replicas),
                self._every(60.0, self._strike_github),
                self._every(75.0, self.operators.mind_accounts),
                self._every(60.0, self.operators.mind_pools),
                self._every(25.0, self.operators.meddle),
                self._every(60.0, self.operators.mind_backups),
                self._every(150.0, self._black_out),
                *(
                    self._every(seconds, strike, self.stage.disasters)
                    for seconds, strike in self.disasters.acts
                ),
            ]
            for act in acts:
                group.create_task(act)

    def calm(self) -> None:
        """Faults stop. Their damage stays."""
        stage = self.stage
        stage.faults.on = stage.faults.dark = False
        stage.github.set_faults(stage.faults.at_github())
        stage.leases.doubled = False
        for replica in stage.replicas:
            replica.machine.stalled = False
        for node in stage.fleet.nodes.values():
            node.cordoned = node.bad = False
            node.fault = None
        for installation in self.installations:
            if not installation.removed:
                stage.github.accounts.unsuspend(installation)
        for job in list(stage.github.world.jobs.values()):
            if job.status is JobStatus.WAITING and self.rng.random() < 0.5:
                stage.github.jobs.approve(job)

    # Jobs.

    async def _queue_jobs(self) -> None:
        clock, rng = self.stage.clock, self.rng
        left = self.jobs
        times = []
        while left:
            size = min(left, rng.choice((1, 1, 1, 2, 3, 8)))
            times.append((rng.uniform(_FIRST_JOB, self.lasts), size))
            left -= size
        for at, size in sorted(times):
            await asyncio.sleep(max(0.0, at - clock.monotonic()))
            self._queue(size)

    def _queue(self, size: int) -> None:
        stage, rng = self.stage, self.rng
        repository = rng.choice(self.repositories)
        stage.ledger.first_job = min(stage.ledger.first_job, stage.clock.monotonic())
        run = stage.github.jobs.queue_run(repository, [self._spec() for _ in range(size)])
        stage.trace.note("users", f"{repository.full_name}: jobs {[job.id for job in run.jobs]}")
        if stage.faults.in_the_air(Fault.ASSIGNS_LATE):
            stage.faults.happened(Fault.ASSIGNS_LATE)
        for job in run.jobs:
            if stage.faults.strike(Fault.CANCELLED):
                delay = rng.uniform(0.5, 90.0)
                asyncio.get_running_loop().call_later(delay, stage.github.jobs.cancel, job)
        if stage.faults.strike(Fault.RUN_DELETED):
            asyncio.get_running_loop().call_later(rng.uniform(0.5, 60.0), self._delete, run)

    def _delete(self, run: Run) -> None:
        """GitHub sends no webhook of it, and its API no longer shows the jobs."""
        stage = self.stage
        if all(job.status in (JobStatus.WAITING, JobStatus.QUEUED) for job in run.jobs):
            stage.trace.note("users", f"delete run {run.id}: jobs {[job.id for job in run.jobs]}")
            stage.github.jobs.delete_run(run)
            stage.ledger.delete(run.jobs)

    def _spec(self) -> JobSpec:
        rng = self.rng
        labels: tuple[str, ...] = rng.choices(
            (LINUX, MACOS, ("self-hosted", "windows")), (80, 18, 2)
        )[0]
        if self.stage.scale is not SMALL and labels is LINUX:
            labels = rng.choice(self.stage.scale.pools).labels
        if self.stage.faults.strike(Fault.FOREIGN_JOB):
            labels = ("self-hosted",)  # fits two pools, so it is refused; GitHub does not mind
        seconds = rng.choices(
            (rng.uniform(0.2, 3.0), rng.uniform(5, 60), rng.uniform(60, 300)), (15, 65, 20)
        )[0]
        return JobSpec(
            name=f"build-{rng.randrange(1000)}",
            labels=labels,
            seconds=seconds,
            conclusion=rng.choices(("success", "failure"), (85, 15))[0],
            gated=rng.random() < 0.03,
        )

    # Disasters.

    async def _every(
        self,
        seconds: float,
        strike: Callable[[], Awaitable[None]],
        rng: random.Random | None = None,
    ) -> None:
        until, rng = self.lasts + _FAULTS_AFTER, rng or self.rng
        while self.stage.clock.monotonic() < until:
            await asyncio.sleep(rng.uniform(0.5, 1.5) * seconds)
            await strike()

    def _chance(self, fault: Fault, probability: float) -> bool:
        faults = self.stage.faults
        if faults.in_the_air(fault) and self.rng.random() < probability:
            faults.happened(fault)
            return True
        return False

    async def _strike_pods(self) -> None:
        stage = self.stage
        living = [pod for pod in stage.fleet.there() if pod.alive and not pod.silent]
        if not living:
            return
        pod = self.rng.choice(living)
        if self._chance(Fault.EVICTED, 5 * CHANCE[Fault.EVICTED]):
            stage.pods.kill(
                pod,
                "evicted",
                {Ending.EVICTED},
                reason=self.rng.choice(("Error", "ContainerStatusUnknown")),
                pod_reason="Evicted",
            )
        elif self._chance(Fault.HARD_DELETED, 5 * CHANCE[Fault.HARD_DELETED]):
            stage.pods.vanish(pod, "hard-deleted")
        elif self._chance(Fault.FOREIGN_DELETE, 5 * CHANCE[Fault.FOREIGN_DELETE]):
            stage.fleet.send_away(pod, "is asked to go by a foreign hand")
        elif self._chance(Fault.WATCH_BROKEN, 0.1):
            stage.fleet.break_watches()

    async def _strike_nodes(self) -> None:
        stage, rng = self.stage, self.rng
        node = rng.choice(list(stage.fleet.nodes.values()))
        if self._chance(Fault.NODE_LOST, 0.15):
            self.lose(node, silently=False)
        elif self._chance(Fault.NODE_VANISHED, 0.15):
            self.lose(node, silently=True)
        elif self._chance(Fault.CORDONED, 0.3):
            stage.trace.note(node.name, "is cordoned")
            node.cordoned = True
            asyncio.get_running_loop().call_later(rng.uniform(30, 200), _uncordon, node)
        elif self._chance(Fault.HOST_UNFIT, 0.3):
            stage.fleet.call_unfit(node, "its packet filter is off")
            asyncio.get_running_loop().call_later(rng.uniform(60, 600), _make_fit, node)
        elif stage.faults.in_the_air(Fault.BAD_NODE) and rng.random() < 0.3:
            stage.trace.note(node.name, "starts no containers any more")
            node.bad = True

    def lose(self, node: Node, *, silently: bool) -> None:
        stage = self.stage
        stage.trace.note(node.name, "is lost")
        del stage.fleet.nodes[node.name]
        fresh = Node(f"node-{len(stage.fleet.nodes)}-{self.rng.randrange(1000)}")
        stage.fleet.nodes[fresh.name] = fresh
        for pod in [each for each in stage.fleet.there() if each.node == node.name]:
            if silently:
                stage.pods.silence(pod, "its node vanished", {Ending.HARD_DELETED})
                delay = self.rng.uniform(40.0, 300.0)
                asyncio.get_running_loop().call_later(
                    delay, stage.pods.vanish, pod, "its node vanished"
                )
            else:
                stage.pods.kill(
                    pod,
                    "node lost",
                    {Ending.NODE_LOST},
                    reason="ContainerStatusUnknown",
                    pod_reason="NodeLost",
                )

    async def _strike_replicas(self) -> None:
        stage, rng = self.stage, self.rng
        replica = rng.choice(stage.replicas)
        if self._chance(Fault.STALL, 0.4) and replica.machine.alive:
            machine = replica.machine
            machine.stalled = True
            stage.trace.note(replica.name, "stalls")
            await asyncio.sleep(rng.uniform(3.0, 90.0))
            machine.stalled = False
            stage.faults.hosts_unread_at = stage.clock.monotonic()
            stage.trace.note(replica.name, "goes on")
        if stage.faults.in_the_air(Fault.TWO_LEADERS) and rng.random() < 0.3:
            stage.leases.doubled = True
            await asyncio.sleep(rng.uniform(10.0, 60.0))
            stage.leases.doubled = False

    async def _black_out(self) -> None:
        """GitHub and the cluster's API are away at once."""
        stage = self.stage
        if self._chance(Fault.BLACKOUT, 0.3):
            stage.trace.note("world", "GitHub and the cluster's API are away")
            stage.faults.dark = True
            stage.fleet.break_watches()
            await asyncio.sleep(self.rng.uniform(20.0, 240.0))
            stage.faults.dark = False
            stage.trace.note("world", "GitHub and the cluster's API are back")

    async def _strike_github(self) -> None:
        stage, rng = self.stage, self.rng
        installation = rng.choice(self.installations)
        if self._chance(Fault.SCOPE_404, 0.3):
            owner = installation.account.login
            stage.trace.note("github", f"answers 404 to everything about {owner}")
            stage.github.inject(
                FaultKind.NOT_FOUND, owner=owner, times=None, seconds=rng.uniform(20, 150)
            )
        elif self._chance(Fault.SUSPENDED, 0.15):
            stage.github.accounts.suspend(installation)
            await asyncio.sleep(rng.uniform(20.0, 150.0))
            stage.github.accounts.unsuspend(installation)
        elif self._chance(Fault.FOREIGN_RUNNER, 0.3):
            self._foreign_runner()
        elif self._chance(Fault.NOT_ASSIGNED, 0.3):
            await self._shut_out()
        elif stage.faults.in_the_air(Fault.RECORD_DELETED):
            self._delete_a_record()

    def _delete_a_record(self) -> None:
        """A GitHub user deletes an idle runner in the settings, without knowing its purpose."""
        world = self.stage.github.world
        idle = [
            runner
            for runner in world.runners.values()
            if not runner.foreign and world.online(runner) and not (runner.job or runner.offered)
        ]
        if idle:
            self.stage.faults.happened(Fault.RECORD_DELETED)
            runner = self.rng.choice(idle)
            self.stage.trace.note("github", f"an operator deletes runner {runner.name}")
            self.stage.github.runners.delete(runner)

    async def _shut_out(self) -> None:
        """A runner group that no repository may use: GitHub assigns its runners no job."""
        stage, rng = self.stage, self.rng
        account = rng.choice(self.installations[:2]).account
        group = stage.github.world.groups[account.id][0]
        stage.trace.note("github", f"assigns nothing to runners of {account.login}")
        stage.github.accounts.set_group_repositories(group, [])
        await asyncio.sleep(rng.uniform(60.0, 400.0))
        own = [each for each in self.repositories if each.owner is account]
        stage.github.accounts.set_group_repositories(group, own)

    def _foreign_runner(self) -> None:
        """A runner that is not paddock's, for one of the jobs that paddock also serves."""
        stage = self.stage
        account = self.installations[0].account
        group = stage.github.world.groups[account.id][0]
        name = f"foreign-{self.rng.randrange(10_000)}"
        if stage.github.runner_named(name) is None:
            stage.github.runners.add_foreign(
                account, name=name, group=group, labels=LINUX, ephemeral=True
            )


def _uncordon(node: Node) -> None:
    node.cordoned = False


def _make_fit(node: Node) -> None:
    node.fault = None
