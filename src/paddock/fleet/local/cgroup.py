"""A memory and CPU limit for one Pod, if the operator gave paddock a cgroup to divide.

Only a cgroup limits real memory. `RLIMIT_AS` does not: it counts addresses, of which the real runner
reserves hundreds of gigabytes at its start. And only a cgroup *proves* that the kernel killed for
memory: its count is of this Pod alone, whereas any SIGKILL gives an exit code of 137 (I58).

Supports both versions of cgroups. In version 2 the parent's `cgroup.subtree_control` must name `memory`
(and `cpu`, for that limit), and no process may be in the parent itself.

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
        # In version 1 the CPU has a hierarchy of its own, which paddock was not given.
        if cpu_milli and self._unified:
            quota = f"{cpu_milli * _CPU_PERIOD // 1000} {_CPU_PERIOD}"
            with contextlib.suppress(OSError):  # perhaps only memory was delegated
                (self.path / "cpu.max").write_text(quota)

    def enter(self) -> None:
        """Move the calling process into the cgroup, before it executes the program."""
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
