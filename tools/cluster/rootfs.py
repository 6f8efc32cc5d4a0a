"""The content of the images: a shell, this interpreter with its libraries, paddock's source."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import paddock
from tools.cluster.archives import Layer
from tools.cluster.errors import Missing

#: Where paddock's source is in an image.
SOURCE: Final = "/opt/paddock"

_PACKAGE: Final = Path(paddock.__file__).parent
#: The modules that run inside a Pod; they use the standard library alone.
_PARTS: Final = ("__init__.py", "agent/*", "fakes/__init__.py", "fakes/runner*.py")

_LEFT_OUT: Final = re.compile(
    r"/(site-packages|dist-packages|tests?|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data"
    r"|config-[^/]*)(/|$)|\.opt-[12]\.pyc$|\.a$"
)


def add_busybox(layer: Layer) -> None:
    found = shutil.which("busybox")
    if found is None:
        raise Missing("There is no busybox to make images from: install busybox-static.")
    busybox = Path(found).resolve()
    if _libraries(busybox):
        raise Missing(
            "This busybox needs libraries that images do not have: install busybox-static."
        )
    layer.copy(busybox, "/bin/busybox")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    for applet in applets.stdout.split():
        layer.link(f"/bin/{applet}", "/bin/busybox")
    layer.directory("/tmp", mode=0o1777)  # noqa: S108  an image's own


def add_users(layer: Layer, **users: tuple[int, str]) -> None:
    users_and_root = {"root": (0, "/"), **users}
    passwd = (
        f"{name}:x:{uid}:{uid}::{home}:/bin/sh" for name, (uid, home) in users_and_root.items()
    )
    groups = (f"{name}:x:{uid}:" for name, (uid, _) in users_and_root.items())
    layer.file("/etc/passwd", "\n".join((*passwd, "")).encode())
    layer.file("/etc/group", "\n".join((*groups, "")).encode())


def add_python(layer: Layer) -> None:
    """At the same paths as here: an interpreter looks for its library beside itself."""
    program = Path(sys.executable).resolve()
    standard = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    files = [path for directory in standard for path in directory.rglob("*") if path.is_file()]
    kept = [path for path in files if not _LEFT_OUT.search(str(path))]
    needing = [program, *(path for path in kept if path.suffix == ".so")]
    for path in (program, *kept, *_libraries(*needing)):
        layer.copy(path)
    layer.link("/usr/local/bin/python3", str(program))


def add_paddock(layer: Layer) -> None:
    for path in paddock_files():
        layer.copy(path, f"{SOURCE}/paddock/{path.relative_to(_PACKAGE)}")


def paddock_files() -> Iterator[Path]:
    for part in _PARTS:
        yield from sorted(path for path in _PACKAGE.glob(part) if path.is_file())


def _libraries(*programs: Path) -> set[Path]:
    """The shared ones, the dynamic loader included."""
    listing = subprocess.run(
        ["ldd", *map(str, programs)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return {Path(found) for found in re.findall(r"(/\S+) \(0x", listing)}
