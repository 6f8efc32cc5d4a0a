"""Processes of this machine, told apart for good.

A pid outlives its process: after a `kill -9` and a while, the number in a file is a stranger's. So a
process is known here by its pid and the moment it started, and whatever belongs to a Pod carries that
Pod's UID in its environment. Nothing is signalled on the word of a number alone.

Standard library only: every Pod's supervisor loads this.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

#: In the environment of all that a Pod runs. Not `PADDOCK_…`: runners keep those from their steps.
POD_VARIABLE = "LOCAL_POD_UID"

_PROC = Path("/proc/self").exists()

# A killed process is gone when its memory is given back; one in the middle of disk I/O first ends that.
_UNTIL_GONE = 5.0


def start_mark(pid: int) -> str | None:
    """Another for every process that ever has this pid; `None` if there is none now."""
    if not _PROC:
        return _asked_of_ps(pid)
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return f"{_boot()}/{fields[19]}"


def marked_with(uid: str) -> set[int]:
    """Those that carry the Pod's UID, wherever they went: a daemon leaves its group, but rarely its
    environment."""
    wanted = f"{POD_VARIABLE}={uid}".encode()
    found = set()
    for pid in _pids() if _PROC else ():
        try:
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
        except OSError:
            continue  # it ended, or is another user's
    return found


def send(pid: int, mark: str, number: signal.Signals) -> None:
    """A signal, to the process that was marked and to no other."""
    if start_mark(pid) == mark:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def end_all(uid: str, leaders: Sequence[tuple[int, str]]) -> bool:
    """Kill what a supervisor that is no more left of its Pod; whether all of it is gone."""
    for leader, mark in leaders:
        # The number is the group's for as long as its leader lives; afterwards it may be another's,
        # and only those that carry the UID are looked for.
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
    """What stands behind the program's name in /proc/PID/stat: the state first, the start
    twentieth."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _boot() -> str:
    """Start times are counted from the boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _asked_of_ps(pid: int) -> str | None:
    import subprocess  # a tenth of a supervisor's memory, and Linux never needs it

    listing = ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)]
    said = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
    state, _, started = said.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None
