"""One fake GitHub with one runner program: what a case sets up, does, and checks."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

from paddock.fakes.github import FakeGitHub, FaultKind, JobSpec, Step
from paddock.fakes.github.jobs import LOST_COMMUNICATION
from paddock.fakes.github.records import Account, Job, JobStatus, Repository, Runner
from paddock.fakes.github.server import serving, wall_clock

#: How long a case waits for an expected event. No known runner waits longer than 75 s by itself.
PATIENCE: Final = 150.0

_JIT_VARIABLE: Final = "ACTIONS_RUNNER_INPUT_JITCONFIG"
#: The lines by which runner programs report that they listen, and that a job runs.
LISTENS: Final = re.compile(r"Listening for Jobs")
RUNS: Final = re.compile(r"Running [Jj]ob")

#: The part of the environment that a runner gets. The rest may hold secrets, and steps run with it.
_INHERITED: Final = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "DOTNET_ROOT")


class Late(Exception):
    """An expected event did not happen in time."""


@dataclass
class Program:
    """A started runner program."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)
    _reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, command: Sequence[str], jit: str, directory: Path) -> Program:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            *_own_copy(command, directory),
            cwd=directory,
            env={
                **environment,
                _JIT_VARIABLE: jit,
                "HOME": str(directory),
                "RUNNER_ALLOW_RUNASROOT": "1",
                "RUNNER_MANUALLY_TRAP_SIG": "1",
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
        program = cls(process)
        program._reader = asyncio.create_task(program._read())
        return program

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip())

    def said(self, pattern: re.Pattern[str]) -> bool:
        return any(pattern.search(line) for line in self.lines)

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    async def ended(self, within: float = PATIENCE) -> int:
        try:
            async with asyncio.timeout(within):
                code = await self.process.wait()
        except TimeoutError:
            raise Late(f"the program still runs after {within:.0f} s") from None
        with suppress(TimeoutError):
            async with asyncio.timeout(2):  # a step that was left behind may hold the pipe
                assert self._reader is not None
                await asyncio.shield(self._reader)
        return code

    async def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        if self._reader is not None:
            self._reader.cancel()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # temporary files are on another disk
        shutil.copy2(source, target, follow_symlinks=False)


def _own_copy(command: Sequence[str], directory: Path) -> list[str]:
    """actions/runner keeps its configuration beside itself, so each case has a copy, made of links."""
    # Not resolved where it stays: the Python of an environment is a link, and knows it by that.
    started = Path(shutil.which(command[0]) or command[0]).absolute()
    program = started.resolve()
    for root in (program.parent, program.parent.parent):
        if (root / "bin" / "Runner.Listener").exists():
            copy = directory / "runner"
            if not copy.exists():
                shutil.copytree(root, copy, symlinks=True, copy_function=_link)
            return [str(copy / program.relative_to(root)), *command[1:]]
    return [str(started), *command[1:]]


@dataclass
class Stage:
    github: FakeGitHub
    organization: Account
    repository: Repository
    command: Sequence[str]
    directory: Path
    #: How long GitHub is unavailable in the cases of an outage.
    outage: float
    runner: Runner | None = None
    job: Job | None = None
    program: Program | None = None
    _programs: list[Program] = field(default_factory=list)
    _jit: str = ""

    @classmethod
    @asynccontextmanager
    async def ready(
        cls, command: Sequence[str], directory: Path, outage: float
    ) -> AsyncIterator[Stage]:
        github = FakeGitHub(now=wall_clock, rng=Random(1))  # noqa: S311
        async with serving(github):
            app = github.accounts.add_app("paddock")
            organization = github.accounts.add_organization("octo-org")
            repository = github.accounts.add_repository(organization, "hello")
            github.accounts.install(app, organization)
            stage = cls(github, organization, repository, command, directory, outage)
            try:
                yield stage
            finally:
                for program in stage._programs:
                    await program.stop()

    # The case's actions.

    def queue(self, *scripts: str, spec: JobSpec | None = None) -> Job:
        steps = tuple(Step(f"step {number}", script) for number, script in enumerate(scripts, 1))
        wanted = spec or JobSpec(name="build", labels=("linux",), steps=steps)
        [job] = self.github.jobs.queue_run(self.repository, [wanted]).jobs
        self.job = self.job or job
        return job

    def mint(self) -> None:
        group = self.github.world.groups[self.organization.id][0]
        minted = self.github.runners.mint(
            self.organization, name="runner-1", group=group, labels=["linux"]
        )
        self.runner, self._jit = minted.runner, minted.encoded_jit_config

    async def start(self) -> Program:
        """With one JIT for all its starts."""
        if self.runner is None:
            self.mint()
        started = await Program.start(self.command, self._jit, self.directory)
        self.program = self.program or started
        self._programs.append(started)
        return started

    async def listening(self) -> Program:
        program = await self.start()
        await self.reached(program, lambda: program.said(LISTENS), "it listens")
        await asyncio.sleep(0.3)  # its poll is under way
        return program

    async def busy(self, script: str = "echo begun; sleep 600") -> Program:
        job = self.queue(script)
        program = await self.start()
        begun = JobStatus.IN_PROGRESS
        await self.reached(program, lambda: job.status is begun, "the job begins")
        await self.reached(program, lambda: program.said(RUNS), "it says so")
        await asyncio.sleep(1.0)  # its step runs
        return program

    def shorten_lease(self, seconds: float) -> None:
        world = self.github.world
        world.timing = replace(world.timing, lease=seconds, lost_lingers=(0.0, 0.0))

    def inject(
        self, kind: FaultKind, route: str, *, times: int | None = 1, seconds: float | None = None
    ) -> None:
        self.github.inject(kind, route=route, times=times, seconds=seconds)

    def unavailable(self, route: str) -> None:
        self.inject(FaultKind.UNAVAILABLE, route, times=None, seconds=self.outage)

    async def reached(self, program: Program, seen: Callable[[], bool], what: str) -> None:
        await self.until(lambda: seen() or not program.alive, what)
        if not program.alive:
            raise Late(f"it ended with {program.process.returncode} before {what}")

    async def until(self, seen: Callable[[], bool], what: str, within: float | None = None) -> None:
        limit = PATIENCE + self.outage if within is None else within
        try:
            async with asyncio.timeout(limit):
                while not seen():  # noqa: ASYNC110 - it looks at another process
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise Late(f"not within {limit:.0f} s: {what}") from None

    async def completed(self) -> None:
        job = self.job
        assert job is not None
        await self.until(lambda: job.status is JobStatus.COMPLETED, "the job completes")

    # The outcome.

    @property
    def outcome(self) -> str:
        """The job, as GitHub sees it."""
        if self.job is None:
            return "none"
        if self.job.annotation == LOST_COMMUNICATION:
            return "lost"
        return str(self.job.conclusion or self.job.status)

    @property
    def record(self) -> str:
        """The runner's record, as GitHub sees it."""
        if self.runner is None:
            return "none"
        if self.runner.removed:
            return f"removed ({self.runner.removed})"
        return "online" if self.github.world.online(self.runner) else "offline"
