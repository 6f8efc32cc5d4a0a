"""The dispatch benchmark's environment: a server, its GitHub, and Pods on open connections."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.common import Unusable, session
from bench.dispatch_github import LABELS, PLENTY, SECRET, scene
from paddock.domain.limits import Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.recovery.records import RunnerEnd
from paddock.domain.runners.endings import Ending
from paddock.domain.states import RunnerState
from paddock.fakes.github import FakeGitHub, JobSpec, Outgoing
from paddock.fakes.github.records import Repository
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.migrate import migrate
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds

WEBHOOKS = "/webhooks/github"
_TICKS = os.sysconf("SC_CLK_TCK")
_END = b"\r\n\r\n"


class Http:
    """Sends one request after the other on an open connection, as cheaply as possible: the client
    shares the machine with the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(
        cls, port: int, tls: ssl.SSLContext | None = None, *, address: str | None = None
    ) -> Http:
        """`address`: the peer's own."""
        opened = await asyncio.open_connection(
            "127.0.0.1",
            port,
            ssl=tls,
            server_hostname=None if tls is None else "localhost",
            local_addr=None if address is None else (address, 0),
        )
        return cls(*opened)

    async def post(
        self, path: str, headers: dict[str, str], body: bytes = b""
    ) -> tuple[int, bytes]:
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return await self.send("\r\n".join(lines).encode() + _END + body)

    async def send(self, request: bytes) -> tuple[int, bytes]:
        self._writer.write(request)
        head = (await self._reader.readuntil(_END)).lower()
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        body = await self._reader.readexactly(int(length)) if length else b""
        return int(head[9:12]), body

    def close(self) -> None:
        self._writer.close()


@dataclass(frozen=True)
class Handed:
    """A JIT that a Pod received."""

    at: float
    runner_name: str
    jit: str


class Unavailable(Unusable):
    """The server cannot answer now."""


class Pod:
    def __init__(self, token: str, http: Http) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {token}"}

    async def ask(self, wait: float) -> Handed | None:
        status, body = await self._http.post(f"/v1/dispatch?wait={wait:.2f}", self._headers)
        at = time.perf_counter()
        if status == 204:
            return None
        if status == 503:
            raise Unavailable(f"a Pod was answered 503: {body.decode()}")
        if status != 200:
            raise Unusable(f"a Pod was answered {status}: {body.decode()}")
        work = msgspec.json.decode(body)
        await self._http.post(
            "/v1/dispatch/ack",
            self._headers,
            msgspec.json.encode({"delivery": work["delivery"]}),
        )
        return Handed(at, work["runner_name"], work["jit"])

    def leave(self) -> None:
        self._http.close()


_APPLIED = "SELECT at FROM events WHERE job_id = ANY ($1) AND after = 'queued' ORDER BY at"
_CLAIMED = "SELECT claimed_at AS at FROM runners WHERE name = ANY ($1) ORDER BY claimed_at"
_ARMED = "SELECT armed_at AS at FROM runners WHERE name = ANY ($1) ORDER BY armed_at"


@dataclass
class Cpu:
    """Seconds of processor time since a start, by process."""

    server: float
    postgres: float
    at: float = field(default_factory=time.perf_counter)

    def since(self, before: Cpu) -> tuple[float, float]:
        """The use since then, as fractions of a core."""
        seconds = self.at - before.at
        return (
            (self.server - before.server) / seconds,
            (self.postgres - before.postgres) / seconds,
        )


@dataclass
class Site:
    port: int
    pid: int
    postmaster: int
    database: Database
    store: PgStore
    github: FakeGitHub
    repository: Repository
    #: A repository of an account whose mints all fail.
    refused: Repository

    async def pods(self, count: int) -> list[Pod]:
        """Ordered by the server itself, and connected; none of them has polled yet."""
        return [Pod(name, await Http.open(self.port)) for name in await self.tokens(count)]

    async def tokens(self, count: int) -> list[str]:
        """The tokens of Pods that the server has ordered."""
        await self.store.apply_pool(_pool(count))
        async with asyncio.timeout(60):
            while len(names := await self._ordered()) < count:  # noqa: ASYNC110 -- another's doing
                await asyncio.sleep(0.02)
        return names

    async def _ordered(self) -> list[str]:
        runners = await self.store.live_runners()
        return [runner.pod_name for runner in runners if runner.state is RunnerState.BOOTING]

    async def all_idle(self, count: int) -> None:
        """Waits until this many Pods are idle, and the server has been quiet for a moment."""
        async with asyncio.timeout(60):
            while True:
                async with self.database.transaction() as connection:
                    if count <= await connection.fetchval(
                        "SELECT count(*) FROM runners WHERE state = 'idle'"
                    ):
                        break
                await asyncio.sleep(0.2)
        await asyncio.sleep(2.0)

    def webhooks(self, jobs: int, *, of: Repository | None = None) -> list[tuple[int, bytes]]:
        """This many queued jobs, each with its signed request."""
        found = []
        for begin in range(0, jobs, 256):
            specs = [JobSpec(labels=LABELS)] * min(256, jobs - begin)
            self.github.jobs.queue_run(of or self.repository, specs)
            found += self.github.hooks.take()
        return [
            (msgspec.json.decode(each.body)["workflow_job"]["id"], rendered(each)) for each in found
        ]

    def cpu(self) -> Cpu:
        mine, postgres = 0.0, 0.0
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            used = (int(fields[11]) + int(fields[12])) / _TICKS
            if int(entry.parent.name) == self.pid:
                mine = used
            elif self.postmaster in (int(fields[1]), int(entry.parent.name)):
                postgres += used
        return Cpu(mine, postgres)

    async def reviews(self) -> int:
        return int((await metrics(self.port))["bench_reviews_total"])

    async def marks(self, jobs: Sequence[int], runners: Sequence[str]) -> list[list[float]]:
        """When these jobs were applied, and these runners claimed and armed, each in order. By the
        store's own times, which are written before each transaction's COMMIT."""
        async with self.database.transaction() as connection:
            found = [
                await connection.fetch(_APPLIED, list(jobs)),
                await connection.fetch(_CLAIMED, list(runners)),
                await connection.fetch(_ARMED, list(runners)),
            ]
        offset = time.time() - time.perf_counter()
        return [[row["at"].timestamp() - offset for row in rows] for rows in found]

    async def tidy(self) -> None:
        """Removes all queued jobs, and concludes all live runners as if they had ended."""
        await self.store.apply_pool(_pool(0))
        async with self.database.transaction() as connection:
            hosts = await connection.fetch("SELECT name FROM hosts")
        for host in hosts:
            await self.store.abandon_jobs(host["name"], why="bench")
        # The server retires them meanwhile, so the state of some changes before the call.
        while runners := await self.store.live_runners():
            ends = [
                RunnerEnd(
                    runner=runner.id,
                    generation=runner.generation,
                    state=runner.state,
                    ending=Ending.COMPLETED,
                    why="bench",
                    ended_at=SystemClock().now(),
                )
                for runner in runners
            ]
            await self.store.conclude_runners(ends)


