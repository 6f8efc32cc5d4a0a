"""One Pod as its directory shows it (`layout`)."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import (
    ContainerState,
    ContainerStatus,
    Running,
    Terminated,
    Waiting,
)
from paddock.domain.pods.pod import Audience, Phase, Pod
from paddock.domain.runners.versions import RunnerVersion
from paddock.fleet.local import layout, processes
from paddock.fleet.local.cgroup import Cgroup

_T = TypeVar("_T")

OWNER_LABEL: Final = "paddock.dev/owner"

#: A kubelet's reason for a container it can no longer find, and the exit code it then reports.
STATUS_UNKNOWN: Final = "ContainerStatusUnknown"
_UNKNOWN_CODE: Final = 137
#: A Pod without its supervisor is like a Pod whose node is lost: the supervisor acts as its kubelet.
NODE_LOST: Final = "NodeLost"

_TOKEN_FILES: Final = {Audience.DISPATCH: layout.TOKEN, Audience.VITALS: layout.VITALS_TOKEN}

_BEING_MADE: Final = ".new-"
_BEING_REMOVED: Final = ".gone-"
_POD_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class PodPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the Pod's supervisor runs, and within which limits."""

    shape: Literal["gated", "single"]
    poller: Sequence[str]
    runner: Sequence[str]
    vitals: Sequence[str] | None
    environment: dict[str, str]
    #: Files that the poller must have left before the runner may start.
    staged: Sequence[str]
    grace_seconds: float
    memory_mib: int = 0
    cpu_milli: int = 0
    cgroup_parent: str | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """pod.json"""

    name: str
    uid: str
    pool: str
    runner: str
    labels: dict[str, str]
    created_at: datetime
    spec: str
    #: SHA-256 of the Pod's tokens, by audience.
    tokens: dict[Audience, str]
    plan: PodPlan
    #: The version of the runner program that it was made with.
    runner_version: RunnerVersion | None = None


class StatusFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """status.json"""

    #: Pid and start mark.
    supervisor: tuple[int, str | None] | None = None
    leaders: Sequence[tuple[int, str | None]] = ()
    phase: Phase = Phase.PENDING
    reason: str | None = None
    finished_at: datetime | None = None
    poller: ContainerStatus = ContainerStatus(
        name="poller", state=ContainerState(waiting=Waiting("PodInitializing")), started=False
    )
    runner: ContainerStatus = ContainerStatus(
        name="runner", state=ContainerState(waiting=Waiting("PodInitializing")), started=False
    )


class PodUnreadable(Exception):
    """The Pod's directory exists but cannot be read; the Pod must not count as absent (I29)."""


