"""Ends of Pods that a kubelet announces in an event: evictions and preemptions.

A deleted Pod shows its deletion time at once. A Pod that its kubelet evicts or preempts shows nothing
until it has ended, but the kubelet writes an event before it acts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
import structlog

from paddock.domain.names import PodName
from paddock.fleet.kube.api import KubeApi, KubeCall, RequestRefused, Resource, Status, Unreached
from paddock.fleet.kube.objects import WatchEvent
from paddock.fleet.kube.watch_state import Lines
from paddock.ports import Clock

_log = structlog.get_logger()

#: The reasons of these events.
_REASONS: Final = frozenset({"Evicted", "Preempting"})
#: Both are warnings. A Pod has a dozen events of type Normal, which are not needed.
_SELECTED: Final = "type=Warning,involvedObject.kind=Pod"
_WATCH_SECONDS: Final = 600
#: The API server sends no bookmarks to a watch of events, and no selected event may occur.
_SILENCE: Final = _WATCH_SECONDS + 30.0
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0
_LONGEST_WHEN_DENIED: Final = 300.0
#: After this many denials in a row the denial is not a passing one.
_SURELY: Final = 5


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Involved(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Metadata = _Metadata()
    involved_object: _Involved = _Involved()
    reason: str = ""


_CHANGES: Final = msgspec.json.Decoder(WatchEvent[_Event])
_ERROR: Final = msgspec.json.Decoder(WatchEvent[Status])


class _BrokeOff(Exception):
    """The API server ended the watch; the argument is its message."""


class AnnouncedEnds:
    def __init__(
        self, api: KubeApi, events: Resource, *, clock: Clock, tell: Callable[[PodName, str], None]
    ) -> None:
        """`tell` gets the name and UID of each Pod whose end is announced, possibly more than once."""
        self._api = api
        self._events = events
        self._clock = clock
        self._tell = tell
        #: The version to resume from. Empty: the watch begins with all existing events.
        self._version = ""

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                async for pod, uid in self._announced():
                    failures = 0
                    self._tell(pod, uid)
                await self._clock.sleep(_FIRST_PAUSE)
            except (_BrokeOff, RequestRefused, Unreached) as error:
                failures += 1
                await self._wait(error, failures)

    async def _wait(self, error: Exception, failures: int) -> None:
        """Pause. The next watch begins with all existing events."""
        self._version = ""
        # An API server that has just started denies everything for a moment. A role of an older paddock
        # denies this until the operator applies the new role.
        denied = isinstance(error, RequestRefused) and error.denied
        say = _log.warning if denied and failures == _SURELY else _log.info
        say("the watch of events broke off", error=str(error), failures=failures)
        longest = _LONGEST_WHEN_DENIED if denied else _LONGEST_PAUSE
        await self._clock.sleep(min(longest, _FIRST_PAUSE * 2 ** min(failures, 12)))

    async def _announced(self) -> AsyncIterator[tuple[PodName, str]]:
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
            "fieldSelector": _SELECTED,
        }
        if self._version:
            params["resourceVersion"] = self._version
        lines = Lines()
        call = KubeCall("watch", self._events)
        async with self._api.stream(call, params, silence=_SILENCE) as received:
            async for some in received:
                for line in lines.feed(some):
                    event = self._event(line)
                    if event is not None and event.reason in _REASONS:
                        yield PodName(event.involved_object.name), event.involved_object.uid

    def _event(self, line: bytes) -> _Event | None:
        try:
            change = _CHANGES.decode(line)
        except msgspec.MsgspecError as error:
            _log.warning("kubernetes.event_unreadable", error=str(error))
            return None
        if change.type == "ERROR":
            status = _ERROR.decode(line).object
            raise _BrokeOff(status.message or status.reason or "no reason given")
        self._version = change.object.metadata.resource_version or self._version
        return change.object if change.type in ("ADDED", "MODIFIED") else None
