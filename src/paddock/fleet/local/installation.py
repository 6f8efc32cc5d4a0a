"""A runner program as it is installed on this machine, linked into each Pod's directory:
actions/runner, or github-act-runner.

The program writes its registration, its diagnostics and its work beside its own files, so two runners
that share a directory overwrite each other. So each Pod gets a directory of its own with the program's
files in it. They are linked and not copied: the program has half a gigabyte.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from paddock.domain.runners.dialects import RunnerProgram
from paddock.domain.runners.versions import RunnerVersion, runner_version

#: The programs, with what is linked for each.
_PROGRAMS: Final = {
    RunnerProgram.ACTIONS: ("bin/Runner.Listener", "bin"),
    RunnerProgram.ACT_RUNNER: ("github-act-runner", "github-act-runner"),
}
#: Directories that the program reads beside `bin`. Node and the like are only read, and need no links.
_SHARED: Final = ("externals", "externals.2.0")
_SETTINGS: Final = (".env", ".path")
#: What the program was built from: only this file names its version.
_BUILT_FROM: Final = "bin/Runner.Listener.deps.json"
_NAMED: Final = re.compile(rb'"Runner\.Listener/([0-9.]{1,32})"')
#: The file has some 100 KiB.
_MOST_BYTES: Final = 2**20


class Installation:
    def __init__(self, directory: Path) -> None:
        """Raises ValueError if the directory holds no installation."""
        self._directory = directory.expanduser().absolute()
        for self.program, (file, self._linked) in _PROGRAMS.items():
            found = self._directory / file
            # A directory can be called so too: the sources of github-act-runner.
            if _is_file(found):
                if not os.access(found, os.X_OK):
                    raise ValueError(f"`{found}` may not be executed: make it executable.")
                #: Relative to the Pod's `work` directory.
                self.command: Sequence[str] = (f"./{file}", "run")
                return
        wanted = " or ".join(file for file, _ in _PROGRAMS.values())
        raise ValueError(
            f"`{directory}` holds no runner program: there is no {wanted} in it. Unpack a release of "
            "actions/runner there."
        )

    @property
    def described(self) -> str:
        return f"{self._directory / _PROGRAMS[self.program][0]}"

    def version(self) -> RunnerVersion | None:
        """Read again: the program may be replaced while paddock runs. `None`: not known."""
        try:
            built_from = (self._directory / _BUILT_FROM).read_bytes()[:_MOST_BYTES]
        except OSError:
            return None
        found = _NAMED.search(built_from)
        return runner_version(found[1].decode()) if found else None

    def prepare_work(self, work: Path) -> None:
        linked = self._directory / self._linked
        if linked.is_dir():
            shutil.copytree(linked, work / self._linked, symlinks=True, copy_function=_link)
        else:
            _link(str(linked.resolve()), str(work / self._linked))
        for name in _SHARED:
            if (self._directory / name).is_dir():
                (work / name).symlink_to(self._directory / name)
        for name in _SETTINGS:
            if (self._directory / name).is_file():
                shutil.copy2(self._directory / name, work / name)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise ValueError(f"`{path}` cannot be read: {error.strerror}.") from None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target, follow_symlinks=False)
