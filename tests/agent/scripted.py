"""A paddock server that answers as the test says, and breaks connections where the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

#: For what takes moments; a test that waits this long has failed.
PATIENCE = 30.0

DISPATCH, ACK, VITALS = "/v1/dispatch", "/v1/dispatch/ack", "/v1/vitals"


class Answer(Protocol):
    async def give(self, writer: asyncio.StreamWriter) -> None: ...


@dataclass(frozen=True)
class Reply:
    status: int
    content: Any = None
    headers: tuple[str, ...] = ()
    chunked: bool = False

    def encoded(self) -> bytes:
        body = b"" if self.content is None else json.dumps(self.content).encode()
        head = [f"HTTP/1.1 {self.status} Whatever", *self.headers]
        if self.chunked:
            head.append("Transfer-Encoding: chunked")
            pieces = [body[n : n + 7] for n in range(0, len(body), 7)]
            body = b"".join(b"%x;note\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
            body += b"0\r\n\r\n"
        elif self.status != 204:
            head.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*head, "", ""]).encode() + body

    async def give(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self.encoded())
        await writer.drain()


@dataclass(frozen=True)
class CutShort:
    """Only this many bytes of the reply arrive; negative: all but this many."""

    reply: Reply
    after: int

    async def give(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self.reply.encoded()[: self.after])
        await writer.drain()


@dataclass(frozen=True)
class Dribble:
    """Byte by byte."""

    reply: Reply

    async def give(self, writer: asyncio.StreamWriter) -> None:
        for byte in self.reply.encoded():
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.0005)


@dataclass(frozen=True)
class Rubbish:
    content: bytes

    async def give(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self.content)
        await writer.drain()


class Hold:
    """No answer, ever."""

    async def give(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)


@dataclass(frozen=True)
class Asked:
    path: str
    token: str
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Scripted:
    """Answers in the given order; then holds polls, and accepts everything else."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    _answers: dict[str, deque[Answer]] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def will(self, path: str, *answers: Answer) -> None:
        self._answers.setdefault(path, deque()).extend(answers)

    def of(self, path: str) -> list[Asked]:
        return [each for each in self.asked if each.path.partition("?")[0] == path]

    async def until_asked(self, path: str, times: int = 1) -> Asked:
        async with asyncio.timeout(PATIENCE):
            while len(self.of(path)) < times:
                self._news.clear()
                await self._news.wait()
        return self.of(path)[times - 1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            body = await reader.readexactly(int(headers["Content-Length"]))
            path = head[0].split()[1]
            scheme, _, token = headers["Authorization"].partition(" ")
            assert scheme == "Bearer"
            self.asked.append(Asked(path, token, body))
            self._news.set()
            await self._answer(path.partition("?")[0]).give(writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client closed the connection
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, path: str) -> Answer:
        if answers := self._answers.get(path):
            return answers.popleft()
        return Hold() if path == DISPATCH else Reply(204)


@asynccontextmanager
async def scripted_server(
    tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Scripted]:
    scripted = Scripted()
    calls: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.add(asyncio.create_task(scripted.serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", port, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    scripted.url = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
    try:
        yield scripted
    finally:
        server.close()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
