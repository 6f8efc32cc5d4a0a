"""`paddock up` with a runner program that others wrote, at a fake GitHub in the test's hands."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import pytest

from paddock.fakes.github import FakeGitHub, FaultKind, JobSpec, Step
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.records import App, Job, JobStatus, Repository
from paddock.fakes.github.server import serving, wall_clock
from paddock.store.data_directory import running_url
from tests.http.test_up import up
from tests.support.directories import open_directory
from tests.support.processes import paddock
from tools.cluster.binaries import RUNNER, find
from tools.ports import free_port

LABELS = ("self-hosted", "linux")
#: For how long GitHub is unavailable, where a test says so. An outage of minutes takes minutes.
OUTAGE = float(os.environ.get("PADDOCK_TEST_OUTAGE", "8"))
#: For how long the runner repeats a report.
REPORTS_FOR = 90.0
#: Each refuses one call, which the runner repeats within half a minute.
REPEATED = (
    (FaultKind.CONFLICT, "runner.session"),
    (FaultKind.CONFLICT, "runner.acquire"),
    (FaultKind.NOT_FOUND, "runner.acquire"),
    (FaultKind.BAD_CREDENTIALS, "runner.acquire"),
)
#: From a queued job to its runner's end, on a machine with other load.
PATIENCE = 112.0 + OUTAGE
SECRET = "secret"

_POOL = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {{name: local}}
spec:
  labels: [self-hosted, linux]
  resources: {{vcpu: 1, memory: 256Mi}}
  minIdle: {idle}
  maxRunners: {most}
{more}
"""


def third_party_runner() -> Path:
    """Skips the test, or fails it, if `make runner` has not built it."""
    program = find(RUNNER)
    if program is None and os.environ.get("PADDOCK_REQUIRE_RUNNER") == "1":
        pytest.fail("PADDOCK_REQUIRE_RUNNER=1, but make runner has not built it")
    if program is None:
        pytest.skip("make runner has not built it")
    return program


