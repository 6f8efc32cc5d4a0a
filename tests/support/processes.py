"""paddock as a process of its own, and lists of processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paddock.store.data_directory import running_url

COMMAND = [sys.executable, "-c", "from paddock.cli import main; main()"]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
    usual = {"PADDOCK_DATABASE_WAIT": "0", "PADDOCK_LISTEN": "127.0.0.1:0", "COLUMNS": "100"}
    return {**kept, **usual, **extra}


async def paddock(*arguments: str | Path, **environment: str) -> Ended:
    """Runs a command to its end."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *map(str, arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(environment),
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


@dataclass
class Up:
    """A running `paddock up`, in a process group of its own, as a terminal gives it one."""

    process: asyncio.subprocess.Process
    data_dir: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        url = running_url(self.data_dir)
        assert url is not None
        return url

    def press_ctrl_c(self) -> None:
        os.killpg(self.pid, signal.SIGINT)

    async def ended(self) -> Ended:
        out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return Ended(self.process.returncode, out.decode(), err.decode())

    async def killed(self) -> None:
        self.process.kill()
        await self.process.communicate()


@asynccontextmanager
async def paddock_up(data_dir: Path) -> AsyncIterator[Up]:
    """Started, and ready when it says so."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "up",
        "--data-dir",
        str(data_dir),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment({"PYTHONUNBUFFERED": "1"}),
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        while (line := await process.stdout.readline()) and b"Ctrl-C stops it" not in line:
            pass
        yield Up(process, data_dir)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def processes_in(directory: Path) -> list[int]:
    """Processes whose working directory is below this one, as PostgreSQL's are."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink().is_relative_to(directory):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
