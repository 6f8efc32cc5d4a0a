"""A run that is told to end leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.directories import open_directory
from tools.docs import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
]

PATIENCE = 180.0


def children(process: int) -> dict[int, str]:
    """All that descend from it, and their commands."""
    found: dict[int, str] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, IndexError):
            continue
        if parent == process:
            number = int(stat.parent.name)
            found |= {number: command} | children(number)
    return found


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_its_processes_end_with_it(number: signal.Signals) -> None:
    with open_directory() as directory:
        run = subprocess.Popen(
            [sys.executable, "-m", "simulator", "run", "--seeds", "0..3", "--jobs", "200"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(directory)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE
        workers: list[int] = []
        while len(workers) < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
            found = children(run.pid)
            # Each has opened its database, and is at work.
            workers = [each for each, command in found.items() if "spawn_main" in command]
            if sum("sim_" in command for command in found.values()) < 2:
                workers = []
        assert len(workers) == 2
        run.send_signal(number)
        run.wait(PATIENCE)
        while any(alive(each) for each in found) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert {each: command for each, command in found.items() if alive(each)} == {}
