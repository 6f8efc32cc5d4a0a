"""Processor time by process: on one machine a burst is as fast as all its parts together allow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    #: Its own, in ticks.
    own: int
    #: Of children that have ended and that it has reaped.
    ended: int


def used(parts: Mapping[int, str]) -> dict[str, float]:
    """Seconds of processor time so far, by part: a part is some processes and all their descendants,
    without those that are a part of their own."""
    processes = _processes()
    found = dict.fromkeys(parts.values(), 0.0)
    for pid, process in processes.items():
        if (name := _part_of(pid, parts, processes)) is not None:
            found[name] += (process.own + process.ended) / _TICKS
    return found


class Spending:
    """The processor time of this process and all its descendants in a block, each with one thread. It
    is exact to the nanosecond, for blocks shorter than a tick. Its own reading is not included."""

    #: 0 where the system does not report it.
    seconds: float

    def __enter__(self) -> Self:
        processes = _processes()
        us = os.getpid()
        self._others = [
            pid for pid in processes if pid != us and _part_of(pid, {us: ""}, processes) is not None
        ]
        others = sum(map(_nanoseconds, self._others))
        self._before = others + _nanoseconds(us)
        return self

    def __exit__(self, *_: object) -> None:
        own = _nanoseconds(os.getpid())
        self.seconds = (own + sum(map(_nanoseconds, self._others)) - self._before) / 1e9


def _nanoseconds(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except OSError:
        return 0


def _part_of(pid: int, parts: Mapping[int, str], processes: Mapping[int, _Process]) -> str | None:
    while pid in processes:
        if pid in parts:
            return parts[pid]
        pid = processes[pid].parent
    return None


def _processes() -> dict[int, _Process]:
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return {pid: process for pid in pids if (process := _read(pid)) is not None}


def _read(pid: int) -> _Process | None:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    parent, own, ended = int(after_name[1]), after_name[11:13], after_name[13:15]
    return _Process(parent, sum(map(int, own)), sum(map(int, ended)))
