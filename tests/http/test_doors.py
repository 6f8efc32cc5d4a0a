"""Addresses that answer only what Pods ask: what a job may reach is not what people see."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import httpx2
import pytest

from paddock.dispatch.sealing import Sealer
from paddock.domain.pods import PodIdentity
from paddock.github.apps import Apps
from paddock.replica import FleetParts
from paddock.serve import serve
from paddock.settings import Settings
from paddock.sim.github.server import plain_http
from paddock.store.database import Database
from tests.support.fleetless import NoFleet
from tests.support.webhooks import app


class Nobody:
    async def review(self, token: str) -> PodIdentity | None:
        return None


@dataclass(frozen=True)
class Doors:
    main: str
    pods: str
    vitals: str


def free() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
async def doors(database: Database) -> AsyncIterator[Doors]:
    async def parts(_: str) -> FleetParts:
        return FleetParts(fleet=NoFleet(), reviewer=Nobody())

    ready = asyncio.get_running_loop().create_future()
    settings = Settings(listen="127.0.0.1:0", pods_listen=free(), vitals_listen=free())
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
    yield Doors(
        ready.result(), f"http://{settings.pods_listen}", f"http://{settings.vitals_listen}"
    )
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def answers(base: str, path: str) -> bool:
    """Whether anybody is there: to a Pod without a token that is a refusal, and not "no such thing"."""
    async with httpx2.AsyncClient(base_url=base, trust_env=False, verify=plain_http()) as client:
        method = "GET" if path == "/metrics" else "POST"
        return (await client.request(method, path)).status_code != 404


async def test_each_door_answers_what_it_is_for(doors: Doors) -> None:
    """What people see is behind none of those that Pods reach."""
    for path, where in {
        "/v1/dispatch": {doors.main, doors.pods},
        "/v1/dispatch/ack": {doors.main, doors.pods},
        "/v1/vitals": {doors.main, doors.pods, doors.vitals},
        "/webhooks/github": {doors.main},
        "/metrics": {doors.main},
    }.items():
        for door in (doors.main, doors.pods, doors.vitals):
            assert await answers(door, path) is (door in where), (path, door)
