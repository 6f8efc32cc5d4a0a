"""A cgroup that paddock may divide between runners, if the system gives it one.

Without a cgroup a runner that takes all memory takes the machine with it, and looks like a runner that
was killed by hand. paddock asks for no rights: if a limit needs root, or another user's cgroup, there
is no limit, and `paddock up` says so.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_TABLE: Final = Path("/proc/self/cgroup")
#: The groups created within our own: one for the server, since version 2 allows no process in a divided
#: group, and one for all Pods.
_SERVER: Final = "paddock-server"
_RUNNERS: Final = "paddock-runners"


class NoCgroup(Exception):
    """Why runners have no limits, in a few words."""


def cgroup_for_runners(name: str, *, root: Path = _ROOT, table: Path = _TABLE) -> Path:
    """Raises NoCgroup. `name` distinguishes the fleets of one machine."""
    try:
        paths = dict(_paths(table.read_text()))
        if (root / "cgroup.controllers").exists():
            return _unified(root / paths[""].lstrip("/"), name)
        return _memory_alone(root / "memory", paths["memory"], name)
    except KeyError:
        raise NoCgroup("this system has no cgroups for memory") from None
    except OSError as error:
        raise NoCgroup(
            f"{error.filename or root}: {(error.strerror or str(error)).lower()}"
        ) from None


def give_back(parent: Path) -> None:
    """Remove the cgroup and what killed supervisors left in it, unless a process is still in it."""
    for path in (*parent.glob("pod-*"), parent):
        with suppress(OSError):
            path.rmdir()


def _paths(table: str) -> list[tuple[str, str]]:
    """Paths by controller; version 2 names no controller."""
    lines = [line.split(":", 2) for line in table.splitlines() if line.count(":") >= 2]
    return [(name, path) for _, names, path in lines for name in names.split(",")]


def _memory_alone(hierarchy: Path, path: str, name: str) -> Path:
    # In a container the path may be of an outer namespace.
    own = hierarchy / path.lstrip("/")
    parent = (own if own.is_dir() else hierarchy) / f"{_RUNNERS}-{name}"
    parent.mkdir(exist_ok=True)
    if not (parent / "memory.limit_in_bytes").exists():
        parent.rmdir()
        raise NoCgroup("this system has no cgroups for memory")
    return parent


def _unified(own: Path, name: str) -> Path:
    if "memory" not in (own / "cgroup.controllers").read_text().split():
        raise NoCgroup("memory is not ours to divide in our own cgroup")
    if "memory" not in (own / "cgroup.subtree_control").read_text().split():
        _move_aside(own)
        (own / "cgroup.subtree_control").write_text("+memory")
    parent = own / f"{_RUNNERS}-{name}"
    parent.mkdir(exist_ok=True)
    for controller in ("memory", "cpu"):
        with suppress(OSError):  # CPU limits are optional
            (own / "cgroup.subtree_control").write_text(f"+{controller}")
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")
    if "memory" not in (parent / "cgroup.subtree_control").read_text().split():
        parent.rmdir()
        raise NoCgroup("memory is not ours to divide in our own cgroup")
    return parent


def _move_aside(own: Path) -> None:
    """Move the server out of the group that is to be divided. Raises NoCgroup if another process is in
    the group. (The root group may be divided with processes in it.)"""
    if not (own / "cgroup.type").exists():
        return
    others = {int(pid) for pid in (own / "cgroup.procs").read_text().split()} - {os.getpid()}
    if others:
        raise NoCgroup("other processes are in our own cgroup")
    (own / _SERVER).mkdir(exist_ok=True)
    (own / _SERVER / "cgroup.procs").write_text(str(os.getpid()))
