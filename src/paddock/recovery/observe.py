"""What the fleet shows: a watch reports changes, and complete reads report the state.

A component that asked the fleet by itself would sooner or later conclude too much from an answer. Here
a read that failed, was cut short or came back empty proves nothing (I29): it adds Pods to the view and
removes none. Only a read that may prove absence is noted in the store, where absence is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog
from prometheus_client import Counter, Gauge

from paddock.domain.names import PodName
from paddock.domain.pods.pod import Phase, Pod, PodList
from paddock.domain.recovery.evidence import pod_seen
from paddock.ports import Clock, Fleet, FleetUnavailable
from paddock.ports.errors import StoreError
from paddock.ports.recovery import PodViewStore

_log = structlog.get_logger()

#: Between complete reads. The watch tells of changes at once; this is for what the watch missed, and
#: three of them prove an absence within half a minute.
EVERY: Final = 10.0
#: Only one of this many reads is made while recovery expects no change: every runner waits for work,
#: and is heard. If the watch has died unnoticed, a Pod that ends falls silent, and all reads are made
#: again.
RESTING: Final = 12
#: A fleet that had Pods and shows none has lost its index more often than its Pods: the third such
#: answer in a row is the first that counts.
EMPTY_READS: Final = 3
#: After a watch that ended.
_BREATH: Final = 1.0
_DELETED: Final = "deleted"

READS = Counter(
    "paddock_fleet_reads_total", "Complete reads of the fleet, by outcome.", ["outcome"]
)
#: A time and not an age: the last value of a replica that no longer leads stays true.
READ_AT = Gauge(
    "paddock_fleet_read_timestamp_seconds",
    "When this replica last saw all Pods. One that does not lead says 0, or an old time: take the max.",
)


@dataclass(slots=True)
class _Seen:
    pod: Pod
    looks: tuple[object, ...]
    #: When it first looked as it does now, by the monotonic clock.
    since: float
    #: Counts all changes: tells what is newer than a read that began before it.
    change: int


class PodView:
    """All Pods as last seen. One for each leader; its loops look at the same thing."""

    def __init__(self, *, store: PodViewStore, fleet: Fleet, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._seen: dict[PodName, _Seen] = {}
        self._deleted: dict[PodName, int] = {}
        self._changes = 0
        self._complete = False
        self._empty = 0
        self._read_at: datetime | None = None
        self._readable_since: datetime | None = None
        self._listeners: list[asyncio.Event] = []
        #: Pods that changed since `take_changed` was called, in the order of their changes.
        self._changed: dict[PodName, None] = {}
        #: Pods that reported a version since the last write of versions.
        self._versioned: dict[PodName, Pod] = {}
        self._has_versions = asyncio.Event()
        self._reading = asyncio.Lock()
        self._resting = False

    async def run(self) -> None:
        # Another replica may have led meanwhile: what was seen before is out of date.
        self._seen.clear()
        self._deleted.clear()
        self._changed.clear()
        self._complete, self._read_at, self._empty = False, None, 0
        self._readable_since = None
        self._resting = False
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._read_for_ever())
            group.create_task(self._note_versions())

    def snapshot(self) -> PodList:
        """`complete` only if the last read was, and may prove absence."""
        pods = tuple(seen.pod for seen in self._seen.values())
        return PodList(pods=pods, complete=self._complete)

    @property
    def read_at(self) -> datetime | None:
        """When the last complete read began."""
        return self._read_at

    @property
    def readable_since(self) -> datetime | None:
        """Since when every read was answered; `None` if the last one was not, or there was none."""
        return self._readable_since

    def unchanged(self, pod: Pod) -> float:
        """For how many seconds it has looked as it does."""
        seen = self._seen.get(pod.name)
        if seen is None or seen.pod.uid != pod.uid:
            return 0.0
        return self._clock.monotonic() - seen.since

    def has_ended(self, pod: Pod) -> bool:
        """Whether it has ended, or is gone, by now."""
        seen = self._seen.get(pod.name)
        return seen is None or seen.pod.uid != pod.uid or seen.pod.phase.terminal

    def rest(self, resting: bool) -> None:
        """Note whether no change is expected of the fleet: then complete reads may be rare."""
        self._resting = resting

    def changes(self) -> asyncio.Event:
        """Set whenever a Pod changes, until its owner clears it."""
        event = asyncio.Event()
        self._listeners.append(event)
        return event

    def take_changed(self) -> list[Pod]:
        """The Pods that changed since the last call, as they are now; for one caller. A Pod that is
        gone is not among them."""
        changed, self._changed = self._changed, {}
        return [self._seen[name].pod for name in changed if name in self._seen]

    def show_again(self, pods: Sequence[Pod]) -> None:
        """Let `take_changed` return these once more: what it was called for was not done."""
        for pod in pods:
            if pod.name in self._seen:
                self._changed[pod.name] = None
                self._tell()

    async def refresh(self) -> bool:
        """Read everything now; whether that was a read that may prove absence."""
        async with self._reading:
            began, change = self._clock.now(), self._changes
            try:
                found = await self._fleet.list()
            except FleetUnavailable as error:
                READS.labels("failed").inc()
                self._complete, self._readable_since = False, None
                _log.warning("fleet.list_failed", error=str(error))
                return False
            self._readable_since = self._readable_since or began
            trusted = found.complete and not await self._suspicious(found)
            self._take(found.pods, change=change, whole=trusted)
            self._complete = trusted
            READS.labels("complete" if trusted else "in part").inc()
            if trusted:
                self._read_at = began
                READ_AT.set(began.timestamp())
                await self._store.note_pods(found.pods, read_at=began)
            return trusted

    async def _suspicious(self, found: PodList) -> bool:
        """Whether a read shows no Pods although some are expected: such an answer has to repeat."""
        if found.pods or not await self._store.expected_pods():
            self._empty = 0
            return False
        self._empty += 1
        return self._empty < EMPTY_READS

    def _take(self, pods: tuple[Pod, ...], *, change: int, whole: bool) -> None:
        """Take over what a read shows, except where the watch has reported a change since the read
        began."""
        listed = {pod.name for pod in pods}
        for pod in pods:
            seen = self._seen.get(pod.name)
            newer = seen.change if seen else self._deleted.get(pod.name, -1)
            if newer <= change:
                self._put(pod)
        if whole:
            for name, seen in list(self._seen.items()):
                if name not in listed and seen.change <= change:
                    self._drop(name)
            # Anything deleted before this read began is not in any later one.
            self._deleted = {name: at for name, at in self._deleted.items() if at > change}

    async def _read_for_ever(self) -> None:
        while True:
            try:
                await self.refresh()
            except StoreError as error:
                _log.warning("fleet.unwritable", error=error.message)
            for _ in range(RESTING):
                await self._clock.sleep(EVERY)
                if not self._resting:
                    break

    async def _note_versions(self) -> None:
        """Write versions as soon as the watch shows them: a Pod may be given a JIT before the next
        complete read, which notes what fails here."""
        while True:
            await self._has_versions.wait()
            self._has_versions.clear()
            pods, self._versioned = [*self._versioned.values()], {}
            try:
                await self._store.note_versions(pods)
            except StoreError as error:
                _log.warning("fleet.unwritable", error=error.message)

    async def _watch(self) -> None:
        while True:
            try:
                async for pod in self._fleet.watch():
                    if pod.phase is Phase.UNKNOWN and pod.reason == _DELETED:
                        seen = self._seen.get(pod.name)
                        if seen is not None and seen.pod.uid == pod.uid:
                            self._drop(pod.name)
                    else:
                        self._put(pod)
            except FleetUnavailable as error:
                _log.warning("fleet.watch_failed", error=str(error))
            await self._clock.sleep(_BREATH)

    def _put(self, pod: Pod) -> None:
        seen = self._seen.get(pod.name)
        self._changes += 1
        if seen is not None and seen.pod == pod:
            seen.change = self._changes
            return
        known = seen.pod if seen is not None and seen.pod.uid == pod.uid else None
        if pod.runner_version is not None and (
            known is None or known.runner_version != pod.runner_version
        ):
            self._versioned[pod.name] = pod
            self._has_versions.set()
        # The scheduler's words change all the time; a Pod that no host takes looks the same.
        looks = pod_seen(pod, now=self._clock.now(), unchanged=0.0).looks
        same = seen is not None and seen.pod.uid == pod.uid and seen.looks == looks
        since = seen.since if seen is not None and same else self._clock.monotonic()
        self._seen[pod.name] = _Seen(pod, looks, since, self._changes)
        self._changed[pod.name] = None
        self._tell()

    def _drop(self, name: PodName) -> None:
        self._changes += 1
        del self._seen[name]
        self._changed.pop(name, None)
        self._deleted[name] = self._changes
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener.set()


def by_name(pods: PodList) -> Mapping[PodName, Pod]:
    return {pod.name: pod for pod in pods.pods}
