"""A connection between a Pod and its server that is cut at a chosen moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto

Meanwhile = Callable[[], Awaitable[object]]


class Cut(Enum):
    """The point of a request at which the connection is cut."""

    BEFORE_IT_ARRIVES = auto()
    WHILE_IT_IS_HELD = auto()
    BEFORE_THE_REPLY = auto()
    WITHIN_THE_REPLY = auto()


async def _nothing() -> None: ...


class Line:
    """Carries one request per connection, as the agent sends them."""

    def __init__(self) -> None:
        self.url = ""
        #: The server's port, which changes when it is started anew.
        self.port = 0
        #: The server's answers, by path, including those that did not arrive.
        self.replies: list[tuple[str, bytes]] = []
        self._cuts: dict[str, tuple[Cut, Meanwhile]] = {}
        self._calls: set[asyncio.Task[None]] = set()

    def cut(self, path: str, where: Cut, meanwhile: Meanwhile = _nothing) -> None:
        """Cuts the next request to this path, once `meanwhile` is done."""
        self._cuts[path] = (where, meanwhile)

    @property
    def waits(self) -> bool:
        """Whether a cut is still to come."""
        return bool(self._cuts)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Line]:
        line = cls()
        server = await asyncio.start_server(line._connected, "127.0.0.1", 0)
        line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield line
        finally:
            server.close()
            for call in line._calls:
                call.cancel()
            await asyncio.gather(*line._calls, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.create_task(self._call(reader, writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._carry(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, request = await _read(reader)
        where, meanwhile = self._cuts.pop(path, (None, _nothing))
        if where is Cut.BEFORE_IT_ARRIVES:
            await meanwhile()
            return
        upstream, up = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            up.write(request)
            if where is Cut.WHILE_IT_IS_HELD:
                await meanwhile()
                return
            reply = await upstream.read()
            self.replies.append((path, reply))
            match where:
                case Cut.BEFORE_THE_REPLY:
                    await meanwhile()
                case Cut.WITHIN_THE_REPLY:
                    writer.write(reply[: len(reply) // 2])
                    await writer.drain()
                    await meanwhile()
                case _:
                    writer.write(reply)
                    await writer.drain()
        finally:
            up.close()
            with suppress(OSError):
                await up.wait_closed()


async def _read(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    path = head.split(b" ", 2)[1].partition(b"?")[0].decode()
    return path, head + await reader.readexactly(length)
