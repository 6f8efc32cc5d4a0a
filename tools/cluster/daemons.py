"""Processes that outlive the program that started them; any later program may stop them.

`make cluster` starts them and ends; a test stops the API server and starts it again. So their state is
on disk: the process id, and its start time, because ids are reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.cluster.errors import ClusterError
from tools.cluster.layout import Layout

#: All but the API server end within a second or two.
GRACE_S: Final = 20.0
_POLL_S: Final = 0.05
_TAIL: Final = 12


@dataclass(frozen=True)
class Daemon:
    name: str
    command: Sequence[str]
    layout: Layout
    environment: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = GRACE_S

    @property
    def log(self) -> Path:
        return self.layout.logs / f"{self.name}.log"

    @property
    def _pid_file(self) -> Path:
        return self.layout.pids / self.name

    def start(self) -> None:
        if self.pid() is not None:
            return
        self.layout.logs.mkdir(parents=True, exist_ok=True)
        self.layout.pids.mkdir(parents=True, exist_ok=True)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        _keep_open_files_to_ourselves()
        # Not Popen: its object warns when a process outlives it, as these do on purpose.
        pid = os.posix_spawn(
            self.command[0],
            list(self.command),
            {**os.environ, **self.environment},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.log), append, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        self._pid_file.write_text(f"{pid} {_started(pid)}")

    def pid(self) -> int | None:
        """The id of the started process, if it lives."""
        try:
            pid, started = self._pid_file.read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(int(pid), os.WNOHANG)
        return int(pid) if started != "-" and _started(int(pid)) == started else None

    def send(self, number: signal.Signals) -> None:
        if (pid := self.pid()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.send(how)
        deadline = time.monotonic() + self.grace_s
        while self.pid() is not None:
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
            await asyncio.sleep(_POLL_S)
        self._pid_file.unlink(missing_ok=True)

    def tail(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(f"  {line[:300]}" for line in lines[-_TAIL:])

    def check(self) -> None:
        """Raises if it has ended."""
        if self.pid() is None:
            raise ClusterError(f"{self.name} has ended; {self.log} says why:\n{self.tail()}")


def _keep_open_files_to_ourselves() -> None:
    """Closes all inherited files. A lock is held while any process has its file open: `flock FILE make
    cluster` would hold FILE until the cluster is stopped."""
    for entry in list(Path("/dev/fd").iterdir()):
        if int(entry.name) > 2:  # a daemon gets standard ones of its own
            with contextlib.suppress(OSError):
                os.set_inheritable(int(entry.name), False)


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; `-` if it has ended."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "-"
    return "-" if after_name[0] in "ZX" else after_name[19]
