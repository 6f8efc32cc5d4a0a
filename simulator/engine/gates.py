"""Ports with a scheduling point before every call, and with the faults of each call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from paddock.domain.names import PodName
from paddock.domain.pods.pod import Host, Pod, PodIdentity, PodList, PodOrder
from paddock.domain.runners.runner import Conflict
from paddock.ports import FleetUnavailable, Topic
from paddock.ports.errors import DatabaseUnavailable, OutcomeUnknown, StoreError
from paddock.store.store import PgStore
from paddock.store.wakeups import PgSubscription
from simulator.engine.database import Session
from simulator.engine.faults import Fault, Faults
from simulator.engine.fleet import SimFleet
from simulator.engine.replica_process import ReplicaProcess
from simulator.engine.trace import Trace

R = TypeVar("R")

#: Called after every store method that committed, with its name, its arguments and its result.
Committed = Callable[[str, tuple[Any, ...], object], None]


class WakeupTransport:
    """Wake-ups on their way from the database to the replicas."""

    def __init__(self, session: Session, faults: Faults) -> None:
        self._session = session
        self._faults = faults
        self._listeners: list[tuple[ReplicaProcess, PgSubscription]] = []

    def subscribe(self, machine: ReplicaProcess, topics: frozenset[Topic]) -> PgSubscription:
        subscription = PgSubscription(topics)
        self._listeners.append((machine, subscription))
        return subscription

    def carry(self) -> None:
        """The topics that the last transaction notified."""
        heard = [Topic(topic) for topic in self._session.take_heard()]
        if not heard:
            return
        self._listeners = [each for each in self._listeners if each[0].alive]
        for machine, subscription in self._listeners:
            if not (machine.stalled or self._faults.strike(Fault.WAKEUP_LOST)):
                subscription.wake(*heard)

    def listen_again(self) -> None:
        """The listening sessions were lost and are back: all are woken, as `PgWakeups` does it."""
        for machine, subscription in self._listeners:
            if machine.alive and not machine.stalled:
                subscription.wake(*Topic)


class MachineWakeups:
    def __init__(self, wakeup_transport: WakeupTransport, machine: ReplicaProcess) -> None:
        self._wakeup_transport = wakeup_transport
        self._machine = machine

    def subscribe(self, *topics: Topic) -> PgSubscription:
        return self._wakeup_transport.subscribe(self._machine, frozenset(topics))


class StoreGate:
    """The store: each of its methods is one transaction, and one step."""

    def __init__(
        self,
        store: PgStore,
        *,
        machine: ReplicaProcess,
        wakeup_transport: WakeupTransport,
        faults: Faults,
        trace: Trace,
        refused: Callable[[str, Exception], None],
        committed: Committed,
    ) -> None:
        """`committed` receives what each call wrote, also if the caller gets no answer."""
        self._store = store
        self._machine = machine
        self._wakeup_transport = wakeup_transport
        self._faults = faults
        self._trace = trace
        self._refused = refused
        self._committed = committed

    @property
    def actor(self) -> str:
        return self._store.actor

    def acting_as(self, actor: str) -> StoreGate:
        return StoreGate(
            self._store.acting_as(actor),
            machine=self._machine,
            wakeup_transport=self._wakeup_transport,
            faults=self._faults,
            trace=self._trace,
            refused=self._refused,
            committed=self._committed,
        )

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def gated(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, method, args, kwargs)

        self.__dict__[name] = gated
        return gated

    async def _call(
        self, name: str, method: Callable[..., Awaitable[Any]], args: Any, kwargs: Any
    ) -> Any:
        faults = self._faults
        if faults.strike(Fault.STORE_SLOW):
            await asyncio.sleep(faults.between(0.05, 3.0))
            self._troubled()
        await self._machine.turn(f"store.{name}")
        away = faults.database_away and not faults.cuts_off(self._machine.name)
        if away or faults.strike(Fault.STORE_AWAY):
            self._troubled()
            raise DatabaseUnavailable("The simulated database is away; nothing was written.")
        try:
            result = await method(*args, **kwargs)
        except StoreError:
            raise
        except Exception as error:
            self._refused(name, error)
            raise
        finally:
            self._wakeup_transport.carry()
        self._committed(name, args, result)
        if isinstance(result, Conflict):
            self._trace.note(self._machine.name, f"store.{name}: {result}")
        if faults.database_away or faults.strike(Fault.STORE_OUTCOME_UNKNOWN):
            self._troubled()
            raise OutcomeUnknown("The simulated connection broke during COMMIT.")
        return result

    def _troubled(self) -> None:
        self._faults.database_troubled_at = asyncio.get_running_loop().time()


class FleetGate:
    """The fleet's API and its reviewer, as one replica reaches them."""

    def __init__(self, fleet: SimFleet, *, machine: ReplicaProcess, faults: Faults) -> None:
        self._fleet = fleet
        self._machine = machine
        self._faults = faults

    async def create(self, order: PodOrder) -> Pod:
        async with self._call(f"create {order.name}"):
            return self._fleet.create(order)

    async def list(self) -> PodList:
        async with self._call("list"):
            return self._fleet.list_pods()

    async def hosts(self) -> Sequence[Host]:
        async with self._call("hosts"):
            return self._fleet.hosts()

    async def watch(self) -> AsyncIterator[Pod]:
        await self._machine.turn("fleet.watch")
        if self._faults.dark:
            raise FleetUnavailable("The simulated apiserver is away.")
        events = self._fleet.open_watch()
        try:
            while True:
                pod = await events.get()
                if pod is None or self._faults.strike(Fault.WATCH_BROKEN):
                    raise FleetUnavailable("The simulated watch broke.")
                yield pod
        finally:
            self._fleet.close_watch(events)

    async def delete_live_pod(self, name: PodName, *, uid: str) -> None:
        if (pod := self._fleet.named(name)) is not None and pod.uid == uid:
            self._fleet.note_wish(pod)
        async with self._call(f"delete_live_pod {name} {uid}"):
            self._fleet.delete_live_pod(name, uid=uid, by=self._machine.name)

    async def reap(self, name: PodName, *, uid: str) -> None:
        async with self._call(f"reap {name} {uid}"):
            self._fleet.reap(name, uid=uid, by=self._machine.name)

    async def stamp(self, name: PodName, *, uid: str, owner: str) -> None:
        async with self._call(f"stamp {name} {owner}"):
            self._fleet.stamp(name, uid=uid, owner=owner)

    async def log_tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        try:
            async with self._call(f"log {name}"):
                return self._fleet.log_tail(name, uid=uid, lines=lines, most_bytes=most_bytes)
        except (FleetUnavailable, asyncio.CancelledError):
            self._fleet.note_unread_log(name)
            raise

    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        async with self._call("review"):
            return self._fleet.review(token)

    @asynccontextmanager
    async def _call(self, what: str) -> AsyncIterator[None]:
        if self._faults.strike(Fault.FLEET_SLOW):
            await asyncio.sleep(self._faults.between(0.1, 8.0))
        await self._machine.turn(f"fleet.{what}")
        if self._faults.dark or self._faults.strike(Fault.FLEET_ERROR):
            if self._faults.dark or what == "hosts":
                self._faults.hosts_unread_at = asyncio.get_running_loop().time()
            raise FleetUnavailable(f"The simulated apiserver could not {what}.")
        yield
        if self._faults.strike(Fault.FLEET_REPLY_LOST):
            raise FleetUnavailable(f"The simulated apiserver did not answer to {what}.")


