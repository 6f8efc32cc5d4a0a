"""The stage: a memory volume on which the poller puts the files that the runner starts with.

    jit     the JIT, readable by the runner's user alone; `run` deletes it before anything starts
    run     the start script: the runner image needs neither it nor Python
    name    the runner's name at GitHub, for people who look into a Pod

`jit` is written last: if it exists, all files do. Each file is written under another name, synced, and
moved into place, so that a killed poller leaves no half-written file to be run. No existing link is
followed, and no existing file is trusted.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

_JIT: Final = "jit"
_ALL: Final = (_JIT, "name", "run")
_PROBE: Final = "probe"


class Stage:
    def __init__(self, path: str, *, uid: int, gid: int) -> None:
        self._path = path
        self._owner = (uid if uid != os.geteuid() else -1, gid)
        self._directory = -1
        self._script = b""

    def prepare(self) -> None:
        """Raises OSError if staging cannot work. Called before the poller asks for work: a job whose
        JIT cannot be staged waits in vain."""
        script = f"{os.path.dirname(__file__)}/run.sh"
        with open(script, "rb") as file:
            self._script = file.read()
        self._directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.clear()
        self._write(_PROBE, b"", 0o400, self._owner)
        self._remove(_PROBE)

    def put(self, *, jit: str, runner_name: str) -> None:
        """Stage the work. Raises OSError; then nothing is staged."""
        try:
            self._write("run", self._script, 0o555)
            self._write("name", f"{runner_name}\n".encode(), 0o444)
            self._write(_JIT, f"{jit}\n".encode(), 0o400, self._owner)
            os.fsync(self._directory)
        except BaseException:
            self.clear()
            raise

    def clear(self) -> None:
        """Remove all files: no runner can start from this stage afterwards."""
        if self._directory < 0:
            return
        for name in _ALL:
            self._remove(name)
            self._remove(_unfinished(name))

    def _write(
        self, name: str, content: bytes, mode: int, owner: tuple[int, int] = (-1, -1)
    ) -> None:
        unfinished = _unfinished(name)
        self._remove(unfinished)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(unfinished, flags, 0o400, dir_fd=self._directory)
        try:
            os.fchmod(file, mode)
            # After the mode: a process that gave a file away may no longer change it.
            if owner != (-1, -1):
                os.fchown(file, *owner)
            while content:
                content = content[os.write(file, content) :]
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(unfinished, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._directory)


def _unfinished(name: str) -> str:
    return f".{name}.unfinished"
