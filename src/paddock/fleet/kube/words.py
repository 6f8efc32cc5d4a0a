"""What a runner's container says: the end of its log now, or as it was when its end was announced.

A kubelet removes the containers of a Pod that is deleted or evicted as soon as they have stopped, and
their logs with them. When the Pod is seen to have ended there is nothing left to read, and that is the
end people ask about most. So it is read when the end is announced, by a deletion's time stamp or by the
kubelet's own event, while the container still stops; and kept until somebody concludes (S4).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from paddock.domain.fingerprints import RUNNER_CONTAINER
from paddock.domain.names import PodName
from paddock.domain.pods import Pod
from paddock.fleet.kube.api import Call, KubeApi, Refused, Resource, Unreached
from paddock.fleet.kube.logs import LogState, beginning_is_gone, is_lost, last_lines
from paddock.ports import FleetUnavailable

_log = structlog.get_logger()

#: Lines have no longest length: this much is read to find the end of a log.
_LOG_READ: Final = 32 * 1024 * 1024
#: As much as is kept of an end.
_LINES: Final = 200
_BYTES: Final = 64 * 1024
#: Pods whose words are kept: 16 MB at the most. An end is concluded within seconds of its announcement.
_KEPT: Final = 256
#: Logs read side by side. A node that is drained announces all its Pods at once, and requests share
#: few connections.
_AT_ONCE: Final = 6

Tail = Callable[[PodName, str], Awaitable[str | None]]


class Words:
    def __init__(self, api: KubeApi, pods: Resource) -> None:
        self._api = api
        self._pods = pods

    async def tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        """A kubelet that was just started answers 404, and one without its container runtime says that
        it has no log: neither is final, unless the containers were cleared away (I79)."""
        call = Call("get", self._pods, name)
        try:
            found = await self._api.get(call, LogState)
        except Refused as error:
            if error.absent:
                return None
            raise
        if found.uid != uid or not found.has_log:
            return None
        try:
            text, whole = await self._read(name, lines=lines, most_bytes=most_bytes)
        except Refused as error:
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
        """The end of it, with the kubelet's timestamps, and whether there was no more."""
        params = {
            "container": RUNNER_CONTAINER,
            "tailLines": str(lines),
            "timestamps": "true",
            # A limit cuts off the end, which is what is asked for. This one is only for those who
            # would fill our memory.
            "limitBytes": str(_LOG_READ),
        }
        kept: deque[bytes] = deque()
        size = dropped = 0
        async with self._api.stream(Call("get", self._pods, name, "log"), params) as received:
            async for some in received:
                kept.append(some)
                size += len(some)
                # Timestamps are 31 characters a line, and are taken off later.
                while size - len(kept[0]) >= 2 * most_bytes + 32 * lines:
                    size -= len(kept[0])
                    dropped += len(kept.popleft())
        text = b"".join(kept)
        return text, not dropped and text.count(b"\n") < lines


def _line(text: bytes) -> str:
    return text[:200].decode(errors="replace").strip()


class Overheard:
    """Last words by a Pod's UID, of those whose end was announced."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._heard: OrderedDict[str, asyncio.Task[str | None]] = OrderedDict()

    def listen(self, name: PodName, uid: str) -> None:
        """Its end was announced. What was heard once is kept; what was not is listened for again."""
        before = self._heard.get(uid)
        if before is not None and not (before.done() and _is_nothing(before)):
            return
        self._heard[uid] = asyncio.create_task(self._listen(name, uid))
        self._heard.move_to_end(uid)
        while len(self._heard) > _KEPT:
            _, oldest = self._heard.popitem(last=False)
            oldest.cancel()

    async def of(self, uid: str) -> str | None:
        """Waits for what is being listened to."""
        task = self._heard.get(uid)
        # Whoever tires of waiting must not stop it.
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


def _is_nothing(heard: asyncio.Task[str | None]) -> bool:
    return heard.cancelled() or heard.exception() is not None or heard.result() is None


def end_is_announced(pod: Pod) -> bool:
    """Whether it was asked to go while its runner ran. One that never started has nothing to say; one
    that has ended was heard, or can still be read."""
    if pod.deletion_requested_at is None or pod.phase.terminal:
        return False
    return any(
        each.name == RUNNER_CONTAINER and each.state.running is not None for each in pod.containers
    )