@dataclass
class ThirdPartySite:
    runner: Path
    directory: Path
    fake: FakeGitHub
    app: App
    repository: Repository
    environment: dict[str, str]
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = None
    _server: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    def log(self) -> str:
        return (self.directory / "up.log").read_text()

    async def start(self) -> None:
        started = up(self.data_dir, port=self.port, environment=self.environment)
        self.process = await self._server.enter_async_context(started)
        self.app.webhook_url = f"http://127.0.0.1:{self.port}/webhooks/github"
        await self.until("SELECT count(*) > 0 FROM pools")

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        await self._server.aclose()

    async def pool(self, *, idle: int = 2, most: int = 12, more: str = "") -> None:
        """Applies it, and waits for its Pods."""
        file = self.directory / "pool.yaml"
        file.write_text(_POOL.format(idle=idle, most=most, more=more))
        applied = await paddock("pools", "apply", file, "--data-dir", self.data_dir)
        assert applied.code == 0, applied.err
        await self.until(
            "SELECT count(*) >= $1 FROM runners r JOIN pools p ON p.spec_hash = r.spec_hash"
            " WHERE r.state = 'idle'",
            idle,
        )

    def queue(self, *scripts: str, name: str = "build", jobs: int = 1) -> list[Job]:
        steps = tuple(Step(f"step {number}", script) for number, script in enumerate(scripts, 1))
        specs = [JobSpec(name=name, labels=LABELS, steps=steps)] * jobs
        return self.fake.jobs.queue_run(self.repository, specs).jobs

    def gate(self, name: str = "gate") -> str:
        """A step that ends when the gate is opened."""
        return f"echo begun; while [ ! -e {self.directory}/{name} ]; do sleep 0.1; done"

    def open(self, name: str = "gate") -> None:
        (self.directory / name).touch()

    def inject(self, kind: FaultKind, route: str | None, **more: Any) -> None:
        self.fake.inject(kind, route=route, **more)

    def timing(self, **changes: Any) -> None:
        self.fake.world.timing = replace(self.fake.world.timing, **changes)

    async def rows(self, query: str, *args: object) -> list[tuple[Any, ...]]:
        url = running_url(self.data_dir)
        if url is None:
            return []
        try:
            connection = await asyncpg.connect(url)
        except (OSError, asyncpg.PostgresError):
            return []
        try:
            return [tuple(row) for row in await connection.fetch(query, *args)]
        except asyncpg.UndefinedTableError:
            return []
        finally:
            await connection.close()

    async def until(self, query: str, *args: object) -> Any:
        """The query's one value, as soon as it is there."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while asyncio.get_running_loop().time() < deadline:
            for (value,) in await self.rows(query, *args):
                if value:
                    return value
            await asyncio.sleep(0.1)
        raise AssertionError(f"{query} {args}\n{await self._state()}")

    async def _state(self) -> str:
        runners = await self.rows("SELECT pod_name, state, name, since FROM runners")
        return f"{runners}\n{self.log()[-4000:]}"

    async def happens(self, seen: Callable[[], bool], what: str) -> None:
        """At GitHub."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not seen():
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"{what}\n{await self._state()}")
            await asyncio.sleep(0.05)

    async def begins(self, job: Job) -> str:
        """Returns its Pod's name."""
        await self.happens(lambda: job.runner is not None, f"{job.spec.name} begins")
        assert job.runner is not None
        return job.runner.name.rpartition("-")[0]

    async def completes(self, job: Job) -> str | None:
        await self.happens(lambda: job.status is JobStatus.COMPLETED, f"{job.spec.name} completes")
        return job.conclusion

    async def verdict(self, pod: str) -> dict[str, Any]:
        """When its log was read, or given up."""
        query = """
        SELECT v.ending::text, v.exit_code, v.log_tail FROM verdicts v
          JOIN runners r ON r.id = v.runner_id
         WHERE r.pod_name = $1 AND v.log_wanted_until IS NULL
        """
        await self.until(f"SELECT count(*) FROM ({query}) AS found", pod)
        [(ending, code, log)] = await self.rows(query, pod)
        return {"ending": ending, "code": code, "log": log or ""}

    def runner_of(self, pod: str) -> int:
        """The process of the runner program."""
        work = self.data_dir / "runners" / pod / "work"
        found = [
            pid for pid, command in processes_in(work) if command.startswith("./github-act-runner")
        ]
        assert len(found) == 1, processes_in(work)
        return found[0]

    async def settled(self) -> None:
        """Nothing is left but idle runners: no debt, no record at GitHub, no runner at work."""
        await self.until(
            "SELECT NOT EXISTS (SELECT FROM runners WHERE state NOT IN ('gone', 'idle', 'booting'))"
        )
        await self.until(
            "SELECT NOT EXISTS (SELECT FROM mints m JOIN runners r ON r.id = m.runner_id"
            " WHERE r.state = 'gone' AND m.state <> 'settled')"
        )
        await self.happens(lambda: not self.fake.world.runners, "no record is left at GitHub")


def processes_in(directory: Path) -> list[tuple[int, str]]:
    """Those whose working directory is in it: their ids and command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink().is_relative_to(directory):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                found.append((int(entry.name), command.decode(errors="replace")))
        except OSError:
            continue
    return found


@asynccontextmanager
async def third_party_site(**settings: str) -> AsyncIterator[ThirdPartySite]:
    """Nothing that ran in it is left at its end."""
    runner = third_party_runner()
    key = make_private_key()
    fake = FakeGitHub(now=wall_clock, rng=Random(1))
    app = fake.accounts.add_app("paddock", public_keys=[public_half(key)], webhook_secret=SECRET)
    acme = fake.accounts.add_organization("acme")
    repository = fake.accounts.add_repository(acme, "site")
    fake.accounts.install(app, acme)
    with open_directory() as directory:
        key_file = directory / "app.pem"
        key_file.write_text(key)
        async with serving(fake) as url:
            environment = {
                "PADDOCK_GITHUB_APP_ID": str(app.id),
                "PADDOCK_GITHUB_PRIVATE_KEY_FILE": str(key_file),
                "PADDOCK_GITHUB_WEBHOOK_SECRET": SECRET,
                "PADDOCK_GITHUB_API_URL": url,
                "PADDOCK_LOCAL_RUNNER": str(runner.parent),
                "PADDOCK_LOG_LEVEL": "info",
                "HOME": str(directory),
                **settings,
            }
            site = ThirdPartySite(runner, directory, fake, app, repository, environment)
            await site.start()
            try:
                yield site
            finally:
                await site.stop()
        left = processes_in(directory)
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        assert left == []
