"""The log tail of a runner's container: read now, or when the container's end was announced.

A kubelet removes the containers of a deleted or evicted Pod, and their logs, as soon as they have
stopped. When paddock sees that the Pod has ended, nothing is left to read, and people ask about these
ends most. So the log is read when the end is announced, by a deletion's time stamp or by the kubelet's
own event, while the container is still stopping. It is kept until the runner is concluded (S4).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import RUNNER_CONTAINER
from paddock.domain.pods.pod import Pod
from paddock.fleet.kube.api import KubeApi, KubeCall, RequestRefused, Resource, Unreached
from paddock.fleet.kube.logs import LogState, beginning_is_gone, is_lost, last_lines
from paddock.ports import FleetUnavailable

_log = structlog.get_logger()

#: Lines have no maximum length: at most this much is read to find the end of a log.
_LOG_READ: Final = 32 * 1024 * 1024
#: The most that is kept of an end: as much as `paddock.forensics.post_mortem` reads.
_LINES: Final = 200
_BYTES: Final = 80 * 1024
#: Pods whose log tails are kept: 20 MB at most. An end is concluded within seconds of its announcement.
_KEPT: Final = 256
#: Logs read at the same time. A drained node announces the ends of all its Pods at once, and requests
#: share few connections.
_AT_ONCE: Final = 6

Tail = Callable[[PodName, str], Awaitable[str | None]]


class DeathLogs:
    def __init__(self, api: KubeApi, pods: Resource) -> None:
        self._api = api
        self._pods = pods

    async def tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        """A kubelet that has just started answers 404. A kubelet without its container runtime answers
        that there is no log. Neither is final, unless the containers were removed (I79)."""
        call = KubeCall("get", self._pods, name)
        try:
            found = await self._api.get(call, LogState)
        except RequestRefused as error:
            if error.absent:
                return None
            raise
        if found.uid != uid or not found.has_log:
            return None
        try:
            text, whole = await self._read(name, lines=lines, most_bytes=most_bytes)
        except RequestRefused as error:
            if error.code in (400, 404) and found.is_cleared_away:
                return None
            raise
        if is_lost(text):
            if found.is_cleared_away:
                return None
            raise Unreached(f"The node of the Pod {name} does not find its log: {_line(text)}")
        return last_lines(
            text,
            lines=lines,
            most_bytes=most_bytes,
            cut=whole and beginning_is_gone(text, found.started_at),
        )

    async def last(self, name: PodName, uid: str) -> str | None:
        return await self.tail(name, uid=uid, lines=_LINES, most_bytes=_BYTES)

    async def _read(self, name: PodName, *, lines: int, most_bytes: int) -> tuple[bytes, bool]:
        """The end of the log, with the kubelet's timestamps, and whether this is the whole log."""
        params = {
            "container": RUNNER_CONTAINER,
            "tailLines": str(lines),
            "timestamps": "true",
            # A limit cuts off the end, which is the part we want. It is here only to keep a job from
            # filling our memory.
            "limitBytes": str(_LOG_READ),
        }
        kept: deque[bytes] = deque()
        size = dropped = 0
        async with self._api.stream(KubeCall("get", self._pods, name, "log"), params) as received:
            async for some in received:
                kept.append(some)
                size += len(some)
                # Timestamps take 31 characters per line and are removed later.
                while size - len(kept[0]) >= 2 * most_bytes + 32 * lines:
                    size -= len(kept[0])
                    dropped += len(kept.popleft())
        text = b"".join(kept)
        return text, not dropped and text.count(b"\n") < lines


def _line(text: bytes) -> str:
    return text[:200].decode(errors="replace").strip()


class DeathLogBuffer:
    """Log tails by Pod UID, for Pods whose end was announced."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._heard: OrderedDict[str, asyncio.Task[str | None]] = OrderedDict()

    def listen(self, name: PodName, uid: str) -> None:
        """The Pod's end was announced: read its log. A log that was read is kept; a failed read is
        repeated at the next announcement."""
        before = self._heard.get(uid)
        if before is not None and not (before.done() and _has_no_log(before)):
            return
        self._heard[uid] = asyncio.create_task(self._listen(name, uid))
        self._heard.move_to_end(uid)
        while len(self._heard) > _KEPT:
            _, oldest = self._heard.popitem(last=False)
            oldest.cancel()

    async def of(self, uid: str) -> str | None:
        """The Pod's log tail, if any; waits for a read that is under way."""
        task = self._heard.get(uid)
        # A cancelled caller must not stop the read.
        return await asyncio.shield(task) if task is not None else None

    async def aclose(self) -> None:
        tasks = list(self._heard.values())
        self._heard.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, name: PodName, uid: str) -> str | None:
        async with self._places:
            try:
                return await self._tail(name, uid)
            except FleetUnavailable as error:
                _log.info("log.read_ahead_failed", pod=name, error=str(error))
                return None


def _has_no_log(heard: asyncio.Task[str | None]) -> bool:
    return heard.cancelled() or heard.exception() is not None or heard.result() is None


def end_is_announced(pod: Pod) -> bool:
    """Whether deletion was requested while the runner ran. A runner that never started has no log. The
    log of an ended one was read before, or can still be read."""
    if pod.deletion_requested_at is None or pod.phase.terminal:
        return False
    return any(
        each.name == RUNNER_CONTAINER and each.state.running is not None for each in pod.containers
    )
