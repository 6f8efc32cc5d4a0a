"""paddock for Pods whose kubelet is the fleet benchmark: `python -m bench.fleet_server`.

Each Pod that paddock orders is a line on stdout. Each line on stdin says what became of a Pod: its
name, its pool, and a word of `Stage`. paddock sees all of it as it sees a cluster: by a watch, and by
reading the whole list.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final
from zlib import crc32

import uvloop

from bench.dispatch_server import TokenFleet, main
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import (
    RUNNER_CONTAINER,
    ContainerState,
    ContainerStatus,
    Running,
    Terminated,
    Waiting,
)
from paddock.domain.pods.pod import Host, Phase, Pod, PodList, PodOrder
from paddock.system import SystemClock

_NODES: Final = 100


class Stage(StrEnum):
    POLLING = "polling"
    RUNNING = "running"
    ENDED = "ended"


class PlayedFleet(TokenFleet):
    """Pods of a hundred nodes, as the benchmark tells of them."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._changed: asyncio.Queue[Pod] = asyncio.Queue()

    async def create(self, order: PodOrder) -> Pod:
        pod = self.tell(order.name, order.pool, Stage.POLLING)
        print(order.name, order.pool, flush=True)
        return pod

    def tell(self, name: str, pool: str, stage: Stage) -> Pod:
        pod = self._pods[name] = _pod(name, pool, stage, self._pods.get(name))
        self._changed.put_nowait(pod)
        return pod

    async def list(self) -> PodList:
        return PodList(pods=tuple(self._pods.values()), complete=True)

    async def hosts(self) -> Sequence[Host]:
        return [Host(name=_node(number)) for number in range(_NODES)]

    async def watch(self) -> AsyncIterator[Pod]:
        while True:
            yield await self._changed.get()

    async def delete_live_pod(self, name: PodName, *, uid: str) -> None:
        await self.reap(name, uid=uid)

    async def reap(self, name: PodName, *, uid: str) -> None:
        if (pod := self._pods.pop(name, None)) is not None:
            self._changed.put_nowait(replace(pod, phase=Phase.UNKNOWN, reason="deleted"))

    async def stamp(self, name: PodName, *, uid: str, owner: str) -> None:
        self._pods[name] = replace(self._pods[name], owner=owner)
        self._changed.put_nowait(self._pods[name])


def _node(number: int) -> str:
    return f"node-{number}"


def _pod(name: str, pool: str, stage: Stage, before: Pod | None) -> Pod:
    now = SystemClock().now()
    runs = ContainerState(running=Running(now))
    exited = ContainerState(terminated=Terminated(exit_code=0, reason="Completed", finished_at=now))
    initializing = ContainerState(waiting=Waiting("PodInitializing"))
    phase, poller, runner = {
        Stage.POLLING: (Phase.PENDING, runs, initializing),
        Stage.RUNNING: (Phase.RUNNING, exited, runs),
        Stage.ENDED: (Phase.SUCCEEDED, exited, exited),
    }[stage]
    return Pod(
        name=PodName(name),
        uid=name,
        pool=pool,
        phase=phase,
        node=_node(crc32(name.encode()) % _NODES),
        created_at=before.created_at if before else now,
        owner=before.owner if before else None,
        poller=ContainerStatus(name="poller", state=poller, started=True),
        containers=(
            ContainerStatus(name=RUNNER_CONTAINER, state=runner, started=stage is Stage.RUNNING),
        ),
    )


async def _play(fleet: PlayedFleet) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := (await reader.readline()).decode():
        name, pool, stage = line.split()
        fleet.tell(name, pool, Stage(stage))


async def _both() -> None:
    fleet = PlayedFleet()
    playing = asyncio.create_task(_play(fleet))
    try:
        await main(fleet)
    finally:
        playing.cancel()


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(_both())
