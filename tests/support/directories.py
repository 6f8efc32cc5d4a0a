"""Directories in which a PostgreSQL can run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_directory() -> Iterator[Path]:
    """Temporary, and open to PostgreSQL's user when the tests run as root, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="paddock-test-"))
    path.chmod(0o711 if os.geteuid() == 0 else 0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
