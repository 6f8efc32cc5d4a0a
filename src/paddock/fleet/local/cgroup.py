"""A memory and CPU limit for one Pod, where whoever runs paddock gave it a cgroup to divide.

That is the only honest limit. `RLIMIT_AS` is not one: it counts addresses, of which the real runner
reserves hundreds of gigabytes at its start. And it is the only way to *know* that the kernel killed
for memory: the count is of this Pod alone, whereas an exit code of 137 is anybody's SIGKILL (I58).

Both versions of cgroups. In version 2 the parent's `cgroup.subtree_control` must name `memory` (and
`cpu`, for that limit), and no process may be in the parent itself.

Standard library only: a Pod's supervisor loads this.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CPU_PERIOD = 100_000  # µs; the kernel's own default


class Cgroup:
    def __init__(self, parent: Path, uid: str) -> None:
        self.path = parent / f"pod-{uid}"
        self.path.mkdir(exist_ok=True)
        self._unified = (parent / "cgroup.controllers").exists()

    def limit(self, *, memory_mib: int, cpu_milli: int) -> None:
        """0 is no limit."""
        if memory_mib:
            name = "memory.max" if self._unified else "memory.limit_in_bytes"
            (self.path / name).write_text(str(memory_mib << 20))
        # In version 1 the CPU has a hierarchy of its own, which we were not given.
        if cpu_milli and self._unified:
            quota = f"{cpu_milli * _CPU_PERIOD // 1000} {_CPU_PERIOD}"
            with contextlib.suppress(OSError):  # memory may be all that was delegated
                (self.path / "cpu.max").write_text(quota)

    def enter(self) -> None:
        """Called by the process that is to be in it, before it becomes the program."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def oom_kills(self) -> int:
        name = "memory.events" if self._unified else "memory.oom_control"
        with contextlib.suppress(OSError, ValueError):
            for line in (self.path / name).read_text().splitlines():
                key, _, count = line.partition(" ")
                if key == "oom_kill":
                    return int(count)
        return 0

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.rmdir()