class Leases:
    """Which session holds which leader's lock."""

    def __init__(self, faults: Faults, now: Callable[[], float]) -> None:
        self._faults = faults
        self._now = now
        self._held: dict[tuple[int, int], LeaseSession] = {}
        #: When a lock last passed to another session.
        self.changed_at = 0.0
        #: While set, a held lock is also granted to another session: two leaders at once.
        self.doubled = False

    def take(self, lock: tuple[int, int], session: LeaseSession) -> bool:
        holder = self._held.get(lock)
        if holder is not None and holder.machine.alive and holder is not session:
            if not self.doubled:
                return False
            self._faults.happened(Fault.TWO_LEADERS)
        if holder is not session:
            self.changed_at = self._now()
        self._held[lock] = session
        return True

    def reach(self) -> None:
        if self._faults.database_away:
            raise DatabaseUnavailable("The simulated database is away.")

    def drop(self) -> None:
        """Ends all sessions, and their locks with them. A stalled machine notices with its next
        call."""
        dropped = dict.fromkeys(self._held.values())
        self._held.clear()
        for session in dropped:
            if session.machine.alive and not session.machine.stalled:
                session.end()

    def holds(self, session: LeaseSession, locks: Sequence[tuple[int, int]]) -> bool:
        return self.doubled or all(self._held.get(lock) is session for lock in locks)

    def release(self, session: LeaseSession, locks: Sequence[tuple[int, int]]) -> None:
        for lock in locks:
            if self._held.get(lock) is session:
                del self._held[lock]


class LeaseSession:
    """The part of a session that leadership needs."""

    def __init__(self, leases: Leases, machine: ReplicaProcess) -> None:
        self._leases = leases
        self.machine = machine
        self.locks: list[tuple[int, int]] = []
        self._listeners: list[Callable[[LeaseSession], object]] = []

    def add_termination_listener(self, listener: Callable[[LeaseSession], object]) -> None:
        self._listeners.append(listener)

    def end(self) -> None:
        for listener in self._listeners:
            listener(self)

    async def fetchval(self, _query: str, space: int, number: int, _silent_for: str) -> bool:
        await self.machine.turn("lease")
        self._leases.reach()
        taken = self._leases.take((space, number), self)
        if taken:
            self.locks.append((space, number))
        return taken

    async def execute(self, _query: str) -> str:
        await self.machine.turn("lease held")
        if not self._leases.holds(self, self.locks):
            raise DatabaseUnavailable("The simulated session is lost, and its locks with it.")
        return "SELECT 1"


class LeaseDatabase:
    """The part of a `Database` that leadership needs."""

    def __init__(self, leases: Leases, machine: ReplicaProcess) -> None:
        self._leases = leases
        self._machine = machine

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[LeaseSession]:
        session = LeaseSession(self._leases, self._machine)
        try:
            yield session
        finally:
            self._leases.release(session, session.locks)

    async def promptly(self, _session: LeaseSession, answer: Awaitable[R]) -> R:
        """Every session answers, or is lost."""
        return await answer
