"""The feed: a runner sends the lines of its steps over a websocket while they run.

The request for it goes through the same listener and the same checks as every other. Only then does
the feed take the connection over. The listener still counts the connection, and an incomplete frame
has the deadline of a body. There is one feed for each job, as long as the job is executed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddock.fakes.github.frames import FrameReader, accept_key, close_frame
from paddock.fakes.github.model import FakeGitHub
from paddock.fakes.github.records import Job
from paddock.fakes.github.runner_auth import RunnerAuth, executes
from paddock.fakes.github.runner_protocol import Handler, ProtocolError
from paddock.listener import LimitedProtocol

_EXTENSION: Final = "paddock.feed"
#: How often the feed checks that its job still runs.
_CHECK_SECONDS: Final = 30.0


class FeedProtocol(LimitedProtocol):
    """A connection of the listener that a handler may take over."""

    _frames: FrameReader | None = None
    _on_message: Callable[[bytes], None]
    over: asyncio.Event

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {_EXTENSION: {"connection": self}}

    def take_over(self, key: str, on_message: Callable[[bytes], None]) -> None:
        self._frames, self._on_message, self.over = FrameReader(), on_message, asyncio.Event()
        head = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n"
        )
        self.transport.write(head.encode())

    def data_received(self, data: bytes) -> None:
        if self._frames is None:
            super().data_received(data)
            return
        messages, answer = self._frames.feed(data)
        for message in messages:
            self._on_message(message)
        if answer:
            self.transport.write(answer)
        if self._frames.closed:
            self.transport.close()
        elif self.flow.write_paused:
            # The peer does not read the answers to its pings, which would be kept without limit.
            self.flow.pause_reading()
        if messages:  # it makes progress: the next frame has a deadline of its own
            self.expect(more=False)
        self.expect(more=self._frames.waits)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._frames is not None:
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._frames is not None:
            self.over.set()

    def end_feed(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(close_frame())
            self.transport.close()


class _Lines(msgspec.Struct, frozen=True, rename="pascal"):
    value: list[str] = []


class Feed:
    def __init__(self, github: FakeGitHub, auth: RunnerAuth) -> None:
        self._github = github
        self._auth = auth
        self._open: dict[int, FeedProtocol] = {}

    @property
    def handlers(self) -> list[tuple[str, str, str, Handler]]:
        return [("runner.feed", "GET", "/feed", self.connect)]

    async def connect(self, request: Request) -> Response:
        runner, job = self._auth.job(request.headers)
        key = request.headers.get("sec-websocket-key", "")
        connection = request.scope.get("extensions", {}).get(_EXTENSION, {}).get("connection")
        if request.headers.get("upgrade", "").lower() != "websocket" or not key or not connection:
            raise ProtocolError(426, {"message": "This is a websocket."})
        if runner.job is not job or not executes(runner):
            raise ProtocolError(404, {"message": "Not Found"})
        return _Taken(self, connection, job, key)

    async def receive(self, connection: FeedProtocol, job: Job, key: str) -> None:
        """Returns when the connection ends, the job has a newer connection, or the job is over."""

        def on_message(message: bytes) -> None:
            try:
                lines = msgspec.json.decode(message, type=_Lines).value
            except msgspec.DecodeError:
                return
            self._github.uploads.say(job.id, lines)

        if (earlier := self._open.get(job.id)) is not None:
            earlier.end_feed()
        self._open[job.id] = connection
        connection.take_over(key, on_message)
        try:
            while not connection.over.is_set():
                try:
                    async with asyncio.timeout(_CHECK_SECONDS):
                        await connection.over.wait()
                except TimeoutError:
                    if job.runner is None or job.runner.job is not job or not executes(job.runner):
                        connection.end_feed()
        finally:
            if self._open.get(job.id) is connection:
                del self._open[job.id]


class _Taken(Response):
    """The feed takes the connection over instead of an answer."""

    def __init__(self, feed: Feed, connection: FeedProtocol, job: Job, key: str) -> None:
        super().__init__()
        self._receive = feed.receive(connection, job, key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._receive
