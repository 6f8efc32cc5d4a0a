"""A fake GitHub over real HTTP, and real runner processes against it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from paddock.fakes.github import FakeGitHub, JobSpec, Step
from paddock.fakes.github.records import Account, Installation, Job, Repository, Runner
from paddock.fakes.github.server import serving, wall_clock

#: For what takes moments; a test that waits this long has failed.
_PATIENCE = 30.0

CONTROL_SECRET = "the test's own"

#: Divides the runner's own waiting times.
_SPEEDUP = "100"


@dataclass
class Process:
    runner: Runner
    process: asyncio.subprocess.Process
    _seen: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    async def says(self, landmark: str) -> None:
        """Waits until the runner has printed that."""
        assert self.process.stdout is not None
        async with asyncio.timeout(_PATIENCE):
            while not any(landmark in line for line in self._seen):
                line = await self.process.stdout.readline()
                assert line, f"It ended without {landmark!r}; it said {self._seen}."
                self._seen.append(line.decode().rstrip())

    async def ends(self) -> tuple[int, str]:
        """Its exit code (negative: the signal that killed it) and its whole output."""
        async with asyncio.timeout(_PATIENCE):
            rest, _ = await self.process.communicate()
        assert self.process.returncode is not None
        self._seen += rest.decode().splitlines()
        return self.process.returncode, "\n".join(self._seen)


@dataclass
class World:
    github: FakeGitHub
    url: str
    organization: Account
    repository: Repository
    installation: Installation
    directory: Path
    _started: list[asyncio.subprocess.Process] = field(default_factory=list)

    def mint(self, name: str = "r1") -> tuple[Runner, str]:
        group = self.github.world.groups[self.organization.id][0]
        minted = self.github.runners.mint(
            self.organization, name=name, group=group, labels=["linux"]
        )
        return minted.runner, minted.encoded_jit_config

    def queue(self, *scripts: str, die: str | None = None, name: str = "build") -> Job:
        steps = tuple(Step(f"step {n}", run) for n, run in enumerate(scripts))
        spec = JobSpec(name=name, labels=("linux",), steps=steps, die=die)
        return self.github.jobs.queue_run(self.repository, [spec]).jobs[0]

    async def start(
        self,
        *arguments: str,
        name: str = "r1",
        jit: tuple[Runner, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Starts `python -m paddock.fakes.runner run` with a JIT of its own, or the one given."""
        runner, encoded = jit or self.mint(name)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "paddock.fakes.runner", "run", *arguments),
            env=os.environ
            | {"ACTIONS_RUNNER_INPUT_JITCONFIG": encoded, "PADDOCK_FAKE_RUNNER_SPEEDUP": _SPEEDUP}
            | dict(env or {}),
            cwd=self.directory,
            stdout=asyncio.subprocess.PIPE,
        )
        self._started.append(process)
        return Process(runner, process)

    async def stop(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE):
            while not condition():  # noqa: ASYNC110 - it looks at another process
                await asyncio.sleep(0.01)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    github = FakeGitHub(now=wall_clock, rng=Random(1))
    async with serving(github, control_secret=CONTROL_SECRET) as url:
        app = github.accounts.add_app("paddock")
        organization = github.accounts.add_organization("octo-org")
        repository = github.accounts.add_repository(organization, "hello")
        installation = github.accounts.install(app, organization)
        world = World(github, url, organization, repository, installation, tmp_path)
        try:
            yield world
        finally:
            await world.stop()
