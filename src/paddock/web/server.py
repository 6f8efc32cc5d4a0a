"""HTTP on a socket, from the first request to the last one's answer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import uvicorn
from starlette.types import ASGIApp

#: Longer than the 60 s for which nginx and most balancers keep idle connections to us: whoever closes
#: first must be they, or a request sent at that moment is lost.
KEEP_ALIVE: Final = 75
#: No webhook is answered later than this (see `paddock.dispatch.inbox`).
FINISH_WITHIN: Final = 10
#: Connections the kernel accepts for us while we are busy. A burst comes on hundreds of them.
BACKLOG: Final = 4096


class CannotListen(Exception):
    """The address cannot be served at; says why in a sentence."""


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it, and wakes once a second: uvicorn's own ten times a second cost
    as much as fifty polls a minute."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.leaving = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        # Every tenth tick of its own sets the date of answers.
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.leaving.wait()


def bind(address: tuple[str, int]) -> socket.socket:
    """From now on whoever connects is kept waiting instead of turned away."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(
            f"paddock cannot listen at {host}:{port} ({error.strerror or error}): choose another "
            "address with PADDOCK_LISTEN, or end what uses this one."
        ) from error


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve until the end of the block. Then nothing new is accepted, and what is under way is
    finished, unless that is cancelled."""
    # What it has to say of a stranger's bad request is not worth a line each; of our own errors the
    # application speaks.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=FINISH_WITHIN,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        yield
    finally:
        server.should_exit = True
        server.leaving.set()
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            server.force_exit = True
            task.cancel()
            raise
