"""The tests' images, made from this machine's files: busybox, this Python, paddock's source.

    busybox     a shell and the usual tools; also runs the sandbox of every Pod (`pause`)
    agent       Python and `paddock.agent`, which it runs
    runner      Python and the fake runner, where images for runners have the real one
    act-runner  github-act-runner, if `make runner` has built it

They are imported into the node's containerd, never pulled. Their names cannot be resolved (.test is
reserved), so a Pod that would pull one fails at once and does not reach a foreign image.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from tools.cluster import binaries
from tools.cluster.archives import Image, Layer, write_archive
from tools.cluster.facts import PAUSE
from tools.cluster.layout import Layout
from tools.cluster.node import ctr
from tools.cluster.rootfs import (
    SOURCE,
    add_busybox,
    add_paddock,
    add_python,
    add_users,
    paddock_files,
)

BUSYBOX: Final = "paddock.test/busybox:1"
AGENT: Final = "paddock.test/agent:1"
RUNNER: Final = "paddock.test/runner:1"
ACT_RUNNER: Final = "paddock.test/act-runner:1"

RUNNER_UID: Final = 1001
AGENT_UID: Final = 65532
_RUNNER_HOME: Final = "/home/runner"
_LISTENER: Final = b'#!/bin/sh\nexec python3 -m paddock.fakes.runner "$@"\n'
_PATH: Final = "PATH=/usr/local/bin:/bin"


def import_all(layout: Layout) -> None:
    archive = layout.node / "images.tar"
    program = binaries.find(binaries.RUNNER)
    third_party = [act_runner(program)] if program else []
    write_archive(archive, [pause(), busybox(), agent(), runner(), *third_party])
    ctr(layout, "images", "import", str(archive))
    archive.unlink()
    _mark(layout).write_text(_digest())


def import_if_changed(layout: Layout) -> None:
    """Tests run the source as it is now, not as it was when the cluster was started."""
    mark = _mark(layout)
    if not mark.exists() or mark.read_text() != _digest():
        import_all(layout)


def pause() -> Image:
    forever = ("/bin/sleep", "2147483647")
    return Image(PAUSE, (_shell(),), command=forever, environment=(_PATH,))


def busybox() -> Image:
    return Image(BUSYBOX, (_shell(),), command=("/bin/sh",), environment=(_PATH,))


def agent() -> Image:
    return Image(
        AGENT,
        (_shell(), _python(), _source()),
        entrypoint=("python3", "-I", "-S", f"{SOURCE}/paddock/agent"),
        environment=(_PATH,),
        user=f"{AGENT_UID}:{AGENT_UID}",
    )


def runner() -> Image:
    listener = Layer()
    listener.directory(_RUNNER_HOME, owner=RUNNER_UID)
    listener.file(f"{_RUNNER_HOME}/bin/Runner.Listener", _LISTENER, mode=0o755)
    return Image(
        RUNNER,
        (_shell(), _python(), _source(), listener),
        command=(f"{_RUNNER_HOME}/bin/Runner.Listener", "run"),
        environment=(_PATH, f"PYTHONPATH={SOURCE}"),
        user=f"{RUNNER_UID}:{RUNNER_UID}",
        directory=_RUNNER_HOME,
    )


def act_runner(program: Path) -> Image:
    home = Layer()
    # It writes beside itself, and below HOME.
    home.directory(_RUNNER_HOME, owner=RUNNER_UID)
    home.copy(program, f"{_RUNNER_HOME}/{binaries.RUNNER}")
    return Image(
        ACT_RUNNER,
        (_shell(), home),
        command=(f"{_RUNNER_HOME}/{binaries.RUNNER}", "run"),
        environment=(_PATH, f"HOME={_RUNNER_HOME}"),
        user=f"{RUNNER_UID}:{RUNNER_UID}",
        directory=_RUNNER_HOME,
    )


@cache
def _shell() -> Layer:
    layer = Layer()
    add_busybox(layer)
    add_users(layer, runner=(RUNNER_UID, _RUNNER_HOME), agent=(AGENT_UID, "/"))
    return layer


@cache
def _python() -> Layer:
    layer = Layer()
    add_python(layer)
    return layer


def _source() -> Layer:
    layer = Layer()
    add_paddock(layer)
    return layer


def _mark(layout: Layout) -> Path:
    return layout.node / "images.digest"


def _digest() -> str:
    digest = hashlib.sha256()
    for part in (*sorted(Path(__file__).parent.glob("*.py")), *paddock_files()):
        digest.update(part.read_bytes())
    digest.update(str(binaries.find(binaries.RUNNER)).encode())
    return digest.hexdigest()
