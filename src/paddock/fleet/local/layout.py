"""What stands where in a Pod's directory, and how it is written there.

    pod.json      what the Pod is and runs; written by the fleet
    status.json   how it is; written by its supervisor, or for a supervisor that is no more
    deleting      when its deletion was asked for
    reaped        its end is on record elsewhere: all of this may go
    lock          held by the supervisor for as long as it lives
    token         who it is, to the dispatch endpoint; gone before the runner starts
    vitals-token  the same for its sidecar, and good for nothing else
    stage/        its JIT and start script
    work/         where the runner works
    *.log         what its processes said; *.log.old, before that

Beside the directories of all Pods stands `.server`, the address of the server they ask.

The lock answers whether a supervisor lives. The kernel lets go of it with the process, however that
ended, and no pid can be mistaken for another.

Standard library only: every Pod's supervisor loads this.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

POD = "pod.json"
STATUS = "status.json"
DELETING = "deleting"
REAPED = "reaped"
LOCK = "lock"
TOKEN = "token"  # noqa: S105 - a file's name
VITALS_TOKEN = "vitals-token"  # noqa: S105
STAGE = "stage"
WORK = "work"
#: Not a name that a Pod could have.
SERVER = ".server"


def write(path: Path, content: bytes) -> None:
    """Whoever reads it reads all of it or the whole of what was there before, also after a power
    cut."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    partial.replace(path)


def write_json(path: Path, value: Any) -> None:
    write(path, json.dumps(value).encode())


def sync(directory: Path) -> None:
    """What was made or renamed in it is still there after a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(directory: Path) -> Iterator[bool]:
    """Whether the lock was free, which it then is not for the length of the block."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def clear(directory: Path) -> None:
    """What is of no use after the end: the secrets, and all that the job left."""
    import shutil  # a supervisor needs it for its last moment only

    for name in (TOKEN, VITALS_TOKEN):
        (directory / name).unlink(missing_ok=True)
    for name in (STAGE, WORK):
        shutil.rmtree(directory / name, ignore_errors=True)
