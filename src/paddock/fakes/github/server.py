"""The fake GitHub over HTTP: GitHub's REST API, the runner's protocol, webhooks, and real time.

Runners speak to services of GitHub's that have hosts of their own; here they are below `/_runner/`
(`runner_routes`). Below `/_fake/` another process sets the scene and reads the truth (`control`), if
it gives the secret.

It is for programs only. A browser on the same machine also runs pages of other sites. They may send
requests anywhere, and may point a host name of their own at this address. So requests from pages, and
requests for another host name, are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.fakes.github import control
from paddock.fakes.github.answers import ErrorResponse, Request
from paddock.fakes.github.broker import RunnerBroker
from paddock.fakes.github.feed import Feed, FeedProtocol
from paddock.fakes.github.hooks import Outgoing
from paddock.fakes.github.model import FakeGitHub
from paddock.fakes.github.results import ResultsService
from paddock.fakes.github.run_service import RunService
from paddock.fakes.github.runner_auth import RunnerAuth
from paddock.fakes.github.runner_ids import PREFIX
from paddock.fakes.github.runner_protocol import Broken, PayloadError, ProtocolError, faulty, octets
from paddock.listener import Listener, ListenerLimits, hostname, is_loopback, requested_host

#: GitHub waits this long for a webhook's answer.
_WEBHOOK_SECONDS = 10.0
#: The webhooks of a matrix are sent in parallel, as GitHub's are.
_WEBHOOKS_AT_ONCE = 32
#: How long the ticker sleeps when nothing is due.
_LONGEST_NAP = 60.0

#: Enough for the runners of one machine and a paddock server.
_LIMITS: Final = ListenerLimits(connections=2048)

#: Of a request's body, which is read before its token is checked. The largest has some hundred bytes.
_MOST_OCTETS: Final = 64 * 1024

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def plain_http() -> ssl.SSLContext:
    """Trusts no certificate: for clients that speak plain HTTP to this machine. Loading the list of
    authorities would take longer than the rest of a small server's start."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def wall_clock() -> datetime:
    return datetime.now(UTC)


def _for_programs(app: ASGIApp, host: str) -> ASGIApp:
    """Refuses requests of pages, and requests for other host names than `host` and the loopback's."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        name = hostname(requested_host(headers))
        by_a_page = "origin" in headers or headers.get("sec-fetch-site", "none") != "none"
        if by_a_page or not (name == host or is_loopback(name)):
            message = "This is for programs of this machine, and not for pages in a browser."
            await _json({"message": message}, status=403)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


def _application(github: FakeGitHub, control_secret: str | None) -> Starlette:
    """GitHub's API, the runner's and the control API; without webhooks and without a ticker."""

    async def rest(request: HttpRequest) -> Response:
        try:
            raw = await octets(request, most=_MOST_OCTETS)
            body = msgspec.json.decode(raw) if raw else None
        except ProtocolError as error:
            return _json(error.body, status=error.status)
        except PayloadError:
            return _json(ErrorResponse(400, "Problems parsing JSON").reply().body, status=400)
        reply = github.request(
            Request(
                method=request.method,
                path=request.url.path,
                query=dict(request.query_params),
                headers={name.lower(): value for name, value in request.headers.items()},
                body=body,
            )
        )
        if reply.latency:
            await asyncio.sleep(reply.latency)
        if reply.lost:
            return Broken()
        if reply.body is None:
            return Response(status_code=reply.status, headers=reply.headers)
        if isinstance(reply.body, str):
            return HTMLResponse(reply.body, status_code=reply.status, headers=reply.headers)
        return _json(reply.body, status=reply.status, headers=reply.headers)

    controls = [] if control_secret is None else control.routes(github, control_secret)
    return Starlette(
        routes=[
            Mount(PREFIX, routes=runner_routes(github)),
            Mount("/_fake", routes=controls),
            Route("/{path:path}", rest, methods=_METHODS),
        ]
    )


def _json(body: object, *, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(body),
        status_code=status,
        headers=headers,
        media_type="application/json; charset=utf-8",
    )


class Sender:
    """Posts webhooks and reports the outcome to the model."""

    def __init__(self, github: FakeGitHub) -> None:
        self._github = github
        self._queue: asyncio.Queue[Outgoing] = asyncio.Queue()

    def __call__(self, outgoing: Outgoing) -> int | None:
        if outgoing.url is None:
            return 200  # no webhook address is set
        self._queue.put_nowait(outgoing)
        return None

    async def run(self) -> None:
        async with (
            httpx2.AsyncClient(
                timeout=_WEBHOOK_SECONDS, trust_env=False, verify=plain_http()
            ) as client,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(_WEBHOOKS_AT_ONCE):
                group.create_task(self._work(client))

    async def _work(self, client: httpx2.AsyncClient) -> None:
        while True:
            outgoing = await self._queue.get()
            assert outgoing.url is not None
            began = time.monotonic()
            status, answer = 0, None
            try:
                response = await client.post(
                    outgoing.url, content=outgoing.body, headers=outgoing.headers
                )
                status, answer = response.status_code, response.text[:1000]
            except httpx2.TransportError:
                pass  # listed as failed, so that a redelivery can repair it
            self._github.hooks.finished(
                outgoing.delivery_id, status, duration=time.monotonic() - began, answer=answer
            )


class Ticker:
    """Lets the model advance with real time; wakes exactly when an event is due."""

    def __init__(self, github: FakeGitHub) -> None:
        self._github = github
        self._sooner = asyncio.Event()
        github.world.schedule.on_sooner = self._sooner.set

    async def run(self) -> None:
        while True:
            self._sooner.clear()
            self._github.advance()
            due = self._github.next_due
            nap = _LONGEST_NAP if due is None else (due - wall_clock()).total_seconds()
            # `wait_for` of Python 3.11 ignores a cancellation that comes together with its event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(nap, 0.0), _LONGEST_NAP)):
                    await self._sooner.wait()


@asynccontextmanager
async def serving(
    github: FakeGitHub,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    control_secret: str | None = None,
) -> AsyncIterator[str]:
    """Serve it in this event loop; yields the base URL, which the model then says is its own. Without
    `control_secret` there is no control over HTTP."""
    with socket.create_server((host, port)) as listener:
        url = f"http://{host}:{listener.getsockname()[1]}"
        github.world.api_url = github.world.html_url = url
        sender, ticker = Sender(github), Ticker(github)
        github.hooks.sink = sender
        server = Listener(
            _for_programs(_application(github, control_secret), host),
            _LIMITS,
            protocol=FeedProtocol,
            timeout_graceful_shutdown=1,
            date_header=False,
        )
        tasks = [
            asyncio.create_task(server.serve(sockets=[listener])),
            asyncio.create_task(sender.run()),
            asyncio.create_task(ticker.run()),
        ]
        try:
            yield url
        finally:
            server.should_exit = server.force_exit = True  # long polls need not be waited for
            server.leaving.set()
            for task in tasks[1:]:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            for end in ends:  # a fake that failed must not look like one without events
                if isinstance(end, Exception):
                    raise end


def runner_routes(github: FakeGitHub) -> list[Route]:
    """The services that runners speak to, together: the routes below `/_runner`."""
    auth = RunnerAuth(github.world)
    services = (
        RunnerBroker(github, auth),
        RunService(github, auth),
        ResultsService(github, auth),
        Feed(github, auth),
    )
    return [
        Route(path, faulty(github.world, name, handler), methods=[method])
        for service in services
        for name, method, path, handler in service.handlers
    ]
