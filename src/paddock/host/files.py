"""Files that other programs read at any moment: each is there whole, or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def text(path: Path) -> str | None:
    """The file's text; `None` if there is no file."""
    try:
        return path.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return None


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other processes out: one would flush the rules that another has just loaded."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.chmod(0o644)
    part.replace(path)
