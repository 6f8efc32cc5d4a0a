"""Writes `modules/*/go.mod` and `go.sum`: which versions, and what their content is.

k8s.io/kubernetes requires its own parts (k8s.io/api and the like) in a version that does not exist and
finds them in its own directory. From outside each needs its real version, v0.MINOR.PATCH.

A module that the checksum database does not know has a go.sum of its own for all its requirements.
Only the checksum of the module itself is then taken from the present download.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tools.cluster.binaries import LOCKS, MODULES, Module, go_environment, go_program
from tools.cluster.errors import ClusterError
from tools.cluster.say import say


def lock(*names: str) -> None:
    """Of the modules of these names, or of all."""
    for module in MODULES:
        if names and module.name not in names:
            continue
        say(f"resolving {module.name} {module.version}")
        with tempfile.TemporaryDirectory() as directory:
            _resolve(module, Path(directory))
            target = LOCKS / module.name
            target.mkdir(parents=True, exist_ok=True)
            for name in ("go.mod", "go.sum"):
                shutil.copyfile(Path(directory) / name, target / name)


def _resolve(module: Module, directory: Path) -> None:
    parts = _parts(module)
    version = f"v0{module.version.removeprefix('v1')}"
    replaced = "".join(f"\t{part} => {part} {version}\n" for part in parts)
    replacements = f"replace (\n{replaced})\n" if parts else ""
    (directory / "go.mod").write_text(
        f"module paddock.test/cluster/{module.name}\n\ngo 1.24.0\n\n"
        f"require {module.path} {module.version}\n\n{replacements}"
    )
    if module.unlisted:
        shutil.copyfile(_downloaded(module)["Dir"] + "/go.sum", directory / "go.sum")
        # `go mod tidy` would ask for the newest versions of modules that only dependencies' tests
        # need.
        packages = module.commands.values()
        _go("list", "-deps", *packages, directory=directory, unlisted=module.path)
        return
    # Imports show which modules are needed.
    imports = "".join(f'import _ "{package}"\n' for package in module.commands.values())
    (directory / "commands.go").write_text(f"//go:build never\n\npackage commands\n\n{imports}")
    _go("mod", "tidy", directory=directory)


def _parts(module: Module) -> list[str]:
    text = Path(_downloaded(module)["GoMod"]).read_text()
    return re.findall(r"^\s*(?:replace )?(k8s\.io/\S+) => \./staging", text, re.MULTILINE)


def _downloaded(module: Module) -> dict[str, str]:
    """The paths of its files."""
    found: dict[str, str] = json.loads(
        _go(
            *("mod", "download", "-json", f"{module.path}@{module.version}"),
            directory=Path("/"),
            unlisted=module.path if module.unlisted else "",
        )
    )
    return found


def _go(*arguments: str, directory: Path, unlisted: str = "") -> str:
    environment = {**os.environ, **go_environment(), "GOFLAGS": "-mod=mod"}
    if unlisted:
        environment["GONOSUMDB"] = unlisted
    try:
        done = subprocess.run(
            [go_program(), *arguments],
            cwd=directory,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        raise ClusterError(f"go {arguments[0]} failed: {error.stderr.strip()}") from error
    return done.stdout
