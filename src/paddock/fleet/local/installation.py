"""actions/runner as it is installed on this machine, linked into each Pod's directory.

The program writes its registration, its diagnostics and its work beside its own files, so two runners
that share a directory overwrite each other. So each Pod gets a directory of its own with the program's
files in it. They are linked and not copied: the program has half a gigabyte.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

_PROGRAM: Final = "bin/Runner.Listener"
#: Directories that the program reads beside `bin`. Node and the like are only read, and need no links.
_SHARED: Final = ("externals", "externals.2.0")
_SETTINGS: Final = (".env", ".path")


class Installation:
    #: Relative to the Pod's `work` directory.
    command: Final = (f"./{_PROGRAM}", "run")

    def __init__(self, directory: Path) -> None:
        """Raises ValueError if the directory holds no installation."""
        self._directory = directory.expanduser().absolute()
        program = self._directory / _PROGRAM
        if not os.access(program, os.X_OK):
            raise ValueError(
                f"`{directory}` is no installed actions/runner: there is no program {program}. Unpack "
                "a release of it there."
            )

    def prepare_work(self, work: Path) -> None:
        shutil.copytree(self._directory / "bin", work / "bin", symlinks=True, copy_function=_link)
        for name in _SHARED:
            if (self._directory / name).is_dir():
                (work / name).symlink_to(self._directory / name)
        for name in _SETTINGS:
            if (self._directory / name).is_file():
                shutil.copy2(self._directory / name, work / name)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target, follow_symlinks=False)
