"""Real disks that are full or read-only. Mounting them requires root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(mount_point: Path, *, size: str) -> Iterator[Path]:
    with _mounted(mount_point, f"size={size},mode=0711"):
        yield mount_point


@contextmanager
def read_only_directory(path: Path) -> Iterator[Path]:
    """Root writes where permissions forbid it; only a disk mounted read-only stops it."""
    if os.geteuid() != 0:
        path.mkdir(mode=0o500)
        yield path
        return
    with _mounted(path, "ro,mode=0755"):
        yield path


@contextmanager
def _mounted(mount_point: Path, options: str) -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("mounting a disk takes root")
    mount_point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(mount_point)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if answer.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {answer.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


def fill(directory: Path) -> Path:
    """Fills the disk; returns the file that does."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1024 * 1024, 4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return ballast