@dataclass(frozen=True, slots=True)
class PodDirectory:
    path: Path

    @staticmethod
    def at(root: Path, name: str) -> PodDirectory:
        if not could_be_a_pod(name):
            raise ValueError(f"{name!r} is no Pod's name: it is made of a–z, 0–9 and hyphens")
        return PodDirectory(root / name)

    def record(self) -> Record | None:
        """`None` if there is no such Pod."""
        content = self._read(layout.POD)
        if content is None and self.path.exists():
            raise PodUnreadable(f"{self.path} is no Pod's directory: it has no {layout.POD}")
        return None if content is None else _decode(content, Record, self.path / layout.POD)

    def status(self) -> StatusFile | None:
        """`None` until the supervisor has written the first one."""
        content = self._read(layout.STATUS)
        return None if content is None else _decode(content, StatusFile, self.path / layout.STATUS)

    def pod(self) -> Pod | None:
        record = self.record()
        return None if record is None else show(record, self.status(), self.deletion_requested_at())

    def deletion_requested_at(self) -> datetime | None:
        content = self._read(layout.DELETING)
        return None if content is None else datetime.fromisoformat(content.decode())

    def request_deletion(self, now: datetime) -> None:
        """Record the first request, then signal the supervisor. The supervisor looks for the record as
        soon as it can be signalled, so no request is missed."""
        if self.deletion_requested_at() is None:
            layout.write(self.path / layout.DELETING, now.isoformat().encode())
        self.tell_supervisor(signal.SIGTERM)

    def let_go(self) -> None:
        """Allow removal as soon as the Pod has ended and its lock is free."""
        layout.write(self.path / layout.REAPED, b"")

    def is_reaped(self) -> bool:
        return self._read(layout.REAPED) is not None

    def tell_supervisor(self, number: signal.Signals) -> None:
        status = self.status()
        if status is not None and status.supervisor is not None and status.finished_at is None:
            pid, mark = status.supervisor
            if mark is not None:
                processes.send(pid, mark, number)

    def supervised(self) -> bool:
        with layout.locked(self.path) as free:
            return not free

    def stamp(self, owner: str) -> None:
        record = self.record()
        if record is not None:
            labels = {**record.labels, OWNER_LABEL: owner}
            stamped = msgspec.structs.replace(record, labels=labels)
            layout.write(self.path / layout.POD, msgspec.json.encode(stamped))

    def conclude(self, now: datetime, *, reason: str) -> bool:
        """Write the Pod's end for a dead supervisor; returns whether this was done. Everything that the
        supervisor ran is ended first: a Pod that is recorded as ended has ended."""
        with layout.locked(self.path) as free:
            status = self.status() or StatusFile()
            record = self.record()
            if not free or record is None or status.finished_at is not None:
                return False
            leaders = [(pid, mark) for pid, mark in status.leaders if mark is not None]
            if not processes.end_all(record.uid, leaders):
                return False
            if record.plan.cgroup_parent is not None:
                with suppress(OSError):
                    Cgroup(Path(record.plan.cgroup_parent), record.uid).remove()
            ended = _lost(status, now, reason=reason)
            layout.write(self.path / layout.STATUS, msgspec.json.encode(ended))
            layout.clear(self.path)
            return True

    def remove(self) -> bool:
        """Remove the directory in one step; false if it does not exist or its lock is held."""
        with layout.locked(self.path) as free:
            record = self.record()
            if not free or record is None:
                return False
            gone = self.path.with_name(f"{_BEING_REMOVED}{record.uid}")
            self.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def log_tail(self, *, lines: int, most_bytes: int) -> str | None:
        """`None` if the runner has no log because it never ran."""
        logs = [self.path / "runner.log.old", self.path / "runner.log"]
        parts = [tail for log in logs if (tail := _tail(log, most_bytes)) is not None]
        return _last_lines(b"".join(parts), lines, most_bytes) if parts else None

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PodUnreadable(f"{self.path / name} cannot be read: {error.strerror}") from error


def could_be_a_pod(name: str) -> bool:
    return _POD_NAME.fullmatch(name) is not None


def pod_names(root: Path) -> list[str]:
    """Raises OSError: a fleet whose directory is unavailable has not lost its Pods (I29)."""
    with os.scandir(root) as entries:
        return [entry.name for entry in entries if could_be_a_pod(entry.name)]


def make(
    root: Path,
    record: Record,
    tokens: Mapping[Audience, str],
    *,
    prepare_work: Callable[[Path], None] | None = None,
) -> bool:
    """Create the Pod's whole directory in one step. False if one of that name exists already, which is
    left unchanged. `prepare_work` fills the runner's directory."""
    directory = PodDirectory.at(root, record.name)
    new = Path(tempfile.mkdtemp(prefix=_BEING_MADE, dir=root))
    try:
        (new / layout.STAGE).mkdir(mode=0o700)
        (new / layout.WORK).mkdir(mode=0o700)
        (new / layout.LOCK).touch(mode=0o600)
        if prepare_work is not None:
            prepare_work(new / layout.WORK)
        for audience, name in _TOKEN_FILES.items():
            layout.write(new / name, tokens[audience].encode())
        layout.write(new / layout.POD, msgspec.json.encode(record))
        layout.sync(new)
        new.rename(directory.path)
        layout.sync(root)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        # A rename does not replace a directory that is not empty.
        if not directory.path.exists():
            raise
        return False
    return True


