"""Dispatch continues when the database is back: after a shutdown, a crash, and a dead connection."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from paddock.agent.backoff import Backoff
from paddock.domain.names import PodName
from paddock.fakes.github.server import plain_http
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.migrate import migrate
from tests.support.site import PATIENCE, Server, Site, site

pytestmark = pytest.mark.slow

#: Long enough for a doubling back-off to reach 16 s.
OUTAGE = 27.0
#: A longer pause is too long for users; a busy machine needs less.
BOUND = 12.0
SETTINGS = {"fsync": "off"}


class Line:
    """The network between the server and its database. While dead it keeps its connections, accepts
    new ones, and carries nothing. Connections from before stay dead when it is repaired."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.is_dead = False
        self._calls: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self, directory: Path) -> AsyncIterator[None]:
        exchange = await asyncio.start_unix_server(self._connected, directory / ".s.PGSQL.5432")
        try:
            yield
        finally:
            exchange.close()
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)

    def kill(self) -> None:
        self.is_dead = True

    def repair(self) -> None:
        self.is_dead = False

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.create_task(self._carry(reader, writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers, pipes = [writer], set[asyncio.Task[None]]()
        try:
            if self.is_dead:
                await asyncio.Event().wait()
            there, back = await asyncio.open_unix_connection(self.target)
            writers.append(back)
            broken = asyncio.Event()
            pipes.add(asyncio.create_task(self._pipe(reader, back, broken)))
            pipes.add(asyncio.create_task(self._pipe(there, writer, broken)))
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        finally:
            for pipe in pipes:
                pipe.cancel()
            for each in writers:
                each.transport.abort()

    async def _pipe(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, broken: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if self.is_dead or broken.is_set():
                    broken.set()
                    continue
                sink.write(data)


class Crowd:
    """Pods that poll like the agent: after a refusal they wait longer each time."""

    def __init__(self, server: Server, client: httpx2.AsyncClient) -> None:
        self._server = server
        self._client = client
        self.handed: asyncio.Queue[PodName] = asyncio.Queue()

    async def pod(self, name: PodName) -> None:
        backoff = Backoff()
        headers = {"authorization": f"Bearer {name}"}
        while True:
            answer = await self._client.post(
                f"{self._server.url}/v1/dispatch?wait=20", headers=headers
            )
            match answer.status_code:
                case 200:
                    body = {"delivery": answer.json()["delivery"]}
                    url = f"{self._server.url}/v1/dispatch/ack"
                    await self._client.post(url, headers=headers, json=body)
                    self.handed.put_nowait(name)
                    return
                case 204:
                    backoff.reset()
                case _:
                    asked = float(answer.headers.get("retry-after", 0))
                    await asyncio.sleep(backoff.next(asked))


@asynccontextmanager
async def _crowd(place: Site, server: Server, pods: int) -> AsyncIterator[Crowd]:
    names = await place.pods(pods)
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(
        timeout=PATIENCE, limits=limits, trust_env=False, verify=plain_http()
    ) as client:
        crowd = Crowd(server, client)
        tasks = [asyncio.create_task(crowd.pod(name)) for name in names]
        try:
            yield crowd
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Outage:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.server = EmbeddedPostgres(directory / "data", settings=SETTINGS)
        self.line = Line(Path())

    async def start(self) -> None:
        await self.server.__aenter__()

    async def stop(self) -> None:
        await self.server.__aexit__(None, None, None)

    async def crash(self) -> None:
        os.kill(self.server.pid, signal.SIGQUIT)
        await self.stop()

    async def dead_line(self) -> None:
        self.line.kill()

    async def again(self) -> None:
        if self.line.is_dead:
            self.line.repair()
            return
        self.server = EmbeddedPostgres(self._directory / "data", settings=SETTINGS)
        await self.start()
        self.line.target = socket_of(self.server)


def socket_of(server: EmbeddedPostgres) -> Path:
    return Path(server.url.partition("host=")[2].partition("&")[0]) / ".s.PGSQL.5432"


Begin = Callable[[Outage], Awaitable[None]]


@pytest.mark.parametrize("begin", [Outage.stop, Outage.crash, Outage.dead_line])
async def test_dispatch_goes_on_when_the_database_is_back(
    begin: Begin, directory: Path, record_property: Callable[[str, object], None]
) -> None:
    """I72: jobs wait, Pods keep polling, and are served soon after the database's return."""
    outage = Outage(directory)
    await outage.start()
    outage.line.target = socket_of(outage.server)
    sockets = directory / "line"
    sockets.mkdir(mode=0o755)
    url = outage.server.url.replace(str(socket_of(outage.server).parent), str(sockets))
    database = await Database.connect(outage.server.url)
    await migrate(database)
    await database.close()
    try:
        async with outage.line.open(sockets), site(url) as place:
            server = await place.server()
            await place.until("SELECT count(*) FROM accounts", 1)
            async with _crowd(place, server, 4) as crowd:
                place.queue(1)
                async with asyncio.timeout(PATIENCE):
                    await crowd.handed.get()
                place.queue(1)
                async with asyncio.timeout(PATIENCE):
                    await crowd.handed.get()
                await begin(outage)
                await asyncio.sleep(OUTAGE)
                await outage.again()
                back = time.monotonic()
                place.queue(1)
                async with asyncio.timeout(BOUND):
                    await crowd.handed.get()
                took = time.monotonic() - back
                record_property("seconds", round(took, 2))
                print(f"{begin.__name__}: {took:.2f} s after its return")  # noqa: T201
    finally:
        await outage.stop()
