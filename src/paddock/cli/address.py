"""The address of a data directory's running paddock, shown when a second one is started there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "up.address"


class AlreadyRunning(Exception):
    """paddock already runs in that directory; the sentence gives its address."""


def refuse_a_second(data_dir: Path) -> None:
    """Raises AlreadyRunning."""
    try:
        descriptor = os.open(data_dir / _NAME, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid, _, url = os.pread(descriptor, 1000, 0).decode(errors="replace").strip().partition(" ")
        where = f"it can be opened at {url}" if url else "it is about to be ready"
        raise AlreadyRunning(
            f"paddock already runs on {data_dir} (process {pid}): {where}. Stop that one, or "
            "choose another directory with --data-dir."
        ) from None
    finally:
        os.close(descriptor)


@contextmanager
def published(data_dir: Path) -> Iterator[Callable[[str], None]]:
    """Publish the address for the length of the block. The kernel releases the lock when the process
    ends, however it ends. The file stays, and is ignored without the lock."""
    data_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(data_dir / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(url: str) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {url}\n".encode(), 0)

    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refuse_a_second(data_dir)
        write("")
        yield write
    finally:
        os.close(descriptor)
