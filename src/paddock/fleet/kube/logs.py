"""The end of a container's log, and whether its beginning is still there.

A kubelet rotates a log file at some 10 MB, and then serves the new file as if it were the whole log. A
job that prints much thereby hides the line that proves there is a job; a reader who took the rest for
the whole would conclude that there is none (I24). Kubelets write the time before every line, and a job
cannot forge that.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from paddock.domain.pods.fingerprints import RUNNER_CONTAINER
from paddock.ports.fleet import LOG_IS_CUT

#: The start script prints before the runner starts. On a node under full load even that takes time.
_FIRST_WORD: Final = timedelta(seconds=30)
_EVICTED: Final = "Evicted"


class _When(msgspec.Struct, frozen=True, rename="camel"):
    started_at: datetime | None = None


class _State(msgspec.Struct, frozen=True, rename="camel"):
    running: _When | None = None
    terminated: _When | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    state: _State = _State()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    container_statuses: list[_Status] = []


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    deletion_timestamp: datetime | None = None


class LogState(msgspec.Struct, frozen=True):
    """The fields of a Pod that are needed to read its log."""

    metadata: _Metadata
    status: _PodStatus = _PodStatus()

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def _life(self) -> _When | None:
        for status in self.status.container_statuses:
            if status.name == RUNNER_CONTAINER:
                return status.state.running or status.state.terminated
        return None

    @property
    def has_log(self) -> bool:
        return self._life is not None

    @property
    def is_cleared_away(self) -> bool:
        """Whether the kubelet removes the Pod's containers, with their logs, as soon as they stop."""
        return self.metadata.deletion_timestamp is not None or self.status.reason == _EVICTED

    @property
    def started_at(self) -> datetime | None:
        return self._life.started_at if self._life else None


def is_lost(log: bytes) -> bool:
    """Whether this is the kubelet's own message instead of a log. While its container runtime is away
    the kubelet answers "unable to retrieve container logs for …"; once the file is gone, "failed to try
    resolving symlinks in path …". Both have status 200. Only lines of a log begin with a time."""
    return bool(log) and _first_time(log) is None


def beginning_is_gone(log: bytes, started_at: datetime | None) -> bool:
    """Whether a log that is said to be whole begins later than its container. An empty log lacks its
    beginning too: the start script always prints a first line."""
    if started_at is None:
        return True
    first = _first_time(log)
    return first is None or first - started_at > _FIRST_WORD


def _first_time(log: bytes) -> datetime | None:
    first, _, _ = log.partition(b" ")
    try:
        return msgspec.convert(first.decode("ascii", "replace"), datetime)
    except ValueError:
        return None


def last_lines(log: bytes, *, lines: int, most_bytes: int, cut: bool) -> str:
    found = [_without_time(line) for line in log.splitlines(keepends=True)[-lines:]]
    if cut:
        found.insert(0, LOG_IS_CUT.encode() + b"\n")
    return b"".join(found)[-most_bytes:].decode(errors="replace")


def _without_time(line: bytes) -> bytes:
    time, space, rest = line.partition(b" ")
    return rest if space and time.endswith(b"Z") else line
