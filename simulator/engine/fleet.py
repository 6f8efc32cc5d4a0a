"""Nodes and Pods: the truth, and what their API shows.

The API may lag, fail, and show a part or nothing. `pods` is the truth, and holds every Pod that ever
existed. Deletion is a request: a living Pod is told to stop. An ended Pod stays visible until the
leader removes its finalizer. Only a fault or an operator can make a Pod vanish before that.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from paddock.domain.limits import Resources
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import (
    RUNNER_CONTAINER,
    ContainerState,
    ContainerStatus,
    Terminated,
    Waiting,
)
from paddock.domain.pods.pod import Host, Phase, Pod, PodIdentity, PodList, PodOrder
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.versions import RunnerVersion, runner_version
from paddock.ports import FleetUnavailable
from simulator.engine.faults import Fault, Faults
from simulator.engine.replica_process import ReplicaProcess
from simulator.engine.runner_output import ACTIONS, Speech, of_pod
from simulator.engine.time import VirtualClock
from simulator.engine.trace import Trace

POLLER: Final = "poller"
#: A version of the runner, and one that GitHub refuses without having announced it.
VERSION: Final = "2.336.0"
DEPRECATED: Final = "2.100.0"
Shape = Literal["gated", "single"]

WAITS: Final = ContainerState(waiting=Waiting("PodInitializing"))
#: A container is in one state at a time; a status that shows two is not understood (I34).
_STRANGE: Final = ContainerState(waiting=Waiting("?"), terminated=Terminated())
_TOKEN_FOR: Final = timedelta(hours=1)
#: The greatest age of a stale list.
_SNAPSHOT_EVERY: Final = 8.0


@dataclass(frozen=True, slots=True)
class Jit:
    """What a Pod has received."""

    text: str
    runner_id: int
    runner_name: str
    client_id: str
    secret: str

    @classmethod
    def read(cls, text: str) -> Jit:
        files: dict[str, Any] = msgspec.json.decode(base64.b64decode(text))
        settings, credentials, key = (
            msgspec.json.decode(base64.b64decode(files[name]))
            for name in (".runner", ".credentials", ".credentials_rsaparams")
        )
        return cls(
            text=text,
            runner_id=int(settings["AgentId"]),
            runner_name=settings["AgentName"],
            client_id=credentials["Data"]["ClientId"],
            secret=key["d"],
        )


@dataclass(slots=True, eq=False)
class OpenRequest:
    """A Pod's request for work, at the replica that holds it."""

    replica: ReplicaProcess
    #: Since when the Pod has waited: since it asked, or since its last claim was made or released.
    since: float


@dataclass(slots=True, eq=False)
class SimPod:
    name: PodName
    uid: str
    pool: str
    shape: Shape
    token: str
    created_at: datetime
    cost: Resources = field(default_factory=Resources)
    avoid: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    #: The version of its runner program, and since when the Pod shows it.
    version: str = VERSION
    shows_version_since: datetime | None = None
    node: str | None = None
    phase: Phase = Phase.PENDING
    reason: str | None = None
    unschedulable: str | None = None
    deletion_requested_at: datetime | None = None
    owner: str | None = None
    poller: ContainerState = WAITS
    #: `None`: the kubelet has not reported any container yet.
    runner: ContainerState | None = None
    started: bool = False
    #: What the kubelet reports of its container makes no sense for now.
    strange: bool = False
    #: How its runner program tells what it does.
    speech: Speech = ACTIONS
    #: What its runner wrote, and when.
    log: list[tuple[float, str]] = field(default_factory=list)
    #: Its node shows its log this much later.
    log_lag: float = 0.0
    #: Until then its log cannot be read, though it exists.
    log_away_until: float = 0.0

    # What only the checkers can see.
    life: asyncio.Task[None] | None = None
    #: Told to stop.
    told: asyncio.Event = field(default_factory=asyncio.Event)
    #: The runner's process lives.
    process: bool = False
    #: The kubelet no longer reports: the API shows its last report.
    silent: bool = False
    #: An operator made it by hand.
    by_hand: bool = False
    #: Its containers never start.
    stuck: bool = False
    #: Its container has ended, or will end; another container keeps the Pod alive.
    lingers: bool = False
    #: A restored backup has no row for it.
    uncounted: bool = False
    #: A restored backup's row does not know that it holds a JIT; or its job was over, and the backup
    #: does not know that job.
    forgotten: bool = False
    #: Its request for work, while a replica holds it open.
    asks: OpenRequest | None = None
    jit: Jit | None = None
    removed: bool = False
    deleted_by: str | None = None
    #: Deleted by paddock, and no backup restored since has lost what was known of it.
    reaped: bool = False
    #: Its end had been requested before it ended.
    sent_away: bool = False
    #: When paddock first asked it to go, whether or not the request arrived.
    wanted_gone_at: datetime | None = None
    #: The endings that paddock may record, from how it really ended.
    endings: set[Ending] = field(default_factory=set)
    #: When its first lasting trouble began; when it was shown to have ended; when it vanished, or was
    #: taken away.
    trouble_at: float | None = None
    over_at: float | None = None
    removed_at: float | None = None
    fate: str = ""
    code: int | None = None
    ended_at: float | None = None

    @property
    def ended(self) -> bool:
        return self.phase.terminal

    @property
    def there(self) -> bool:
        return not self.removed

    @property
    def alive(self) -> bool:
        return not self.removed and not self.ended

    def view(self) -> Pod:
        poller = ContainerStatus(POLLER, self.poller)
        containers: tuple[ContainerStatus, ...] = ()
        if self.runner is not None:
            shown = _STRANGE if self.strange else self.runner
            runner = ContainerStatus(RUNNER_CONTAINER, shown, started=self.started)
            containers = (runner,)
            if self.shape == "single":
                poller = runner
        return Pod(
            name=self.name,
            uid=self.uid,
            pool=self.pool,
            phase=self.phase,
            reason=self.reason,
            node=self.node,
            created_at=self.created_at,
            deletion_requested_at=self.deletion_requested_at,
            owner=self.owner,
            poller=poller,
            containers=containers,
            unschedulable=self.unschedulable,
            runner_version=self.version_shown,
        )

    @property
    def version_shown(self) -> RunnerVersion | None:
        return None if self.shows_version_since is None else runner_version(self.version)


