"""Processes of this machine, identified uniquely.

The kernel reuses pids: some time after a `kill -9`, the pid in a file may be another process's. So a
process is identified here by its pid and its start time, and all processes of a Pod carry the Pod's UID
in their environment. No process is signalled because of its pid alone.

Standard library only: every Pod's supervisor loads this.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

#: In the environment of all that a Pod runs. Not `PADDOCK_…`: runners hide those from their steps.
POD_VARIABLE = "LOCAL_POD_UID"

_PROC = Path("/proc/self").exists()

# A killed process is gone once the kernel has freed its memory; disk I/O under way is completed first.
_UNTIL_GONE = 5.0


def start_mark(pid: int) -> str | None:
    """Differs for each process that ever has this pid; `None` if no process has it now."""
    if not _PROC:
        return _asked_of_ps(pid)
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return f"{_boot()}/{fields[19]}"


def marked_with(uid: str) -> set[int]:
    """The processes that carry the Pod's UID, in any process group: a daemon leaves its group, but
    rarely changes its environment."""
    wanted = f"{POD_VARIABLE}={uid}".encode()
    found = set()
    for pid in _pids() if _PROC else ():
        try:
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
        except OSError:
            continue  # the process ended, or is another user's
    return found


def send(pid: int, mark: str, number: signal.Signals) -> None:
    """Signal the process with this start mark, and no other."""
    if start_mark(pid) == mark:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def end_all(uid: str, leaders: Sequence[tuple[int, str]]) -> bool:
    """Kill the processes that a dead supervisor left; returns whether all are gone."""
    for leader, mark in leaders:
        # The number is the group's while its leader lives. Afterwards it may be another group's, so
        # only processes that carry the UID are ended.
        if start_mark(leader) == mark:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
    deadline = time.monotonic() + _UNTIL_GONE
    while left := marked_with(uid) | {pid for pid, mark in leaders if start_mark(pid) == mark}:
        if time.monotonic() > deadline:
            return False
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return True


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """The fields after the program's name in /proc/PID/stat: the state is first, the start time
    twentieth."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _boot() -> str:
    """Identifies the boot: start times count from it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _asked_of_ps(pid: int) -> str | None:
    import subprocess  # costs a tenth of a supervisor's memory, and Linux never needs it

    listing = ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)]
    said = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
    state, _, started = said.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None
