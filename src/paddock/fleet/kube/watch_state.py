"""The state of a watch of Pods: the version to resume from, and the Pods that exist or are gone.

A watch is a list and the changes since. It ends every few minutes and resumes from its version. If the
API server no longer has that version, the watch begins with a new list, and this module finds the Pods
that went in between. It does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import msgspec
import structlog

from paddock.domain.names import PodName
from paddock.domain.pods.pod import Phase, Pod
from paddock.fleet.kube.api import Status
from paddock.fleet.kube.objects import Metadata, PodObject, WatchEvent
from paddock.fleet.kube.pods import is_ours, shown

_log = structlog.get_logger()


class _Versioned(msgspec.Struct, frozen=True):
    metadata: Metadata


class _Kind(msgspec.Struct, frozen=True):
    type: str


_CHANGES: Final = msgspec.json.Decoder(WatchEvent[PodObject])
_KIND: Final = msgspec.json.Decoder(_Kind)
_ERROR: Final = msgspec.json.Decoder(WatchEvent[Status])
_VERSION: Final = msgspec.json.Decoder(WatchEvent[_Versioned])


class Expired(Exception):
    """The API server no longer has the version to resume from."""


class Failed(Exception):
    """The API server ended the watch; the argument is its message."""


class Lines:
    """Splits received bytes into whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [line for line in lines if line]


class WatchState:
    def __init__(self) -> None:
        #: The version to resume from; `None`: begin with a list.
        self.version: str | None = None
        #: Whether a list was ever read.
        self.begun = False
        self._there: dict[PodName, Pod] = {}

    def begin(self, pods: Iterable[Pod], *, whole: bool, version: str) -> Iterator[Pod]:
        """Begin with a list; yields what changed. A known Pod that is not in it is gone if the list is
        whole (I29). After a list without a version the next watch begins with a list again."""
        now = {pod.name: pod for pod in pods}
        self.version = version or None
        self.begun = True
        before, self._there = self._there, now
        for name, pod in before.items():
            successor = now.get(name)
            if successor is None and not whole:
                now[name] = pod
            elif successor is None or successor.uid != pod.uid:
                yield _gone(pod)
        for name, pod in now.items():
            if before.get(name) != pod:
                yield pod

    def line(self, line: bytes) -> Pod | None:
        """The Pod that this line changes, if any. Raises Expired or Failed for a server's error."""
        try:
            change = _CHANGES.decode(line)
        except msgspec.MsgspecError as error:
            self._pass_over(line, error)
            return None
        self.version = change.object.metadata.resource_version or self.version
        if change.type == "BOOKMARK" or not is_ours(change.object):
            return None
        pod = shown(change.object)
        if change.type == "DELETED":
            self._there.pop(pod.name, None)
            return _gone(pod)
        if self._there.get(pod.name) == pod:
            return None
        self._there[pod.name] = pod
        return pod

    def _pass_over(self, line: bytes, error: msgspec.MsgspecError) -> None:
        """Skip an unreadable Pod, so that the watch does not read it again for ever (I13). Lists are
        incomplete for as long as it exists."""
        try:
            kind = _KIND.decode(line).type
            if kind == "ERROR":
                status = _ERROR.decode(line).object
            else:
                self.version = _VERSION.decode(line).object.metadata.resource_version
        except msgspec.MsgspecError:
            raise Failed(f"a line cannot be read: {error}") from error
        if kind != "ERROR":
            _log.warning("kubernetes.change_unreadable", error=str(error))
            return
        if status.code == 410 or status.reason in ("Expired", "Gone"):
            self.version = None
            raise Expired
        raise Failed(status.message or status.reason or "no reason given")


def _gone(pod: Pod) -> Pod:
    return replace(pod, phase=Phase.UNKNOWN, reason="deleted")
