"""Servers as processes on the real cluster, with a fake GitHub that Pods can reach."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from paddock.fakes.github import FakeGitHub, JobSpec, Quotas
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.records import App, Job, Repository
from paddock.fakes.github.server import serving, wall_clock
from paddock.store.database import Database
from tests.support.gate import Gate, gate
from tests.support.kube import AGENT_COMMAND, Installed, runner_template
from tests.support.webhooks import PATH
from tools.cluster.images import AGENT
from tools.ports import free_port

LABELS = ("self-hosted", "linux")
SECRET = "secret"
ROOT = Path(__file__).parents[2]
#: From a queued job to its Pod's end, after the API server was away: a server's start and two
#: containers' starts, on a machine with other load.
PATIENCE = 240.0
#: How long the API server is away in the middle of a test, besides its start. PADDOCK_TEST_OUTAGE=60
#: makes it a minute.
OUTAGE = float(os.environ.get("PADDOCK_TEST_OUTAGE", "6"))

_KEY = make_private_key()


@dataclass
class KubeSite:
    place: Installed
    database_url: str
    database: Database
    fake: FakeGitHub
    app: App
    repository: Repository
    directory: Path
    #: The address at which Pods and webhooks reach any running server.
    port: int
    github_url: str
    #: Holds jobs until the test lets them end.
    gate: Gate
    #: The servers that were started, with their ports; any of them may answer at `port`.
    _servers: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    #: The settings of the last server, for its successor.
    _given: dict[str, str] = field(default_factory=dict)

    async def server(
        self, name: str = "server", *, github: Mapping[str, str] | None = None, **settings: str
    ) -> asyncio.subprocess.Process:
        """`paddock serve`, ready; one of several, if it is not the first."""
        self._given = settings
        port = free_port(self.place.cluster.host_address)
        kept = {each: value for each, value in os.environ.items() if "PADDOCK" not in each}
        log = self.directory / f"{name}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "paddock", "serve"),
                cwd=ROOT,
                env={**kept, **self._settings(port), **(github or self._github()), **settings},
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        self._servers[port] = process
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = (await process.stdout.readline()).decode()
        assert "answers at" in line, log.read_text()[-4000:]
        self.app.webhook_url = f"http://{self.place.cluster.host_address}:{self.port}{PATH}"
        return process

    def answering(self) -> list[tuple[str, int]]:
        host = self.place.cluster.host_address
        return [(host, port) for port, each in self._servers.items() if each.returncode is None]

    def _settings(self, port: int) -> dict[str, str]:
        host = self.place.cluster.host_address
        return {
            "PADDOCK_DATABASE_URL": self.database_url,
            "PADDOCK_LISTEN": f"{host}:{port}",
            "PADDOCK_SEALING_KEYS": base64.b64encode(b"1" * 32).decode(),
            "PADDOCK_FLEET": "kube",
            "PADDOCK_KUBE_NAMESPACE": self.place.namespace,
            "PADDOCK_KUBE_KUBECONFIG": str(self.place.kubeconfig),
            "PADDOCK_KUBE_AGENT_IMAGE": AGENT,
            "PADDOCK_KUBE_AGENT_COMMAND": AGENT_COMMAND,
            "PADDOCK_KUBE_SERVER_URL": f"http://{host}:{self.port}",
            "PADDOCK_LOG_FORMAT": "json",
        }

    def _github(self) -> dict[str, str]:
        return {
            "PADDOCK_GITHUB_APP_ID": str(self.app.id),
            "PADDOCK_GITHUB_PRIVATE_KEY_FILE": str(self.directory / "app.pem"),
            "PADDOCK_GITHUB_WEBHOOK_SECRET": SECRET,
            "PADDOCK_GITHUB_API_URL": self.github_url,
        }

    def log(self, name: str = "server") -> str:
        return (self.directory / f"{name}.log").read_text()

    def _logs(self) -> str:
        """The end of each server's log."""
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text()[-4000:]}" for log in logs)

    async def pool(self, name: str = "linux", *, container: Any = None, **spec: Any) -> None:
        """Applies the pool as an administrator does."""
        described = {
            "labels": list(LABELS),
            "template": runner_template(**(container or {})),
            "stabilisationWindow": "0s",
            **({} if "size" in spec else {"minIdle": 1}),
            **spec,
        }
        body = {
            "apiVersion": "paddock.dev/v1alpha1",
            "kind": "RunnerPool",
            "metadata": {"name": name},
            "spec": described,
        }
        await self.place.api.apply(f"{self.place.pools}/{name}", body)
        if self.answering():
            # A job that is queued before its pool is known waits for the comparison with GitHub's
            # lists, which takes minutes.
            await self.until("SELECT true FROM pools WHERE name = $1 AND state = 'active'", name)

    def queue(self, **job: Any) -> Job:
        described = JobSpec(**{"labels": LABELS, **job})
        [queued] = self.fake.jobs.queue_run(self.repository, [described]).jobs
        return queued

    async def pod_of(self, job: Job) -> str:
        """Waits until GitHub says that it runs; its row may be behind."""
        await self.happens(lambda: job.runner is not None, f"{job.spec.name} begins")
        assert job.runner is not None
        return job.runner.name.rpartition("-")[0]

    async def busy(self, job: Job) -> str:
        """Its Pod, once the row has it too."""
        pod = await self.pod_of(job)
        await self.until("SELECT state = 'busy' FROM runners WHERE pod_name = $1", pod)
        return pod

    async def happens(
        self, seen: Callable[[], bool], what: str, *, patience: float = PATIENCE
    ) -> None:
        """At GitHub."""
        deadline = asyncio.get_running_loop().time() + patience
        while not seen():
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"{what}\n{await self._state()}")
            await asyncio.sleep(0.05)

    async def verdict(self, pod: str) -> dict[str, Any]:
        """Waits until its log was read, or given up."""
        query = """
        SELECT to_jsonb(v) FROM verdicts v JOIN runners r ON r.id = v.runner_id
         WHERE r.pod_name = $1 AND v.log_wanted_until IS NULL
        """
        found: dict[str, Any] = json.loads(await self.until(query, pod))
        return found

    async def rows(self, query: str, *args: object) -> list[tuple[Any, ...]]:
        async with self.database.transaction() as connection:
            return [tuple(row) for row in await connection.fetch(query, *args)]

    async def until(self, query: str, *args: object, patience: float = PATIENCE) -> Any:
        """The query's one value, as soon as it exists."""
        deadline = asyncio.get_running_loop().time() + patience
        while asyncio.get_running_loop().time() < deadline:
            for (value,) in await self.rows(query, *args):
                if value:
                    return value
            await asyncio.sleep(0.1)
        raise AssertionError(f"{query}\n{await self._state()}")

    async def _state(self) -> str:
        """Shown when a test fails."""
        runners = await self.rows("SELECT pod_name, state, node, since FROM runners")
        jobs = await self.rows("SELECT id, state, key_id, since FROM jobs")
        deliveries = await self.rows("SELECT event, state, received_at FROM deliveries")
        return f"{runners}\n{jobs}\n{deliveries}\n{self._logs()}"

    async def kill(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()

    async def outage(self) -> None:
        """The API server is away for a while."""
        await self.place.cluster.stop("apiserver")
        await asyncio.sleep(OUTAGE)
        await self.place.cluster.start("apiserver")

    async def disturb(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Kills every server; the API server is away when another one starts, and for a while
        after."""
        await self.end()
        await self.place.cluster.stop("apiserver")
        await self.server("another", github=None, **self._given)
        meanwhile()
        await asyncio.sleep(OUTAGE)
        await self.place.cluster.start("apiserver")

    async def end(self) -> None:
        for process in self._servers.values():
            await self.kill(process)


@asynccontextmanager
async def kube_site(
    place: Installed, database_url: str, *, quotas: Quotas | None = None
) -> AsyncIterator[KubeSite]:
    address = place.cluster.host_address
    database = await Database.connect(database_url, application_name="test")
    fake = FakeGitHub(now=wall_clock, rng=Random(1), quotas=quotas)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "app.pem").write_text(_KEY)
        # paddock sends no tokens over a network in clear text, so the fake GitHub listens on the
        # loopback too.
        inner = free_port(address, "127.0.0.1")
        async with serving(fake, host=address, port=inner), AsyncExitStack() as stack:
            await stack.enter_async_context(
                _forwarding(("127.0.0.1", inner), lambda: [(address, inner)])
            )
            app = fake.accounts.add_app(
                "paddock", public_keys=[public_half(_KEY)], webhook_secret=SECRET
            )
            acme = fake.accounts.add_organization("acme")
            repository = fake.accounts.add_repository(acme, "site")
            fake.accounts.install(app, acme)
            port = free_port(address)
            site = KubeSite(
                place=place,
                database_url=database_url,
                database=database,
                fake=fake,
                app=app,
                repository=repository,
                directory=directory,
                port=port,
                github_url=f"http://127.0.0.1:{inner}",
                gate=await stack.enter_async_context(gate(address)),
            )
            await stack.enter_async_context(_forwarding((address, port), site.answering))
            try:
                yield site
            finally:
                await site.end()
                await database.close()


@asynccontextmanager
async def _forwarding(
    address: tuple[str, int], targets: Callable[[], Sequence[tuple[str, int]]]
) -> AsyncIterator[None]:
    """Passes every connection to one of the targets that accepts it."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while some := await reader.read(65536):
                writer.write(some)
                await writer.drain()
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for host, port in targets():
            with suppress(OSError):
                there, back = await asyncio.open_connection(host, port)
                await asyncio.gather(pipe(reader, back), pipe(there, writer))
                return
        writer.close()

    server = await asyncio.start_server(forward, *address)
    try:
        yield
    finally:
        server.close()
