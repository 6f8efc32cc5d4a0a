"""paddock's replicas in the simulated world, and how Pods and webhooks reach them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from paddock.dispatch.dispatcher import Dispatcher
from paddock.dispatch.identity import Identities
from paddock.dispatch.inbox import Inbox, NotStored
from paddock.dispatch.installations import NewAccount, register_apps
from paddock.dispatch.sealing import Sealer
from paddock.dispatch.vitals import VitalsBatches
from paddock.domain.accounts import MintBudget
from paddock.domain.github.objects import AppKey
from paddock.domain.ids import AppId, HostId
from paddock.domain.limits import Limits
from paddock.domain.recovery.thresholds import RecoveryTerms
from paddock.domain.runners.handover import Answer, Leave
from paddock.domain.runners.vitals import Sample, VitalsReport
from paddock.fakes.github import FakeGitHub, Outgoing
from paddock.github.apps import Apps
from paddock.github.budget import Budget
from paddock.github.client import GitHubClient
from paddock.github.webhooks import APPLIED_EVENTS, Signatures, read_webhook
from paddock.ports import Clock, FleetUnavailable, Store
from paddock.ports.errors import DatabaseUnavailable, StoreError
from paddock.replica import FleetParts, Replica, dispatching, intake
from paddock.services import running
from paddock.store.clock import DatabaseClock
from paddock.store.database import Database
from paddock.store.leadership import led
from paddock.store.store import PgStore
from simulator.engine.database import Session, database_over
from simulator.engine.faults import Fault, Faults
from simulator.engine.fleet import OpenRequest, SimFleet, SimPod
from simulator.engine.gates import (
    Committed,
    FleetGate,
    LeaseDatabase,
    Leases,
    MachineWakeups,
    StoreGate,
    WakeupTransport,
)
from simulator.engine.github import Wire
from simulator.engine.pods import AnswerLost, NoReplicaReached, Unavailable
from simulator.engine.replica_process import Processes, ReplicaProcess
from simulator.engine.time import SeededIds, VirtualClock
from simulator.engine.trace import Trace

T = TypeVar("T")

_PEER: Final = "10.0.0.7"
_SEALING_KEY: Final = b"simulated sealing key, 32 bytes!"
#: The kubelet restarts a process that died.
_RESTART: Final = (1.0, 20.0)
#: GitHub's time-out for an answer.
_HOOK_TIMEOUT: Final = 10.0
#: The agent's time-out beyond the time that a replica holds a request.
_ANSWER_SECONDS: Final = 15.0


@dataclass(slots=True, kw_only=True)
class ReplicaContext:
    """What every replica works with."""

    session: Session
    fleet: SimFleet
    github: FakeGitHub
    apps: Apps
    budget: Budget
    processes: Processes
    clock: VirtualClock
    database_clock: VirtualClock
    rng: random.Random
    faults: Faults
    trace: Trace
    wakeup_transport: WakeupTransport
    leases: Leases
    #: A store method raised an error that it never should raise.
    refused: Callable[[str, Exception], None]
    #: A store method was committed; GitHub answered.
    committed: Committed
    answered: Callable[[str, int, Mapping[str, str]], None]
    new_account: Limits = field(default_factory=Limits)
    recovery: RecoveryTerms = field(default_factory=RecoveryTerms)


class SimReplica:
    """One replica: started again, as a new machine, each time it has died."""

    def __init__(self, name: str, around: ReplicaContext, own_clock: VirtualClock) -> None:
        self.name = name
        #: Its machine's clock, which may be wrong.
        self.own_clock = own_clock
        self._around = around
        self.machine = ReplicaProcess(name, around.processes)
        self._ids = SeededIds(random.Random(around.rng.getrandbits(64)), around.clock)  # noqa: S311
        self.dispatcher: Dispatcher | None = None
        self.identities: Identities | None = None
        self.inbox: Inbox | None = None
        self.vitals: VitalsBatches | None = None
        self.store: Store | None = None
        self._hosts: Mapping[AppKey, tuple[HostId, AppId]] = {}
        self._signatures = Signatures(around.apps)

    @property
    def serving(self) -> bool:
        return self.machine.alive and self.dispatcher is not None

    def start(self) -> None:
        self.machine = ReplicaProcess(self.name, self._around.processes)
        self.machine.spawn(self._main(), name=self.name).add_done_callback(self._ended)

    def crash(self, why: str) -> None:
        if self.machine.alive:
            self._around.trace.note(self.name, f"crashes: {why}")
            self._down()

    def _ended(self, main: asyncio.Task[None]) -> None:
        if self.machine.alive:
            error = None if main.cancelled() else main.exception()
            if error is not None and not isinstance(error, StoreError):
                self._around.refused("replica", cast("Exception", error))
            self._around.trace.note(self.name, f"ends: {type(error).__name__}")
            self._down()

    def _down(self) -> None:
        self.dispatcher = self.identities = self.inbox = self.vitals = self.store = None
        self.machine.crash()
        self._around.processes.spawn(self._again(), name=f"restart {self.name}")

    async def _again(self) -> None:
        await asyncio.sleep(self._around.rng.uniform(*_RESTART))
        self.start()

    async def _main(self) -> None:
        async with DatabaseClock.running(self._database_time, self.own_clock) as clock:
            await self._serve(clock)

    async def _database_time(self) -> datetime:
        await self.machine.turn("database time")
        faults = self._around.faults
        if faults.database_away or faults.strike(Fault.STORE_AWAY):
            raise DatabaseUnavailable("The simulated database is away.")
        return self._around.database_clock.now()

    async def _serve(self, clock: Clock) -> None:
        around, machine = self._around, self.machine
        gate = StoreGate(
            PgStore(database_over(around.session), clock=clock, ids=self._ids, actor=self.name),
            machine=machine,
            wakeup_transport=around.wakeup_transport,
            faults=around.faults,
            trace=around.trace,
            refused=around.refused,
            committed=around.committed,
        )
        store = cast("Store", gate)
        registered = await register_apps(
            store,
            {
                app.key: (app.api_url, MintBudget(per_minute=180, per_hour=10_000))
                for app in around.apps
            },
        )
        github = GitHubClient(
            around.apps,
            clock=clock,
            budget=around.budget,
            connect=lambda _url: Wire(around.github, machine, around.faults, around.answered),
        )
        replica = Replica(
            store=store,
            wakeups=MachineWakeups(around.wakeup_transport, machine),
            clock=clock,
            ids=self._ids,
            apps=registered,
            github=github,
            budget=around.budget,
            new_account=NewAccount(limits=around.new_account),
            recovery=around.recovery,
            lead=partial(
                led, database=cast("Database", LeaseDatabase(around.leases, machine)), clock=clock
            ),
        )
        fleet = FleetGate(around.fleet, machine=machine, faults=around.faults)
        work = dispatching(replica, FleetParts(fleet=fleet, reviewer=fleet), Sealer([_SEALING_KEY]))
        async with Inbox.open(store, clock) as inbox:
            self._hosts = {app.key: (app.host, app.app) for app in registered}
            async with running((*intake(replica), *work.services), clock):
                self.store, self.inbox = store, inbox
                self.vitals = VitalsBatches(store, clock)
                self.dispatcher, self.identities = work.dispatcher, work.identities
                await asyncio.Event().wait()

    # Requests to it, in its own process.

    async def poll(self, pod: SimPod, wait: float) -> Answer | None:
        assert self.dispatcher is not None
        assert self.identities is not None
        dispatcher = self.dispatcher
        headers = {"authorization": f"Bearer {pod.token}"}
        identity = await self.identities.identify(headers, peer=_PEER)
        if identity is None:
            return None
        pod.asks = asks = OpenRequest(self.machine, self._around.clock.monotonic())
        try:
            return await dispatcher.poll(identity, wait=wait)
        finally:
            if pod.asks is asks:
                pod.asks = None

    async def acknowledge(self, token: str, delivery: UUID) -> bool | Leave:
        assert self.dispatcher is not None
        assert self.identities is not None
        dispatcher = self.dispatcher
        headers = {"authorization": f"Bearer {token}"}
        pod = await self.identities.identify(headers, peer=_PEER)
        if pod is None:
            return False
        return await dispatcher.acknowledge(pod, delivery)

    async def report_job(self, pod: SimPod) -> None:
        assert self.vitals is not None
        began = self._around.clock.now()
        await self.vitals.add(
            VitalsReport(
                pod_name=pod.name,
                pod_uid=pod.uid,
                samples=[Sample(at=began.timestamp())],
                job_started_at=began,
            )
        )

    async def receive(self, outgoing: Outgoing) -> int:
        assert self.inbox is not None
        inbox = self.inbox
        headers = {
            name.lower().encode(): value.encode() for name, value in outgoing.headers.items()
        }
        host, app = self._hosts[self._signatures.signer(headers, outgoing.body)]
        delivery = read_webhook(headers, outgoing.body, host=host, app=app)
        if delivery.event not in APPLIED_EVENTS:
            return 200
        try:
            await inbox.store(delivery)
        except NotStored:
            return 503
        return 202


class Site:
    """All replicas behind one address."""

    def __init__(self, replicas: list[SimReplica], around: ReplicaContext) -> None:
        self.replicas = replicas
        self._around = around

    # Pods.

    async def poll(self, pod: SimPod, wait: float) -> Answer | None:
        self._reach(pod, Fault.POLL_UNREACHABLE)
        answer = await self._ask(
            lambda replica: replica.poll(pod, wait), timeout=wait + _ANSWER_SECONDS
        )
        if self._around.faults.strike(Fault.POLL_REPLY_LOST):
            raise AnswerLost
        return answer

    async def acknowledge(self, pod: SimPod, delivery: UUID) -> bool | Leave:
        self._reach(pod, Fault.POLL_UNREACHABLE)
        answer = await self._ask(
            lambda replica: replica.acknowledge(pod.token, delivery), timeout=3.0
        )
        if self._around.faults.strike(Fault.ACK_LOST):
            raise AnswerLost
        return answer

    async def report_job(self, pod: SimPod) -> None:
        """The sidecar reports that a job began; it retries for a while."""
        for _ in range(5):
            try:
                await self._ask(lambda replica: replica.report_job(pod), timeout=10.0)
            except (NoReplicaReached, AnswerLost, Unavailable):
                await asyncio.sleep(2.0)
            else:
                return

    def _reach(self, pod: SimPod, fault: Fault) -> None:
        # The idle-only egress policy (S5): a Pod with an owner's label reaches no replica.
        if pod.owner is not None or self._around.faults.strike(fault):
            raise NoReplicaReached

    # GitHub.

    def deliver(self, outgoing: Outgoing) -> None:
        self._around.processes.spawn(self._deliver(outgoing), name="webhook")

    async def _deliver(self, outgoing: Outgoing) -> None:
        try:
            self._light()
            status = await self._ask(
                lambda replica: replica.receive(outgoing), timeout=_HOOK_TIMEOUT
            )
        except NoReplicaReached:
            status = 502
        except (AnswerLost, Unavailable):
            status = 0
        self._around.github.hooks.finished(outgoing.delivery_id, status)

    def _light(self) -> None:
        if self._around.faults.dark:
            raise NoReplicaReached

    async def _ask(self, request: Callable[[SimReplica], Awaitable[T]], *, timeout: float) -> T:
        """Asks a replica that serves; its process may crash meanwhile."""
        up = [replica for replica in self.replicas if replica.serving]
        if not up:
            raise NoReplicaReached
        replica = self._around.rng.choice(up)
        task: asyncio.Task[Any] = replica.machine.spawn(
            _serve(request, replica), name=f"request to {replica.name}"
        )
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wait({task})
        except TimeoutError:
            task.cancel()
            raise AnswerLost from None
        except asyncio.CancelledError:
            task.cancel()  # the client has hung up
            raise
        if task.cancelled():
            raise AnswerLost
        error = task.exception()
        if isinstance(error, StoreError | FleetUnavailable):
            raise Unavailable from error
        if error is not None:
            raise error
        return cast("T", task.result())


async def _serve(request: Callable[[SimReplica], Awaitable[T]], replica: SimReplica) -> T:
    return await request(replica)
