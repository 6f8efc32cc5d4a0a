"""The image as an archive in the format of the Open Container Initiative, made on this machine.

`root.sh` makes the same files as it does for the Dockerfile. Parts that change rarely (Debian's
packages and the dependencies) are a layer that is kept; paddock itself is another.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import platformdirs

from tools.cluster.archives import Image, Layer, write_archive
from tools.image.description import CHECKOUT, DIRECTORY, ROOT_SCRIPT, Description

#: Old layers of each part that are kept beside a new one: another checkout's, and those of a test.
_KEPT: Final = 4
_TOOLS: Final = ("apt-get", "awk", "dpkg-deb", "strip")


class CannotBuild(Exception):
    """Why the image cannot be built, in a sentence."""


class TreeLayer(Layer):
    """An existing layer, as a tar file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def content(self) -> bytes:
        return self._file.read_bytes()


def image(name: str, *, checkout: Path = CHECKOUT) -> Image:
    """Of this checkout's program, or of another's."""
    of = Description.read()
    return Image(
        name,
        layers=(TreeLayer(_base(of)), TreeLayer(_program(checkout))),
        entrypoint=of.entrypoint,
        environment=[f"{key}={value}" for key, value in of.environment.items()],
        user=f"{of.user}:{of.user}",
    )


def write(file: Path, name: str) -> None:
    write_archive(file, [image(name)])


def _base(of: Description) -> Path:
    release = _release()
    if release != of.release:
        raise CannotBuild(
            f"The image is made of Debian {of.release}'s packages, and this machine has "
            f"{release or 'another system'}: use deploy/image/Dockerfile."
        )
    return _kept(f"base-{_base_digest()}", "base", of.packages)


def _program(checkout: Path) -> Path:
    return _kept(f"program-{_program_digest(checkout)}", "program", [], checkout)


def _kept(name: str, part: str, arguments: list[str], checkout: Path = CHECKOUT) -> Path:
    kept = platformdirs.user_cache_path("paddock") / "image" / f"{name}.tar"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory) / "root"
            root.mkdir(mode=0o755)
            _run(part, str(root), *arguments, checkout=checkout)
            kept.parent.mkdir(parents=True, exist_ok=True)
            for older in sorted(kept.parent.glob(f"{part}-*.tar"), key=_age)[_KEPT:]:
                older.unlink()
            packed = Path(directory) / "layer.tar"
            _pack(root, packed)
            # Another process may build the same layer: the rename makes it appear whole or not at all.
            shutil.copyfile(packed, kept.with_suffix(f".{os.getpid()}"))
            kept.with_suffix(f".{os.getpid()}").rename(kept)
    return kept


def _run(*arguments: str, checkout: Path) -> None:
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            raise CannotBuild(f"There is no {tool} here: use deploy/image/Dockerfile.")
    done = subprocess.run(
        ["/bin/sh", str(CHECKOUT / ROOT_SCRIPT), *arguments],
        cwd=checkout,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotBuild(f"{ROOT_SCRIPT} failed: {done.stderr.strip()[-2000:]}")


def _pack(root: Path, file: Path) -> None:
    """All files belong to root and have the oldest date: the same files make the same layer."""
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            entry = tar.gettarinfo(path, str(path.relative_to(root)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            tar.addfile(entry, io.BytesIO(path.read_bytes()) if entry.isreg() else None)


def _base_digest() -> str:
    files = (
        DIRECTORY / "image.toml",
        CHECKOUT / ROOT_SCRIPT,
        CHECKOUT / "requirements" / "run.lock",
    )
    return _digest(*files)


def _program_digest(checkout: Path) -> str:
    source = checkout / "src" / "paddock"
    files = (path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return _digest(CHECKOUT / ROOT_SCRIPT, *sorted(files))


def _digest(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.parent.name}/{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _age(file: Path) -> float:
    return -file.stat().st_mtime


def _release() -> str:
    text = Path("/etc/os-release").read_text("utf-8")
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return facts.get("VERSION_CODENAME", "") if facts.get("ID") == "debian" else ""
