"""HTTP on a socket, from the first request to the last one's answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.types import ASGIApp

from paddock.listener import BACKLOG, Listener, ListenerLimits
from paddock.web.tls import ServerCertificate

#: Every webhook is answered within this time (see `paddock.dispatch.inbox`).
FINISH_WITHIN: Final = 10


class CannotListen(Exception):
    """The server cannot listen at the address; the argument is a sentence that says why."""


def bind(address: tuple[str, int]) -> socket.socket:
    """Listen: from now on the kernel queues connections instead of refusing them."""
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
async def serving(
    app: ASGIApp,
    listener: socket.socket,
    *,
    limits: ListenerLimits | None = None,
    certificate: ServerCertificate | None = None,
) -> AsyncIterator[Listener]:
    """Serve until the end of the block, over TLS if there is a certificate. Then accept no new requests
    and finish those under way, unless cancelled."""
    server = Listener(
        app,
        limits or ListenerLimits(),
        tls=certificate.context if certificate else None,
        timeout_graceful_shutdown=FINISH_WITHIN,
    )
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        yield server
    finally:
        server.should_exit = True
        server.leaving.set()
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            server.force_exit = True
            task.cancel()
            raise
