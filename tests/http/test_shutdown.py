"""A server that receives SIGTERM: waiting Pods are answered, and mints in progress reach their
Pods."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import httpx2
import pytest

from paddock.domain.names import PodName
from paddock.fakes.github import Faults
from paddock.fakes.github.server import plain_http
from tests.support.site import PATIENCE, Server, Site, site

pytestmark = pytest.mark.slow

#: Far longer than a test waits: an answer that comes earlier came because of the signal.
HELD = 45


@pytest.fixture
async def place(database_url: str) -> AsyncIterator[Site]:
    async with site(database_url) as place:
        yield place


async def ask(server: Server, pod: PodName) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=60, trust_env=False, verify=plain_http()) as client:
        return await client.post(
            f"{server.url}/v1/dispatch?wait={HELD}", headers={"authorization": f"Bearer {pod}"}
        )


async def ended(server: Server) -> int:
    async with asyncio.timeout(PATIENCE):
        return await server.process.wait()


async def test_pods_that_wait_for_work_are_answered_at_once(place: Site) -> None:
    server = await place.server()
    [pod] = await place.pods(1)
    asking = asyncio.create_task(ask(server, pod))
    await place.until("SELECT count(*) FROM runners WHERE state = 'idle'", 1)
    server.process.send_signal(signal.SIGTERM)
    assert (await asking).status_code == 204
    assert await ended(server) == 0


async def test_a_mint_under_way_is_finished_and_handed_over(place: Site) -> None:
    server = await place.server()
    [pod] = await place.pods(1)
    asking = asyncio.create_task(ask(server, pod))
    await place.until("SELECT count(*) FROM runners WHERE state = 'idle'", 1)
    place.fake.set_faults(Faults(latency=(2.0, 2.0)))
    place.queue()
    await place.until("SELECT count(*) FROM runners WHERE state = 'claimed'", 1)
    server.process.send_signal(signal.SIGTERM)
    answer = await asking
    assert answer.status_code == 200
    assert answer.json()["runner_name"] == f"{pod}-1"
    assert await ended(server) == 0
    assert (await place.runner(pod)).state == "armed"
