"""A cgroup that is ours to divide between runners, where the system has one to give.

Without one a runner that takes all memory is no different from one that somebody killed, and takes
the machine with it. Nothing is asked for: a limit that needs root, or another's cgroup, is done
without, and `paddock up` says so.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_TABLE: Final = Path("/proc/self/cgroup")
#: What is made within our own: for us, since version 2 wants no process beside a divided group; and
#: for all Pods.
_SERVER: Final = "paddock-server"
_RUNNERS: Final = "paddock-runners"


class NoCgroup(Exception):
    """Why runners have no limits, in a few words."""


def cgroup_for_runners(name: str, *, root: Path = _ROOT, table: Path = _TABLE) -> Path:
    """Raises NoCgroup. `name` tells the fleets of one machine apart."""
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
    """Together with what killed supervisors left in it; not if somebody is still there."""
    for path in (*parent.glob("pod-*"), parent):
        with suppress(OSError):
            path.rmdir()


def _paths(table: str) -> list[tuple[str, str]]:
    """By controller; version 2 has none."""
    lines = [line.split(":", 2) for line in table.splitlines() if line.count(":") >= 2]
    return [(name, path) for _, names, path in lines for name in names.split(",")]


def _memory_alone(hierarchy: Path, path: str, name: str) -> Path:
    # In a container the path may be that of a namespace outside.
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
        with suppress(OSError):  # limits of CPU are a courtesy
            (own / "cgroup.subtree_control").write_text(f"+{controller}")
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")
    if "memory" not in (parent / "cgroup.subtree_control").read_text().split():
        parent.rmdir()
        raise NoCgroup("memory is not ours to divide in our own cgroup")
    return parent


def _move_aside(own: Path) -> None:
    """Out of a group that is to be divided, if nobody else is in it. (The root of all may be divided
    whoever is in it.)"""
    if not (own / "cgroup.type").exists():
        return
    others = {int(pid) for pid in (own / "cgroup.procs").read_text().split()} - {os.getpid()}
    if others:
        raise NoCgroup("other processes are in our own cgroup")
    (own / _SERVER).mkdir(exist_ok=True)
    (own / _SERVER / "cgroup.procs").write_text(str(os.getpid()))
