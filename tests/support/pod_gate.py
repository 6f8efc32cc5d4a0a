"""The HTTP server that Pods call, on the loopback, over a real store and a fake GitHub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette

from paddock.dispatch.dispatcher import Dispatcher
from paddock.dispatch.identity import Identities
from paddock.dispatch.minting import Minter
from paddock.dispatch.sealing import Sealer
from paddock.domain.ids import PoolId, RunnerId
from paddock.domain.names import PodName, PoolName, pod_name
from paddock.ports import Reviewer
from paddock.store.database import Database
from paddock.store.wakeups import PgWakeups
from paddock.system import SystemClock, SystemIds
from paddock.web.pods import PodEndpoints
from paddock.web.server import bind, serving, url_of
from paddock.web.tls import ServerCertificate
from tests.support.github import LINUX, GitHubScene, github_scene


@dataclass(frozen=True)
class PodGate:
    url: str
    scene: GitHubScene
    pool: PoolId
    identities: Identities

    async def planned(self) -> PodName:
        """The name of a Pod that has a row."""
        ids = SystemIds()
        name = pod_name(PoolName("linux"), ids.suffix(10))
        await self.scene.store.plan_runners(self.pool, [(RunnerId(ids.uuid()), name)], why="test")
        return PodName(name)


@asynccontextmanager
async def pod_gate(
    database: Database, reviewer: Reviewer, certificate: ServerCertificate | None = None
) -> AsyncIterator[PodGate]:
    clock = SystemClock()
    async with github_scene(database) as scene, PgWakeups.listening(database, clock) as wakeups:
        pool = await scene.store.apply_pool(LINUX)
        await scene.installations.read_all()
        scene.take()
        sealer = Sealer([b"1" * 32])
        minter = Minter(
            store=scene.store, github=scene.client, sealer=sealer, clock=clock, ids=SystemIds()
        )
        dispatcher = Dispatcher(
            store=scene.store, minter=minter, sealer=sealer, clock=clock, wakeups=wakeups
        )
        identities = Identities(reviewer, clock)
        endpoints = PodEndpoints(
            dispatcher=dispatcher, identities=identities, store=scene.store, clock=clock
        )
        task = asyncio.create_task(dispatcher.run())
        with bind(("127.0.0.1", 0)) as listener:
            async with serving(
                Starlette(routes=endpoints.routes), listener, certificate=certificate
            ):
                url = url_of(listener)
                if certificate is not None:
                    url = url.replace("http://127.0.0.1", "https://localhost")
                yield PodGate(url, scene, pool, identities)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
