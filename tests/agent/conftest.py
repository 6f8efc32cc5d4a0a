"""A Pod without a cluster: its stage, its token, and the agent's programs as real processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import paddock.agent
from paddock.agent.stage import Stage
from tests.agent.scripted import PATIENCE, Scripted, scripted_server

AGENT = Path(paddock.agent.__file__).parent
TOKEN = "token-that-no-log-may-show"
JIT = "aml0LXRoYXQtbm9ib2R5LW1heS1zZWU="

#: The interpreter as images start it: without the virtual environment.
PYTHON = [sys.executable, "-I", "-S"]

#: Set in the environment of every process of a test, to find processes that it left behind.
MARK = "PADDOCK_TEST_POD"


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.err.splitlines()]

    def says(self, event: str) -> bool:
        return any(each["event"] == event for each in self.events)


@dataclass
class Process:
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        resident = int(status.partition("VmRSS:")[2].split()[0]) / 1024
        sys.stdout.write(f"{resident:.1f} MB resident: {command_line(self.pid)[-200:]!r}\n")
        return resident

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def says(self, words: str) -> None:
        """Waits for these words on stderr; `ends` returns only later output."""
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while words not in (line := (await self.process.stderr.readline()).decode()):
                assert line, f"It ended without saying {words!r}."

    async def ends(self) -> Ended:
        """Negative codes are signals."""
        async with asyncio.timeout(PATIENCE):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return Ended(self.process.returncode, out.decode(), err.decode())


@dataclass
class Pod:
    server: Scripted
    directory: Path
    #: Divides the agent's own waiting times.
    speedup: str = "20"
    _started: list[Process] = field(default_factory=list)

    @property
    def stage(self) -> Path:
        return self.directory / "stage"

    @property
    def token_file(self) -> Path:
        return self.directory / "token"

    @property
    def staged(self) -> list[str]:
        return sorted(path.name for path in self.stage.iterdir())

    @property
    def mark(self) -> str:
        return str(self.directory)

    def put(self, jit: str = JIT) -> None:
        """Writes as the poller does."""
        stage = Stage(str(self.stage), uid=os.geteuid(), gid=-1)
        stage.prepare()
        stage.put(jit=jit, runner_name="r-1")

    async def start(
        self,
        *argv: str,
        env: dict[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> Process:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        started = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.directory,
            env={**kept, MARK: self.mark, **(env or {})},
            preexec_fn=before,
            start_new_session=True,
        )
        process = Process(started)
        self._started.append(process)
        return process

    async def agent(
        self,
        command: str,
        *more: str,
        env: dict[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> Process:
        options = ["--server", self.server.url, "--token-file", str(self.token_file)]
        options += ["--stage", str(self.stage), *more]
        speedup = {"PADDOCK_AGENT_SPEEDUP": self.speedup}
        return await self.start(
            *PYTHON, str(AGENT), command, *options, env={**speedup, **(env or {})}, before=before
        )

    async def poll(self, *more: str, **how: Any) -> Process:
        return await self.agent("poll", *more, **how)

    async def run(
        self, shell: list[str], *command: str, env: dict[str, str] | None = None
    ) -> Process:
        return await self.start(*shell, str(self.stage / "run"), *command, env=env)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - it looks at another process
                await asyncio.sleep(0.01)

    def left_behind(self) -> list[int]:
        return [pid for pid in processes() if self.mark in environment(pid)]

    async def stop(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.process.communicate()


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def shells() -> list[Any]:
    """The shells of existing images: Debian's, Alpine's, Red Hat's."""
    found = [["dash"], ["busybox", "ash"], ["bash", "--posix"]]
    return [
        pytest.param(
            shell,
            id=shell[0],
            marks=pytest.mark.skipif(shutil.which(shell[0]) is None, reason=f"no {shell[0]} here"),
        )
        for shell in found
    ]


@pytest.fixture(params=shells())
def shell(request: pytest.FixtureRequest) -> list[str]:
    found: list[str] = request.param
    return found


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    async with scripted_server() as scripted:
        yield scripted


@pytest.fixture
async def pod(server: Scripted, directory: Path) -> AsyncIterator[Pod]:
    pod = Pod(server, directory)
    pod.stage.mkdir()
    pod.token_file.write_text(TOKEN + "\n")
    try:
        yield pod
    finally:
        await pod.stop()