async def metrics(port: int) -> dict[str, float]:
    """The metrics by name and labels, as Prometheus reads them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).partition(_END)[2].decode()
    writer.close()
    lines = [line.rpartition(" ") for line in text.splitlines() if line[:1] not in ("#", "")]
    return {name: float(value) for name, _, value in lines if name}


def rendered(outgoing: Outgoing) -> bytes:
    headers = {"Host": "localhost", **outgoing.headers, "Content-Length": str(len(outgoing.body))}
    lines = [f"POST {WEBHOOKS} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + _END + outgoing.body


@asynccontextmanager
async def site(postgres: EmbeddedPostgres, settings: str = "") -> AsyncIterator[Site]:
    """`settings`: additional lines for the head of the file."""
    async with session(postgres.url_of("postgres")) as connection:
        await connection.execute("CREATE DATABASE dispatch")
        postmaster = _parent(await connection.fetchval("SELECT pg_backend_pid()"))
    url = postgres.url_of("dispatch")
    database = await Database.connect(url)
    try:
        await migrate(database)
        with tempfile.TemporaryDirectory() as directory:
            key_file = Path(directory) / "app.pem"
            github, app, [repository], refused = scene(key_file, 1)
            github.hooks.take()
            async with (
                process("bench.dispatch_github", str(key_file), "1") as (_, github_url),
                process(
                    "bench.dispatch_server",
                    PADDOCK_CONFIG=config(Path(directory), app.id, key_file, github_url, settings),
                    PADDOCK_DATABASE_URL=url,
                ) as (server, server_url),
            ):
                store = PgStore(database, clock=SystemClock(), ids=SystemIds(), actor="bench")
                await store.apply_pool(_pool(0))
                yield Site(
                    port=port_of(server_url),
                    pid=server.pid,
                    postmaster=postmaster,
                    database=database,
                    store=store,
                    github=github,
                    repository=repository,
                    refused=refused,
                )
    finally:
        await database.close()


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        raise Unusable("processor times are read from /proc, which is not here.") from None


def _pool(size: int) -> PoolFacts:
    spec = {"labels": LABELS, "size": size, "provisioning": {"maxStarting": size or 1}}
    return PoolFacts(
        name="linux",
        labels=LABELS,
        shape="gated",
        cost=Resources(),
        max_runners=None,
        spec=msgspec.json.encode(spec).decode(),
        spec_hash="v1",
    )


def config(directory: Path, app: int, key_file: Path, api_url: str, more: str = "") -> str:
    """One App, whose quotas do not bind."""
    path = directory / "paddock.toml"
    path.write_text(
        f"""
listen = "127.0.0.1:0"
log_level = "warning"
sealing_keys = "{base64.b64encode(os.urandom(32)).decode()}"
{more}
[[github.apps]]
app_id = {app}
private_key_file = "{key_file}"
webhook_secret = "{SECRET}"
api_url = "{api_url}"
points_per_minute = {PLENTY}
requests_per_hour = {PLENTY}
mints_per_hour = {PLENTY}
"""
    )
    return str(path)


@asynccontextmanager
async def process(
    module: str, *arguments: str, **environment: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Started, with the URL it prints when it is ready."""
    kept = {name: value for name, value in os.environ.items() if "PADDOCK" not in name}
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", module, *arguments),
        env={**kept, **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert started.stdout is not None
        url = (await started.stdout.readline()).decode().strip()
        if not url:
            raise Unusable(f"{module} did not start; what it said is above.")
        yield started, url
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])