def sweep(root: Path, older_than: datetime) -> None:
    """Remove the directories that a killed paddock left half created or half removed."""
    for entry in root.iterdir():
        if entry.name.startswith((_BEING_MADE, _BEING_REMOVED)):
            try:
                recent = entry.stat().st_mtime > older_than.timestamp()
            except FileNotFoundError:
                continue
            if not recent:
                shutil.rmtree(entry, ignore_errors=True)


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def show(record: Record, status: StatusFile | None, deletion_requested_at: datetime | None) -> Pod:
    status = status or StatusFile()
    poller, runner, phase = status.poller, status.runner, status.phase
    if record.plan.shape == "single":
        poller = runner = _merged(status)
        if phase is Phase.PENDING and runner.state.running:
            phase = Phase.RUNNING
    return Pod(
        name=PodName(record.name),
        uid=record.uid,
        pool=record.pool,
        phase=phase,
        reason=status.reason,
        node=os.uname().nodename,
        created_at=record.created_at,
        deletion_requested_at=deletion_requested_at,
        owner=record.labels.get(OWNER_LABEL),
        poller=poller,
        containers=(runner,),
        runner_version=record.runner_version,
    )


def _merged(status: StatusFile) -> ContainerStatus:
    """The only container of the single shape: it runs from the poller's start to the runner's end."""
    poller, runner = status.poller, status.runner
    polled = poller.state.terminated
    if polled is None or polled.exit_code != 0:
        return msgspec.structs.replace(poller, name=runner.name)
    if runner.state.waiting is not None and not status.phase.terminal:
        return msgspec.structs.replace(
            runner, state=ContainerState(running=Running()), started=True
        )
    return runner


def _lost(status: StatusFile, now: datetime, *, reason: str) -> StatusFile:
    exits = [each.state.terminated for each in (status.poller, status.runner)]
    codes = [ended.exit_code for ended in exits if ended is not None]
    if len(codes) == len(exits) or any(codes):
        # The supervisor saw and recorded the containers' ends. It died before it recorded the Pod's.
        phase = Phase.FAILED if any(codes) else Phase.SUCCEEDED
        return msgspec.structs.replace(status, phase=phase, finished_at=now)
    return msgspec.structs.replace(
        status,
        phase=Phase.FAILED,
        reason=reason,
        finished_at=now,
        poller=_lost_container(status.poller, now),
        runner=_lost_container(status.runner, now),
    )


def _lost_container(container: ContainerStatus, now: datetime) -> ContainerStatus:
    """A waiting container stays waiting: it never ran."""
    if container.state.running is None:
        return container
    ended = Terminated(exit_code=_UNKNOWN_CODE, reason=STATUS_UNKNOWN, finished_at=now)
    return ContainerStatus(
        name=container.name, state=ContainerState(terminated=ended), started=False
    )


def _decode(content: bytes, kind: type[_T], path: Path) -> _T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise PodUnreadable(f"{path} is damaged: {error}") from error


def _tail(log: Path, most_bytes: int) -> bytes | None:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read(most_bytes)
    except FileNotFoundError:
        return None


def _last_lines(said: bytes, lines: int, most_bytes: int) -> str:
    """A job's output as text that PostgreSQL accepts: no NUL, only valid UTF-8."""
    text = (
        _end_of(said, most_bytes)
        .decode(errors="replace")
        .replace("\0", "\N{REPLACEMENT CHARACTER}")
    )
    ending = "\n" if text.endswith("\n") else ""
    kept = text.removesuffix("\n").split("\n")[-lines:] if lines else []
    # The replacement for an invalid octet takes three octets.
    return _end_of(("\n".join(kept) + ending).encode(), most_bytes).decode() if kept else ""


def _end_of(octets: bytes, most: int) -> bytes:
    """The last octets, not beginning in the middle of a character."""
    cut = octets[-most:] if most else b""
    if len(cut) < len(octets):
        cut = cut[next((n for n, octet in enumerate(cut[:4]) if octet & 0xC0 != 0x80), 0) :]
    return cut