@dataclass(slots=True, eq=False)
class Node:
    name: str
    cordoned: bool = False
    lost: bool = False
    #: It is Ready, and no container starts on it (I51).
    bad: bool = False
    #: Why this host says that it is unfit for runners, and since when.
    fault: str | None = None
    unfit_since: float = 0.0


class Watch:
    """Changes on their way to one watcher: sometimes late, never out of order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[Pod | None] = asyncio.Queue()
        self._until = 0.0

    def put(self, pod: Pod | None, *, delay: float = 0.0) -> None:
        """`None` breaks the watch."""
        now = self._loop.time()
        self._until = max(self._until + 1e-6, now + delay) if delay or self._until > now else now
        if self._until <= now:
            self._queue.put_nowait(pod)
        else:
            self._loop.call_at(self._until, self._queue.put_nowait, pod)

    async def get(self) -> Pod | None:
        return await self._queue.get()


class SimFleet:
    def __init__(
        self,
        *,
        clock: VirtualClock,
        rng: random.Random,
        faults: Faults,
        trace: Trace,
        nodes: int = 4,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._faults = faults
        self._trace = trace
        #: The runner's version in new Pods.
        self.version = VERSION
        self.nodes = {f"node-{number}": Node(f"node-{number}") for number in range(nodes)}
        #: Every Pod that ever existed, in order of creation.
        self.pods: list[SimPod] = []
        self._there: dict[str, SimPod] = {}
        self._last: dict[str, SimPod] = {}
        self._tokens: dict[str, SimPod] = {}
        self._watches: list[Watch] = []
        self._snapshot: tuple[Pod, ...] = ()
        self._snapshot_at = 0.0
        #: When requests for a log failed: by Pod, or by node if the node is the cause.
        self.log_failures: dict[str | None, list[float]] = {}
        self.speech_of: Callable[[str], Speech] = of_pod
        #: Starts the simulated life of a new Pod.
        self.on_created: Callable[[SimPod], None] = lambda _pod: None
        #: Called before a deletion, or a stamp, takes effect.
        self.on_delete: Callable[[SimPod, str], None] = lambda _pod, _by: None
        self.on_stamp: Callable[[SimPod], None] = lambda _pod: None
        self.on_place: Callable[[SimPod, Node], None] = lambda _pod, _node: None

    # The API, as `FleetGate` calls it.

    def create(self, order: PodOrder) -> Pod:
        found = self._there.get(order.name)
        if found is None:
            shape: Shape = msgspec.json.decode(order.spec).get("shape", "gated")
            found = SimPod(
                name=order.name,
                uid=f"uid-{len(self.pods) + 1}",
                pool=order.pool,
                shape=shape,
                token=f"token-{len(self.pods) + 1}",
                created_at=self._clock.now(),
                cost=order.cost,
                avoid=order.avoid,
                exclude=order.exclude,
                version=self.version,
                speech=self.speech_of(order.name),
            )
            is_outdated = shape == "gated" and self._faults.strike(Fault.OUTDATED)
            # The others go on asking when their version is refused.
            if is_outdated and found.speech is ACTIONS:
                found.version = DEPRECATED
            self.pods.append(found)
            self._there[order.name] = self._last[order.name] = found
            self._tokens[found.token] = found
            self.tell(found, "created")
            self.on_created(found)
        return found.view()

    def list_pods(self) -> PodList:
        self._refresh_snapshot()
        now = tuple(pod.view() for pod in self._there.values())
        match self._faults.first(Fault.LIST_EMPTY, Fault.LIST_PARTIAL, Fault.LIST_STALE):
            case Fault.LIST_EMPTY:
                return PodList(pods=(), complete=True)
            case Fault.LIST_PARTIAL:
                kept = tuple(pod for pod in now if self._rng.random() < 0.6)
                return PodList(pods=kept, complete=False)
            case Fault.LIST_STALE:
                return PodList(pods=self._snapshot, complete=True)
            case _:
                return PodList(pods=now, complete=True)

    def hosts(self) -> list[Host]:
        return [
            Host(name=node.name, cordoned=node.cordoned, fault=node.fault)
            for node in self.nodes.values()
            if not node.lost
        ]

    def delete_live_pod(self, name: PodName, *, uid: str, by: str) -> SimPod | None:
        pod = self._there.get(name)
        if pod is None or pod.uid != uid:
            return None
        self.on_delete(pod, by)
        if pod.deletion_requested_at is None and not pod.ended:
            pod.deleted_by = by
        self.send_away(pod, f"is asked to go by {by}")
        return pod

    def note_wish(self, pod: SimPod) -> None:
        """Requests its deletion; the request may be lost."""
        pod.wanted_gone_at = pod.wanted_gone_at or self._clock.now()

    def reap(self, name: PodName, *, uid: str, by: str) -> None:
        pod = self.delete_live_pod(name, uid=uid, by=by)
        if pod is not None and pod.ended:
            pod.reaped = True
            self.remove(pod, f"reaped by {by}")

    def stamp(self, name: PodName, *, uid: str, owner: str) -> None:
        pod = self._there.get(name)
        if pod is not None and pod.uid == uid:
            self.on_stamp(pod)
            pod.owner = owner
            self.tell(pod, f"stamped {owner}")

    def log_tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        pod = self._there.get(name)
        if pod is None or pod.uid != uid:
            return None
        if pod.silent or pod.log_away_until > self._clock.monotonic() or self._is_lost(pod):
            raise FleetUnavailable(f"The simulated node of {name} does not answer.")
        if not pod.started:
            return None
        # The whole log exists when a container is shown to have ended.
        until = self._clock.monotonic() - (0.0 if pod.ended else pod.log_lag)
        said = [text for at, text in pod.log if at <= until]
        return "\n".join(said[-lines:])[-most_bytes:]

    def _is_lost(self, pod: SimPod) -> bool:
        return pod.node is not None and pod.node not in self.nodes

    def note_unread_log(self, name: PodName) -> None:
        """A request for its log failed, for any reason."""
        pod = self._there.get(name)
        if pod is None:
            return
        now = self._clock.monotonic()
        its_own = pod.log_away_until > now and not self._is_lost(pod)
        self.log_failures.setdefault(pod.uid if its_own else pod.node, []).append(now)

    def review(self, token: str) -> PodIdentity | None:
        pod = self._tokens.get(token)
        if pod is None or pod.removed:
            return None
        return PodIdentity(
            pod_name=pod.name, pod_uid=pod.uid, expires_at=self._clock.now() + _TOKEN_FOR
        )

    def open_watch(self) -> Watch:
        watch = Watch(asyncio.get_running_loop())
        for pod in self._there.values():
            watch.put(pod.view())
        self._watches.append(watch)
        return watch

    def close_watch(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    # Changes from outside paddock.

    def send_away(self, pod: SimPod, what: str) -> None:
        if pod.deletion_requested_at is None:
            pod.deletion_requested_at = self._clock.now()
            self.tell(pod, what)
            pod.told.set()

    def remove(self, pod: SimPod, why: str) -> None:
        """Removes the object."""
        if not pod.removed:
            pod.removed = True
            pod.removed_at = self._clock.monotonic()
            del self._there[pod.name]
            self._tokens.pop(pod.token, None)
            self._trace.note(pod.name, f"is gone: {why}")
            self._show(replace(pod.view(), phase=Phase.UNKNOWN, reason="deleted"))

    def place(self, pod: SimPod) -> str | None:
        """Plays the scheduler. It knows a host's fault only from the Pods' avoidance of that node."""
        free = [
            node.name
            for node in self.nodes.values()
            if not (node.cordoned or node.lost) and node.name not in pod.exclude
        ]
        liked = [name for name in free if name not in pod.avoid] or free
        chosen = self._rng.choice(liked) if liked else None
        if chosen is not None:
            self.on_place(pod, self.nodes[chosen])
        return chosen

    def call_unfit(self, node: Node, why: str) -> None:
        if node.fault is None:
            node.fault, node.unfit_since = why, self._clock.monotonic()
            self._trace.note(node.name, f"says that it is not fit for runners: {why}")

    def named(self, name: str) -> SimPod | None:
        return self._there.get(name)

    def last(self, name: str) -> SimPod | None:
        """The youngest Pod of that name, also if it is removed."""
        return self._last.get(name)

    def pods_of(self, pool: str) -> list[SimPod]:
        return [pod for pod in self._there.values() if pod.pool == pool]

    def there(self) -> list[SimPod]:
        return list(self._there.values())

    def finish(
        self,
        pod: SimPod,
        fate: str,
        endings: set[Ending],
        *,
        code: int,
        reason: str = "Error",
        pod_reason: str | None = None,
        container: Literal["runner", "poller", "none"] = "runner",
    ) -> None:
        """Its processes have ended, and the kubelet reports it."""
        if pod.ended or pod.removed:
            return
        if not pod.fate:
            pod.code = code
        self.fated(pod, fate, endings)
        pod.strange = False
        over = ContainerState(
            terminated=Terminated(
                exit_code=code,
                reason="Completed" if code == 0 and reason == "Error" else reason,
                finished_at=self._clock.now(),
            )
        )
        if container == "runner":
            pod.runner = over
        elif container == "poller":
            pod.poller = over
        if pod.lingers:
            pod.trouble_at = self._clock.monotonic()
            self.tell(pod, f"its runner ended: {fate}, code {code} {reason}; the Pod stays")
            return
        pod.phase = Phase.SUCCEEDED if code == 0 and container == "runner" else Phase.FAILED
        pod.reason = pod_reason
        pod.over_at = self._clock.monotonic()
        if self._faults.strike(Fault.LOG_AWAY):
            pod.log_away_until = pod.over_at + self._faults.between(5.0, 150.0)
        self.tell(pod, f"ended: {fate}, code {code} {reason} {pod_reason or ''}".rstrip())

    def fated(self, pod: SimPod, fate: str, endings: set[Ending]) -> None:
        """How it really ended; the first end counts."""
        pod.process = False
        if not pod.fate:
            pod.fate, pod.ended_at = fate, self._clock.monotonic()
            pod.endings |= endings
            pod.sent_away = pod.deletion_requested_at is not None
            self._trace.count(f"fate {fate}")

    def tell(self, pod: SimPod, what: str) -> None:
        self._trace.note(pod.name, what)
        if not pod.silent and not pod.removed:
            self._show(pod.view())

    def look_strange(self, pod: SimPod, *, seconds: float) -> None:
        """Makes the kubelet's report of it unintelligible for this long."""

        def make_sense() -> None:
            pod.strange = False
            if pod.alive:
                self.tell(pod, "is shown as it is again")

        pod.strange = True
        asyncio.get_running_loop().call_later(seconds, make_sense)

    def say(self, pod: SimPod, text: str) -> None:
        pod.log.append((self._clock.monotonic(), text))

    def trouble(self, pod: SimPod, what: str) -> None:
        if pod.trouble_at is None:
            pod.trouble_at = self._clock.monotonic()
        self._trace.note(pod.name, what)

    def break_watches(self) -> None:
        for watch in self._watches:
            watch.put(None)

    def _show(self, pod: Pod) -> None:
        for watch in self._watches:
            late = self._faults.strike(Fault.WATCH_LATE)
            watch.put(pod, delay=self._faults.between(0.5, 20.0) if late else 0.0)

    def _refresh_snapshot(self) -> None:
        if self._clock.monotonic() - self._snapshot_at > _SNAPSHOT_EVERY:
            self._snapshot_at = self._clock.monotonic()
            self._snapshot = tuple(pod.view() for pod in self._there.values())
