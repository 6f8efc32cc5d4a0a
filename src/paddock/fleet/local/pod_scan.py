"""Reads all Pods of a local fleet at one moment, cheaply, four times per second.

Each look also tends the Pods. It concludes a Pod whose supervisor was killed, and removes a reaped Pod
as soon as its lock is free. So nothing depends on an event that a server may have missed (I28).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import structlog

from paddock.domain.pods.pod import Pod
from paddock.fleet.local.pod_directory import (
    NODE_LOST,
    PodDirectory,
    PodUnreadable,
    could_be_a_pod,
    show,
)
from paddock.ports import Clock

_log = structlog.get_logger()

#: Directory times are as coarse as the kernel's tick. A changed directory is read again for this many
#: seconds: its next change may have the same time.
_COARSE: Final = 0.1
#: For a missing supervisor that another process started. A machine under full load takes seconds to
#: start a Python.
START_PATIENCE: Final = timedelta(seconds=30)

SUPERVISOR_FAILED: Final = "SupervisorFailed"


@dataclass(slots=True)
class PodScan:
    pods: dict[str, Pod] = field(default_factory=dict)
    #: These exist but cannot be read: they must not count as gone (I29).
    unreadable: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Seen:
    """A Pod as it was when its directory was last read."""

    pod: Pod
    finished_at: datetime | None
    reaped: bool
    changed: int
    #: Until this time the Pod may have changed although its directory's time has not.
    doubtful_until: float


class PodScanner:
    def __init__(self, root: Path, clock: Clock, *, starting: Collection[str]) -> None:
        """`starting`: Pods whose supervisor is known to live, even if it has not taken its lock yet."""
        self._root = root
        self._clock = clock
        self._starting = starting
        self._seen: dict[str, _Seen] = {}
        self._complained: set[str] = set()

    def look(self, *, closely: bool) -> PodScan:
        """`closely`: also check that supervisors live. Raises OSError if the directory of all Pods
        cannot be read: a fleet whose directory is unavailable has not lost its Pods."""
        look = PodScan()
        changes = dict(self._changes())
        for name, changed in changes.items():
            try:
                pod = self._look_at(name, changed, closely=closely)
            except FileNotFoundError:
                continue  # removed during this look
            except (OSError, PodUnreadable) as error:
                look.unreadable.add(name)
                self._complain(name, error)
            else:
                if pod is not None:
                    look.pods[name] = pod
        for name in self._seen.keys() - changes.keys():
            del self._seen[name]
        return look

    def _changes(self) -> Iterator[tuple[str, int]]:
        """The time of each Pod's last change. Each file is moved into the Pod's directory once it is
        written, so the directory's own time shows each change."""
        with os.scandir(self._root) as entries:
            for entry in entries:
                if could_be_a_pod(entry.name):
                    try:
                        yield entry.name, entry.stat(follow_symlinks=False).st_mtime_ns
                    except FileNotFoundError:
                        continue

    def _look_at(self, name: str, changed: int, *, closely: bool) -> Pod | None:
        seen = self._seen.get(name)
        if (
            seen is None
            or seen.changed != changed
            or self._clock.monotonic() <= seen.doubtful_until
        ):
            seen = self._read(name, changed)
        if (
            closely
            and seen is not None
            and seen.finished_at is None
            and self._maintain(name, seen.pod)
        ):
            seen = self._read(name, changed)
        if seen is None:
            return None
        if seen.reaped and seen.finished_at is not None and self._at(name).remove():
            return None
        return seen.pod

    def _at(self, name: str) -> PodDirectory:
        return PodDirectory(self._root / name)

    def _read(self, name: str, changed: int) -> _Seen | None:
        directory = self._at(name)
        record, status = directory.record(), directory.status()
        if record is None:
            return None
        known, now = self._seen.get(name), self._clock.monotonic()
        self._seen[name] = _Seen(
            show(record, status, directory.deletion_requested_at()),
            status.finished_at if status else None,
            directory.is_reaped(),
            changed,
            known.doubtful_until if known and known.changed == changed else now + _COARSE,
        )
        return self._seen[name]

    def _maintain(self, name: str, pod: Pod) -> bool:
        """Look after a Pod that has not ended; returns whether that changed it."""
        directory = self._at(name)
        if directory.supervised():
            if pod.deletion_requested_at is not None:
                # Signal again: a server may have been killed after it wrote the request.
                directory.tell_supervisor(signal.SIGTERM)
            return False
        if directory.status() is None:
            late = self._clock.now() - pod.created_at >= START_PATIENCE
            if name in self._starting or not late:
                return False
            return directory.conclude(self._clock.now(), reason=SUPERVISOR_FAILED)
        if directory.conclude(self._clock.now(), reason=NODE_LOST):
            _log.warning("local.supervisor_lost", pod=pod.name, pool=pod.pool)
            return True
        return False

    def _complain(self, name: str, error: Exception) -> None:
        if name not in self._complained:
            self._complained.add(name)
            _log.warning("local.directory_unreadable", pod=name, error=str(error))
