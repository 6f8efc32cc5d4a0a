"""`python -m tests.support.fleetless NAME`: a server as a process of its own, without a fleet.

Settings are paddock's own, from the environment; its machine's clock is `CLOCK_AHEAD` seconds ahead.
It accepts the token `x` for the Pod `x`, and prints its URL when it answers. Its sessions in the
database have its name.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from paddock.cli.run_command import run
from paddock.domain.names import PodName
from paddock.domain.pods.pod import Host, Pod, PodIdentity, PodList, PodOrder
from paddock.replica import FleetParts
from paddock.serve import serve
from paddock.settings import Settings, load
from paddock.store.database import Database
from paddock.system import SystemClock


class NoFleet:
    """The test adds and removes Pods; creating or deleting one is an error."""

    async def create(self, order: PodOrder) -> Pod:
        raise AssertionError(f"no test asked for {order.name}")

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


class Believing:
    """A token is its Pod's name."""

    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        return PodIdentity(
            pod_name=PodName(token),
            pod_uid=uid_of(token),
            expires_at=SystemClock().now() + timedelta(hours=1),
        )


def uid_of(pod_name: str) -> str:
    return f"uid-{pod_name}"


def _put_clock_ahead(seconds: float) -> None:
    now = SystemClock.now

    def ahead(self: SystemClock) -> datetime:
        return now(self) + timedelta(seconds=seconds)

    SystemClock.now = ahead  # type: ignore[method-assign]


async def _server(settings: Settings) -> None:
    async def fleet(_url: str) -> FleetParts:
        return FleetParts(fleet=NoFleet(), reviewer=Believing())

    assert settings.database_url is not None
    database = await Database.connect(
        settings.database_url.get_secret_value(), application_name=sys.argv[1]
    )
    try:
        await serve(database, settings, ready=_ready, fleet=fleet)
    except asyncio.CancelledError:
        pass
    finally:
        await database.close()


def _ready(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _put_clock_ahead(float(os.environ.get("CLOCK_AHEAD", "0")))
    settings = load()
    run(_server(settings), settings)
