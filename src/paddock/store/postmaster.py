"""Whether a server runs in a data directory.

PostgreSQL writes postmaster.pid: its pid, its directory, when it started, and, in line eight, whether
it is ready. The file outlives a `kill -9` and a reboot, after which another process may have the pid.
So the process itself is checked before the file is trusted.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

_STATUS_LINE = 7


def postmaster_is_ready(pgdata: Path, pid: int) -> bool:
    lines = _pid_file(pgdata)
    return (
        len(lines) > _STATUS_LINE
        and lines[0] == str(pid)
        and lines[_STATUS_LINE].strip() == "ready"
    )


def running_postmaster(pgdata: Path) -> int | None:
    """The pid of this directory's server, even if another process started it."""
    lines = _pid_file(pgdata)
    if not lines or not lines[0].strip().isdigit():
        return None
    pid = int(lines[0])
    return pid if _works_in(pid, pgdata) else None


def _works_in(pid: int, pgdata: Path) -> bool:
    """A server's working directory is its data directory, even after the directory was moved. Where the
    system hides the working directory (macOS; another user's process, for root in a container), the
    process's command line names it."""
    try:
        return Path(f"/proc/{pid}/cwd").samefile(pgdata)
    except OSError:
        command = _command(pid)
        return "postgres" in command and str(pgdata) in command


def _command(pid: int) -> str:
    if Path("/proc/self").exists():
        with suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        return ""
    listing = ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(listing, capture_output=True, text=True, check=False).stdout


def _pid_file(pgdata: Path) -> list[str]:
    try:
        return (pgdata / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []
