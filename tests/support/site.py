"""Servers as processes, over one database and one fake GitHub, and the Pods that poll them."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from paddock.domain.ids import PoolId, RunnerId
from paddock.domain.limits import Resources
from paddock.domain.names import PodName, PoolName, pod_name
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Runner
from paddock.fakes.github import FakeGitHub, JobSpec
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.records import App, Repository
from paddock.fakes.github.server import serving, wall_clock
from paddock.store.database import Database
from paddock.store.leadership import leading
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds
from tests.support.runner_rows import conclude_runner, read_runner
from tests.support.webhooks import PATH

LABELS = ("self-hosted", "linux")
SECRET = "secret"
ROOT = Path(__file__).parents[2]
#: GitHub's own limit.
MATRIX = 256
#: A server imports modules for a second; on a busy machine for many.
PATIENCE = 180.0

_KEY = make_private_key()


@dataclass
class Server:
    process: asyncio.subprocess.Process
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stop(self) -> None:
        """Stops the process as a frozen machine would: its connections stay open."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@dataclass
class Site:
    """A GitHub with one organisation, a pool, and a database for any number of servers."""

    database_url: str
    database: Database
    store: PgStore
    fake: FakeGitHub
    app: App
    repository: Repository
    pool: PoolId
    directory: Path
    _started: list[Server] = field(default_factory=list)

    async def server(self, name: str = "server", *, clock_ahead: float = 0.0) -> Server:
        """Starts it and waits until it is ready. Webhooks go to the server that was started last."""
        kept = {each: value for each, value in os.environ.items() if "PADDOCK" not in each}
        log = self.directory / f"{name}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "tests.support.fleetless", name),
                cwd=ROOT,
                env={**kept, **self._settings(), "CLOCK_AHEAD": str(clock_ahead)},
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        server = Server(process, url="")
        self._started.append(server)
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            server.url = (await process.stdout.readline()).decode().strip()
        assert server.url, log.read_text()
        self.app.webhook_url = server.url + PATH
        return server

    def _settings(self) -> dict[str, str]:
        return {
            "PADDOCK_DATABASE_URL": self.database_url,
            "PADDOCK_LISTEN": "127.0.0.1:0",
            "PADDOCK_SEALING_KEYS": base64.b64encode(b"1" * 32).decode(),
            "PADDOCK_GITHUB_APP_ID": str(self.app.id),
            "PADDOCK_GITHUB_PRIVATE_KEY_FILE": str(self.directory / "app.pem"),
            "PADDOCK_GITHUB_WEBHOOK_SECRET": SECRET,
            "PADDOCK_GITHUB_API_URL": self.fake.world.api_url,
        }

    async def end(self) -> None:
        for server in self._started:
            await server.kill()

    async def pods(self, count: int) -> list[PodName]:
        ids = SystemIds()
        pods = [
            (RunnerId(ids.uuid()), pod_name(PoolName("linux"), ids.suffix(10)))
            for _ in range(count)
        ]
        await self.store.plan_runners(self.pool, pods, why="test")
        return [name for _, name in pods]

    def queue(self, jobs: int = 1) -> None:
        for begin in range(0, jobs, MATRIX):
            specs = [JobSpec(labels=LABELS)] * min(MATRIX, jobs - begin)
            self.fake.jobs.queue_run(self.repository, specs)

    async def rows(self, query: str, *args: object) -> list[tuple[Any, ...]]:
        async with self.database.transaction() as connection:
            return [tuple(row) for row in await connection.fetch(query, *args)]

    async def until(self, query: str, wanted: object) -> None:
        """Waits until the query's one value is the wanted one."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if await self.rows(query) == [(wanted,)]:
                    return
                await asyncio.sleep(0.02)

    async def runner(self, pod: PodName) -> Runner:
        [(found,)] = await self.rows("SELECT id FROM runners WHERE pod_name = $1", pod)
        runner = await read_runner(self.store, RunnerId(found))
        assert runner is not None
        return runner

    async def conclude(self, runner: Runner) -> None:
        await conclude_runner(
            self.store,
            runner.id,
            generation=runner.generation,
            state=runner.state,
            ending=Ending.COMPLETED,
            why="test",
            ended_at=SystemClock().now(),
        )


@asynccontextmanager
async def site(database_url: str) -> AsyncIterator[Site]:
    database = await Database.connect(database_url, application_name="test")
    fake = FakeGitHub(now=wall_clock, rng=Random(1))
    with tempfile.TemporaryDirectory() as directory:
        async with serving(fake):
            place = await _place(database_url, database, fake, Path(directory))
            try:
                # The test owns the Pods: no server's pools retire them, no server recovers them.
                async with leading("pools", database):
                    yield place
            finally:
                await place.end()
                await database.close()


async def _place(database_url: str, database: Database, fake: FakeGitHub, directory: Path) -> Site:
    (directory / "app.pem").write_text(_KEY)
    app = fake.accounts.add_app("paddock", public_keys=[public_half(_KEY)], webhook_secret=SECRET)
    acme = fake.accounts.add_organization("acme")
    repository = fake.accounts.add_repository(acme, "site")
    fake.accounts.install(app, acme)
    store = PgStore(database, clock=SystemClock(), ids=SystemIds(), actor="test")
    pool = await store.apply_pool(
        PoolFacts(
            name="linux",
            labels=LABELS,
            shape="gated",
            cost=Resources(),
            max_runners=None,
            spec='{"labels": ["self-hosted", "linux"]}',
            spec_hash="v1",
        )
    )
    return Site(database_url, database, store, fake, app, repository, pool, directory)
