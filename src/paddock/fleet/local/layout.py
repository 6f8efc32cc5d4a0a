"""The files in a Pod's directory, and how they are written.

    pod.json      what the Pod is and runs; written by the fleet
    status.json   its state; written by its supervisor, or by the fleet once the supervisor is gone
    deleting      when its deletion was requested
    reaped        its end is recorded elsewhere: the directory may be removed
    lock          held by the supervisor for as long as it lives
    token         identifies the Pod to the dispatch endpoint; removed before the runner starts
    vitals-token  identifies its sidecar; valid only for vitals
    stage/        its JIT and start script
    work/         where the runner works
    *.log         the output of its processes; *.log.old is the part before

Beside the Pods' directories is `.server`, with the address of the server that Pods ask.

The lock shows whether a supervisor lives. The kernel releases it when the process ends, however it
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
#: No Pod can have this name.
SERVER = ".server"


def write(path: Path, content: bytes) -> None:
    """Replace the file in one step: a reader gets the whole new or the whole old content, also after a
    power cut."""
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
    """Make files that were created or renamed in the directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(directory: Path) -> Iterator[bool]:
    """Yields whether the lock was free; if so, holds it until the end of the block."""
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
    """Remove what is useless after the Pod's end: the secrets, and all that the job left."""
    import shutil  # a supervisor needs it only at its end

    for name in (TOKEN, VITALS_TOKEN):
        (directory / name).unlink(missing_ok=True)
    for name in (STAGE, WORK):
        shutil.rmtree(directory / name, ignore_errors=True)
