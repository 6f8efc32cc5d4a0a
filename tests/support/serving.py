"""A replica's HTTP side on the loopback, over a real store, without its loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from paddock.dispatch.sealing import Sealer
from paddock.fakes.github.server import plain_http
from paddock.github.apps import Apps, GitHubApp
from paddock.replica import FleetParts
from paddock.serve import serve
from paddock.settings import Settings
from paddock.store.database import Database
from paddock.web.settings import DashboardSettings
from tests.support.webhooks import PATH, app, encoded, headers


@dataclass
class Served:
    url: str
    database: Database
    client: httpx2.AsyncClient

    async def post(self, payload: Mapping[str, Any] | bytes, **sent: str) -> httpx2.Response:
        """A webhook as GitHub sends it; `sent` are `support.webhooks.headers`' arguments."""
        body = encoded(payload)
        return await self.client.post(PATH, content=body, headers=headers(body, **sent))

    async def rows(self, query: str = "SELECT * FROM deliveries ORDER BY id") -> Sequence[Any]:
        async with self.database.transaction() as connection:
            return await connection.fetch(query)

    async def guids(self) -> list[str]:
        return [row["guid"] for row in await self.rows()]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """For requests that no HTTP client would send."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        return await asyncio.open_connection(parts.hostname, parts.port)

    async def metric(self, sample: str) -> float:
        for line in (await self.client.get("/metrics")).text.splitlines():
            name, _, value = line.rpartition(" ")
            if name == sample:
                return float(value)
        return 0.0


@asynccontextmanager
async def served(
    database: Database,
    *apps: GitHubApp,
    fleet: FleetParts | None = None,
    dashboard: DashboardSettings | None = None,
    open_to_this_machine: bool = False,
) -> AsyncIterator[Served]:
    async def parts(_url: str) -> FleetParts:
        assert fleet is not None
        return fleet

    ready = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(
            database,
            Settings(listen="127.0.0.1:0", dashboard=dashboard or DashboardSettings()),
            ready=ready.set_result,
            apps=Apps(apps or [app()]),
            fleet=parts if fleet else None,
            sealer=Sealer((b"1" * 32,)) if fleet else None,
            services=lambda _: (),
            open_to_this_machine=open_to_this_machine,
        )
    )
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        async with client_of(ready.result()) as client:
            yield Served(ready.result(), database, client)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def client_of(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False, verify=plain_http())


def head(body: bytes, *lines: str, **sent: str) -> bytes:
    """A request's head, written by hand and signed for `body`."""
    fields = [f"{name}: {value}" for name, value in headers(body, **sent).items()]
    return "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: x", *fields, *lines, "", ""]).encode()


async def status(reader: asyncio.StreamReader) -> int:
    """The status of the next answer; 0 if there is none."""
    line = await reader.readline()
    return int(line.split()[1]) if line else 0
