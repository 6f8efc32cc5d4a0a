"""paddock as `paddock serve` runs it, for Pods that exist only as their tokens:
`python -m bench.dispatch_server`.

The token itself names the Pod. The number of token reviews is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import uvloop
from prometheus_client import Counter

from paddock.cli.logs import configure_logs
from paddock.domain.names import PodName
from paddock.domain.pods.pod import Host, Phase, Pod, PodIdentity, PodList, PodOrder
from paddock.ports import Fleet
from paddock.replica import FleetParts
from paddock.serve import serve, tune_garbage_collection
from paddock.settings import load
from paddock.store.database import Database
from paddock.system import SystemClock

REVIEWS = Counter("bench_reviews_total", "Tokens reviewed.")


class TokenFleet:
    """Every ordered Pod exists, but lists are incomplete: so paddock concludes nothing from
    absence."""

    async def create(self, order: PodOrder) -> Pod:
        return Pod(
            name=order.name,
            uid=order.name,
            pool=order.pool,
            phase=Phase.PENDING,
            created_at=SystemClock().now(),
        )

    async def list(self) -> PodList:
        return PodList(pods=(), complete=False)

    async def hosts(self) -> Sequence[Host]:
        return ()

    async def watch(self) -> AsyncIterator[Pod]:
        await asyncio.Event().wait()
        yield  # type: ignore[misc]  # never

    async def delete_live_pod(self, name: PodName, *, uid: str) -> None: ...

    async def reap(self, name: PodName, *, uid: str) -> None: ...

    async def stamp(self, name: PodName, *, uid: str, owner: str) -> None: ...

    async def log_tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        return None


class Reviewer:
    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        REVIEWS.inc()
        expires_at = SystemClock().now() + timedelta(hours=1)
        return PodIdentity(pod_name=PodName(token), pod_uid=token, expires_at=expires_at)


async def main(fleet: Fleet) -> None:
    settings = load()
    configure_logs(settings)
    assert settings.database_url is not None
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    def ready(url: str) -> None:
        tune_garbage_collection()
        print(url, flush=True)

    async def parts(_url: str) -> FleetParts:
        return FleetParts(fleet=fleet, reviewer=Reviewer())

    database = await Database.connect(settings.database_url.get_secret_value())
    try:
        await serve(database, settings, ready=ready, fleet=parts)
    finally:
        await database.close()


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(main(TokenFleet()))
