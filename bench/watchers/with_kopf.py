"""kopf: `python -m bench.watchers.with_kopf PORT`.

An operator with one handler for Pods, which notes what is needed and changes nothing. kopf's other
features are off: no peering, no scanning, no events posted, no log below warnings; the list comes in
pages. kopf handles a Pod's events in order, but not those of different Pods. So it is done when the
last event of each Pod was handled.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any
from urllib.request import urlopen

import kopf
import uvloop

from bench.watchers.result import Needed, begin, hand_in, needed
from bench.watchers.stream import NAMESPACE

PAGE = 1000


class Notes:
    def __init__(self, finals: dict[str, str]) -> None:
        self.pods: dict[str, Needed] = {}
        self.done = asyncio.Event()
        self._finals = finals

    def take(self, kind: str | None, body: Any) -> None:
        metadata = body["metadata"]
        if kind == "DELETED":
            self.pods.pop(metadata["name"], None)
        else:
            self.pods[metadata["name"]] = needed(body)
        if self._finals.get(metadata["uid"]) == metadata["resourceVersion"]:
            del self._finals[metadata["uid"]]
            if not self._finals:
                self.done.set()


def operator(port: int, notes: Notes) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.watching.chunk_size = PAGE

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=f"http://127.0.0.1:{port}")

    @kopf.on.event("pods", registry=registry)
    async def noted(event: Any, **_: Any) -> None:
        notes.take(event["type"], event["object"])

    return registry


async def follow(port: int) -> None:
    notes = Notes(await asyncio.to_thread(_finals, port))
    stop = asyncio.Event()
    running = asyncio.create_task(
        kopf.operator(registry=operator(port, notes), namespaces=[NAMESPACE], stop_flag=stop)
    )
    waiting = asyncio.create_task(notes.done.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    hand_in(notes.pods)
    stop.set()
    await running


def _finals(port: int) -> dict[str, str]:
    with urlopen(f"http://127.0.0.1:{port}/finals") as answer:
        found: dict[str, str] = json.load(answer)
    return found


if __name__ == "__main__":
    begin()
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(follow(int(sys.argv[1])))
