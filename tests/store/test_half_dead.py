"""A session that dies alone, while the network, the server and all other sessions live: a proxy keeps
its half of one connection, or a firewall forgets it. Nothing reports that to the client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from paddock.ports import Topic
from paddock.ports.errors import DatabaseUnavailable
from paddock.store import leadership, sessions, wakeups
from paddock.store.database import Database
from paddock.store.leadership import leading, led
from paddock.store.wakeups import PgWakeups
from paddock.system import SystemClock
from tests.support.servers import tcp_server

PORT = 5432


class Proxy:
    """Between clients and a server's socket. `keep_halves`: what its present connections send and
    receive is swallowed from now on; new ones work."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        place = parse_qs(parts.query)
        self._target = Path(place["host"][0]) / f".s.PGSQL.{place['port'][0]}"
        self._role, self._database = parts.username, parts.path
        self._kept: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self, directory: Path) -> AsyncIterator[str]:
        server = await asyncio.start_unix_server(self._connected, directory / f".s.PGSQL.{PORT}")
        try:
            yield f"postgresql://{self._role}@{self._database}?host={directory}&port={PORT}"
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    def keep_halves(self) -> None:
        self._kept |= self._open

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        there, back = await asyncio.open_unix_connection(self._target)

        async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while some := await source.read(65536):
                    if me not in self._kept:
                        sink.write(some)
            if me in self._kept:
                await asyncio.Event().wait()
            sink.close()

        try:
            await asyncio.gather(pipe(reader, back), pipe(there, writer))
        finally:
            for each in (writer, back):
                each.transport.abort()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ANSWER_TIMEOUT", 0.5)
    monkeypatch.setattr(wakeups, "_ALIVE", 0.2)
    monkeypatch.setattr(leadership, "_ALIVE", 0.2)
    monkeypatch.setattr(leadership, "_SILENT_FOR", timedelta(seconds=2))


@pytest.fixture
async def proxy(database_url: str, directory: Path) -> AsyncIterator[tuple[Proxy, Database]]:
    proxy = Proxy(database_url)
    async with proxy.open(directory) as url:
        database = await Database.connect(url)
        try:
            yield proxy, database
        finally:
            await database.close()


async def test_wake_ups_come_again_in_another_session(
    proxy: tuple[Proxy, Database], database: Database
) -> None:
    """All loops are woken when it is there, because they may have missed some."""
    between, listening = proxy
    async with PgWakeups.listening(listening, SystemClock()) as woken:
        subscription = woken.subscribe(Topic.DEMAND)
        between.keep_halves()
        assert await subscription.wait(60) == {Topic.DEMAND}
        async with database.transaction() as connection:
            await connection.execute("SELECT pg_notify('paddock', 'demand')")
        assert await subscription.wait(60) == {Topic.DEMAND}


async def test_a_leader_stops_and_leads_again(proxy: tuple[Proxy, Database]) -> None:
    between, database = proxy
    log: asyncio.Queue[str] = asyncio.Queue()

    async def run() -> None:
        log.put_nowait("leads")
        try:
            await asyncio.Event().wait()
        finally:
            log.put_nowait("stops")

    async def follow() -> None:
        while True:
            with suppress(DatabaseUnavailable):
                await led("loop", run, database=database, clock=SystemClock())()

    task = asyncio.create_task(follow())
    async with asyncio.timeout(60):
        assert await log.get() == "leads"
        between.keep_halves()
        assert await log.get() == "stops"
        assert await log.get() == "leads"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_follower_does_not_wait_for_ever_for_the_lock(
    proxy: tuple[Proxy, Database],
) -> None:
    """A single replica would lead nothing until it is restarted."""
    between, database = proxy
    async with leading("loop", database) as session:
        assert session is not None
    between.keep_halves()
    async with asyncio.timeout(60):
        with pytest.raises(DatabaseUnavailable):
            async with leading("loop", database):
                pass
        while not await _leads(database):
            pass


async def _leads(database: Database) -> bool:
    """The pool may have other sessions of the same age."""
    try:
        async with leading("loop", database) as session:
            return session is not None
    except DatabaseUnavailable:
        return False


async def test_the_kernel_checks_the_connections_of_all_sessions(directory: Path) -> None:
    """So a query in a connection that the network forgot fails within half a minute."""
    with tcp_server(directory) as server:
        database = await Database.connect(server.url())
        apart = await database.session_apart()
        async with database.acquire() as session:
            for each in (session, apart):
                its = each._transport.get_extra_info("socket")
                assert its.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                if hasattr(socket, "TCP_USER_TIMEOUT"):
                    assert 0 < its.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) < 30_000
        apart.terminate()
        await database.close()
