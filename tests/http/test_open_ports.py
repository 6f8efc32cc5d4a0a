"""Addresses that answer only Pods' requests: a job must not reach the pages for people."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from paddock.dispatch.sealing import Sealer
from paddock.domain.pods.pod import PodIdentity
from paddock.fakes.github.server import plain_http
from paddock.github.apps import Apps
from paddock.listener import CLOSED
from paddock.replica import FleetParts
from paddock.serve import serve
from paddock.settings import Settings
from paddock.store.database import Database
from tests.support.certificates import Authority, SecretVolume
from tests.support.fleetless import NoFleet
from tests.support.webhooks import app
from tools.ports import free_port


class NoReviewer:
    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        return None


MOST = 64


@dataclass(frozen=True)
class Ports:
    main: str
    pods: str
    vitals: str


def free() -> str:
    return f"127.0.0.1:{free_port()}"


@asynccontextmanager
async def opened(database: Database, **more: Any) -> AsyncIterator[Ports]:
    async def parts(_: str) -> FleetParts:
        return FleetParts(fleet=NoFleet(), reviewer=NoReviewer())

    ready = asyncio.get_running_loop().create_future()
    settings = Settings(
        listen="127.0.0.1:0",
        pods_listen=free(),
        vitals_listen=free(),
        max_connections=MOST,
        **more,
    )
    task = asyncio.create_task(
        serve(
            database,
            settings,
            ready=ready.set_result,
            apps=Apps([app()]),
            fleet=parts,
            sealer=Sealer((b"1" * 32,)),
            services=lambda _: (),
        )
    )
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    scheme = "https" if settings.pods_certificate_file else "http"
    yield Ports(
        ready.result(), f"{scheme}://{settings.pods_listen}", f"{scheme}://{settings.vitals_listen}"
    )
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def ports(database: Database) -> AsyncIterator[Ports]:
    async with opened(database) as ports:
        yield ports


async def answer(base: str, path: str, verify: ssl.SSLContext | None = None) -> httpx2.Response:
    context = verify or plain_http()
    async with httpx2.AsyncClient(base_url=base, trust_env=False, verify=context) as client:
        return await client.request("GET" if path == "/metrics" else "POST", path)


async def answers(base: str, path: str, verify: ssl.SSLContext | None = None) -> bool:
    """Whether the endpoint exists there: a Pod without a token then gets a refusal, not a 404."""
    return (await answer(base, path, verify)).status_code != 404


async def test_each_port_answers_only_its_own_requests(ports: Ports) -> None:
    """The pages for people are at none of the addresses that Pods reach."""
    for path, where in {
        "/v1/dispatch": {ports.main, ports.pods},
        "/v1/dispatch/ack": {ports.main, ports.pods},
        "/v1/vitals": {ports.main, ports.pods, ports.vitals},
        "/webhooks/github": {ports.main},
        "/metrics": {ports.main},
    }.items():
        for port in (ports.main, ports.pods, ports.vitals):
            assert await answers(port, path) is (port in where), (path, port)


async def connect(port: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(port.rpartition(":")[2]))


async def test_each_port_has_limits(ports: Ports) -> None:
    """`test_listener` tries all of them."""
    for port in (ports.main, ports.pods, ports.vitals):
        reader, writer = await connect(port)
        writer.write(b"GET / HTTP/1.1\r\nX-A: " + b"a" * 70_000)
        assert (await reader.readline()).split()[1] == b"431", port
        writer.close()


async def test_each_port_has_the_connections_of_the_settings(ports: Ports) -> None:
    for port in (ports.main, ports.pods, ports.vitals):
        before = CLOSED.labels("full")._value.get()
        opened = [await connect(port) for _ in range(MOST + 1)]
        first, _ = opened[0]
        assert await first.read() == b"", port
        assert CLOSED.labels("full")._value.get() == before + 1, port
        for _, writer in opened:
            writer.close()


async def test_with_a_certificate_nothing_that_pods_ask_is_answered_without_tls(
    database: Database, directory: Path
) -> None:
    """paddock accepts no token, and sends no JIT, in clear text."""
    authority, volume = Authority(), SecretVolume(directory / "tls")
    volume.put(authority.issue("127.0.0.1"))
    trusting = ssl.create_default_context(cadata=authority.pem.decode())
    async with opened(
        database,
        fleet="kube",
        pods_certificate_file=volume.certificate,
        pods_key_file=volume.key,
    ) as ports:
        for path in ("/v1/dispatch", "/v1/dispatch/ack", "/v1/vitals"):
            # Unknown paths get the dashboard's HTML page; Pods get JSON.
            assert "html" in (await answer(ports.main, path)).headers["content-type"], path
            assert await answers(ports.pods, path, trusting), path
            with pytest.raises(httpx2.TransportError):
                await answers(ports.pods.replace("https", "http"), path)
        assert await answers(ports.vitals, "/v1/vitals", trusting)
        # Requests of people and probes are answered as before.
        assert await answers(ports.main, "/metrics")
        assert not await answers(ports.pods, "/metrics", trusting)
