"""Jobs that last until a test lets them end, on a slow machine too.

A job that sleeps for a minute ends too early on a slow machine, and costs a minute on a fast one. Here
its step requests a page that is not answered before the test says so. The request involves neither
paddock nor Kubernetes, both of which may be away meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from paddock.fakes.github.records import Step


class Gate:
    def __init__(self) -> None:
        self.url = ""
        self._open: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def wait(self, name: str = "all") -> str:
        """A shell command that ends when the gate is opened."""
        return f"wget -q -O /dev/null {self.url}/{name}"

    def job(self, name: str = "all", **more: Any) -> dict[str, Any]:
        return {"steps": (Step("work", self.wait(name)),), **more}

    def open(self, name: str = "all") -> None:
        self._open[name].set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            name = head.split(b" ", 2)[1].decode().strip("/")
            await self._open[name].wait()
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        writer.close()


@asynccontextmanager
async def gate(address: str) -> AsyncIterator[Gate]:
    found = Gate()
    held: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        held.add(task)
        try:
            await found.answer(reader, writer)
        except asyncio.CancelledError:
            writer.close()  # the test is over
        finally:
            held.discard(task)

    server = await asyncio.start_server(answer, address, 0)
    found.url = f"http://{address}:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
        left = list(held)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
