"""A fleet in memory, honest about what a fleet is: Pods change only through time and the test's hand,
deletion is a request, an ended Pod stays to be seen until it is reaped, and any call can fail.

    fleet = MemoryFleet(clock)
    fleet.start_polling(name)            a healthy idle Pod, still `Pending` (I55)
    fleet.end_poller(name)               it holds its JIT; the runner's container starts
    fleet.end_runner(name, exit_code=137, reason="OOMKilled")
    fleet.vanish(name)                   deleted by force: its end is never shown
    fleet.fail("reap", times=2)          the next two of these raise FleetUnavailable
    fleet.lose_reply("create")           the next create happens, and is not answered
    with fleet.stalled("create"): ...    creates wait
    fleet.cordon("host-1")
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Literal

from paddock.domain.limits import Resources
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import (
    RUNNER_CONTAINER,
    ContainerState,
    ContainerStatus,
    Running,
    Terminated,
    Waiting,
)
from paddock.domain.pods.pod import Host, Phase, Pod, PodList, PodOrder
from paddock.ports import Clock, Fleet, FleetUnavailable

POLLER = "poller"
Call = Literal["create", "list", "hosts", "delete_live_pod", "reap", "stamp", "log_tail"]
Shape = Literal["gated", "single"]


class MemoryFleet:
    def __init__(
        self, clock: Clock, *, hosts: Sequence[str] = ("host-1",), shape: Shape = "gated"
    ) -> None:
        self._clock = clock
        self._shape = shape
        self.pods: dict[str, Pod] = {}
        self._hosts = {name: Host(name=name) for name in hosts}
        self._places = itertools.cycle(sorted(hosts))
        self._uids = itertools.count(1)
        #: Every order, and every request to go or to reap as (name, uid), in order; also those that
        #: failed.
        self.orders: list[PodOrder] = []
        self.deletions: list[tuple[str, str]] = []
        self.calls: Counter[Call] = Counter()
        self.logs: dict[str, str] = {}
        #: What `list` shows: all there is, only a part and says so, or nothing and claims it is all.
        self.view: Literal["whole", "partial", "empty"] = "whole"
        #: Whether a Pod that is asked to go ends at once; otherwise the test ends it.
        self.obedient = True
        self._failures: dict[tuple[Call, str | None], int] = {}
        self._lost_replies: Counter[Call] = Counter()
        self._gates: dict[Call, asyncio.Event] = {}
        self._changes: list[asyncio.Queue[Pod]] = []

    # The port.

    async def create(self, order: PodOrder) -> Pod:
        self.orders.append(order)
        await self._called("create", order.name)
        if order.name not in self.pods:
            self._put(
                Pod(
                    name=order.name,
                    uid=f"uid-{next(self._uids)}",
                    pool=order.pool,
                    phase=Phase.PENDING,
                    node=self._place(order.avoid),
                    created_at=self._clock.now(),
                    poller=ContainerStatus(POLLER, ContainerState(waiting=Waiting())),
                    containers=(
                        ContainerStatus(RUNNER_CONTAINER, ContainerState(waiting=Waiting())),
                    ),
                )
            )
        self._answer("create")
        return self.pods[order.name]

    async def list(self) -> PodList:
        await self._called("list")
        match self.view:
            case "whole":
                return PodList(pods=tuple(self.pods.values()), complete=True)
            case "partial":
                return PodList(pods=tuple(self.pods.values())[::2], complete=False)
            case "empty":
                return PodList(pods=(), complete=True)

    async def hosts(self) -> Sequence[Host]:
        await self._called("hosts")
        return list(self._hosts.values())

    async def watch(self) -> AsyncIterator[Pod]:
        changes: asyncio.Queue[Pod] = asyncio.Queue()
        for pod in self.pods.values():
            changes.put_nowait(pod)
        self._changes.append(changes)
        try:
            while True:
                yield await changes.get()
        finally:
            self._changes.remove(changes)

    async def delete_live_pod(self, name: PodName, *, uid: str) -> None:
        self.deletions.append((name, uid))
        await self._called("delete_live_pod", name)
        pod = self.pods.get(name)
        if pod is not None and pod.uid == uid:
            asked_at = pod.deletion_requested_at or self._clock.now()
            self._put(replace(pod, deletion_requested_at=asked_at))
            if self.obedient and not pod.phase.terminal:
                self._end(name, exit_code=143, reason="Error")
        self._answer("delete_live_pod")

    async def reap(self, name: PodName, *, uid: str) -> None:
        self.deletions.append((name, uid))
        await self._called("reap", name)
        pod = self.pods.get(name)
        if pod is not None and pod.uid == uid and pod.phase.terminal:
            self.vanish(name)
        self._answer("reap")

    async def stamp(self, name: PodName, *, uid: str, owner: str) -> None:
        await self._called("stamp", name)
        pod = self.pods.get(name)
        if pod is not None and pod.uid == uid:
            self._put(replace(pod, owner=owner))
        self._answer("stamp")

    async def log_tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        await self._called("log_tail", name)
        pod, log = self.pods.get(name), self.logs.get(name)
        if pod is None or pod.uid != uid or log is None:
            return None
        tail = "".join(log.splitlines(keepends=True)[-lines:])
        return tail.encode()[-most_bytes:].decode(errors="replace")

    # The test's hand.

    def only(self) -> Pod:
        [pod] = self.pods.values()
        return pod

    def start_polling(self, name: str) -> Pod:
        """Its poller runs. In the single shape that is the runner's container itself."""
        running = ContainerState(running=Running(self._clock.now()))
        pod = self.pods[name]
        if self._shape == "single":
            runner = ContainerStatus(RUNNER_CONTAINER, running, started=True)
            return self._put(replace(pod, phase=Phase.RUNNING, poller=runner, containers=(runner,)))
        return self._put(replace(pod, poller=ContainerStatus(POLLER, running, started=True)))

    def end_poller(self, name: str, *, exit_code: int = 0) -> Pod:
        """The gated shape: the poller ended, and with 0 the runner's container starts."""
        now, pod = self._clock.now(), self.pods[name]
        ended = ContainerState(terminated=Terminated(exit_code, finished_at=now))
        pod = self._put(replace(pod, poller=ContainerStatus(POLLER, ended)))
        if exit_code:
            return self._put(replace(pod, phase=Phase.FAILED))
        runner = ContainerStatus(
            RUNNER_CONTAINER, ContainerState(running=Running(now)), started=True
        )
        return self._put(replace(pod, phase=Phase.RUNNING, containers=(runner,)))

    def keep_waiting(self, name: str, reason: str) -> Pod:
        """The poller's container does not start: `ImagePullBackOff`, `CreateContainerError`."""
        waiting = ContainerState(waiting=Waiting(reason))
        return self._put(replace(self.pods[name], poller=ContainerStatus(POLLER, waiting)))

    def keep_runner_waiting(self, name: str, reason: str) -> Pod:
        """The poller ended, and the runner's container does not start."""
        self.end_poller(name)
        runner = ContainerStatus(RUNNER_CONTAINER, ContainerState(waiting=Waiting(reason)))
        return self._put(replace(self.pods[name], phase=Phase.PENDING, containers=(runner,)))

    def keep_unscheduled(self, name: str, why: str) -> Pod:
        return self._put(replace(self.pods[name], node=None, unschedulable=why))

    def end_runner(
        self, name: str, *, exit_code: int = 0, reason: str = "", pod_reason: str | None = None
    ) -> Pod:
        return self._end(name, exit_code=exit_code, reason=reason, pod_reason=pod_reason)

    def note_deletion(self, name: str, *, at: datetime) -> Pod:
        """Another asked for it, then."""
        return self._put(replace(self.pods[name], deletion_requested_at=at))

    def vanish(self, name: str) -> None:
        pod = self.pods.pop(name)
        self._tell(replace(pod, phase=Phase.UNKNOWN, reason="deleted"))

    def lose_host(self, name: str) -> None:
        """The host and every Pod on it are gone without a trace."""
        del self._hosts[name]
        self._places = itertools.cycle(sorted(self._hosts))
        for pod in [each for each in self.pods.values() if each.node == name]:
            self.vanish(pod.name)

    def cordon(self, name: str) -> None:
        self.set_host(replace(self._hosts[name], cordoned=True))

    def set_host(self, host: Host) -> None:
        """Change a host, or add one."""
        self._hosts[host.name] = host
        self._places = itertools.cycle(sorted(self._hosts))

    def set_capacity(self, name: str, capacity: Resources) -> None:
        self.set_host(replace(self._hosts[name], capacity=capacity))

    def fail(self, call: Call, *, times: int = 1_000_000, pod: str | None = None) -> None:
        """This call fails so often, for all Pods or for one; 0 times is healed."""
        self._failures[call, pod] = times

    def lose_reply(self, call: Call, *, times: int = 1) -> None:
        self._lost_replies[call] += times

    @contextmanager
    def stalled(self, call: Call) -> Iterator[None]:
        gate = self._gates[call] = asyncio.Event()
        try:
            yield
        finally:
            del self._gates[call]
            gate.set()

    def _place(self, avoid: Sequence[str]) -> str | None:
        """Softly: a host to avoid is taken if there is no other (I51)."""
        hosts = [next(self._places) for _ in self._hosts]
        free = [name for name in hosts if not self._hosts[name].leaving]
        liked = [name for name in free if name not in avoid]
        return next(iter([*liked, *free]), None)

    def _end(
        self, name: str, *, exit_code: int, reason: str = "", pod_reason: str | None = None
    ) -> Pod:
        now, pod = self._clock.now(), self.pods[name]
        ended = ContainerState(terminated=Terminated(exit_code, reason=reason, finished_at=now))
        started = any(each.started for each in pod.containers)
        poller = pod.poller
        if poller is not None and poller.state.terminated is None:
            poller = ContainerStatus(poller.name, ended)
        return self._put(
            replace(
                pod,
                phase=Phase.FAILED if exit_code else Phase.SUCCEEDED,
                reason=pod_reason,
                poller=poller,
                # What never started has not ended.
                containers=(ContainerStatus(RUNNER_CONTAINER, ended),)
                if started
                else pod.containers,
            )
        )

    def _put(self, pod: Pod) -> Pod:
        self.pods[pod.name] = pod
        self._tell(pod)
        return pod

    def _tell(self, pod: Pod) -> None:
        for changes in self._changes:
            changes.put_nowait(pod)

    async def _called(self, call: Call, pod: str | None = None) -> None:
        self.calls[call] += 1
        if gate := self._gates.get(call):
            await gate.wait()
        for which in ((call, pod), (call, None)):
            if self._failures.get(which, 0) > 0:
                self._failures[which] -= 1
                raise FleetUnavailable(f"The fleet could not {call} {pod or ''}: the test says so.")

    def _answer(self, call: Call) -> None:
        if self._lost_replies[call]:
            self._lost_replies[call] -= 1
            raise FleetUnavailable(f"The fleet did not answer to {call}: the test says so.")


def _implements_the_port(fleet: MemoryFleet) -> Fleet:
    """Checked by mypy, where the two would part."""
    return fleet
