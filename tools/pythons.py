"""Finds the other Pythons that pyproject.toml lists, for `make test-pythons`: version and path.

A version is listed because tests pass on it, and for no other reason. Exits with 75 (EX_TEMPFAIL) if
one is not on this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_CLASSIFIER: Final = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def listed(pyproject: str) -> list[str]:
    classifiers = tomllib.loads(pyproject)["project"]["classifiers"]
    return [found[1] for each in classifiers if (found := _CLASSIFIER.fullmatch(each))]


def interpreter(version: str) -> str | None:
    """An interpreter that runs: pyenv's shims are on the PATH also for versions that they do not
    start."""
    for path in _candidates(version):
        code = f"import sys; sys.exit(sys.version_info[:2] != ({version.replace('.', ', ')}))"
        if subprocess.run([path, "-c", code], capture_output=True, check=False).returncode == 0:
            return path
    return None


def _candidates(version: str) -> Iterator[str]:
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True))


def main() -> int:
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = [each for each in listed((ROOT / "pyproject.toml").read_text("utf-8")) if each != ours]
    found = {version: interpreter(version) for version in others}
    for version, path in found.items():
        if path:
            sys.stdout.write(f"{version} {path}\n")
    missing = [version for version, path in found.items() if path is None]
    if missing:
        sys.stderr.write(f"Python {', '.join(missing)} is not on this machine.\n")
    return os.EX_TEMPFAIL if missing else 0


if __name__ == "__main__":
    sys.exit(main())
