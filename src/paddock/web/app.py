"""All paths that paddock serves."""

from __future__ import annotations

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from paddock.github.webhooks import JSON_TYPE
from paddock.web.access import AccessDenied
from paddock.web.answers import Health, Problem
from paddock.web.console import Console
from paddock.web.health import Readiness
from paddock.web.metrics import Metrics
from paddock.web.openapi import WEBHOOKS, document
from paddock.web.pods import PodEndpoints
from paddock.web.receiver import Receiver

_log = structlog.get_logger()


class Application:
    """Webhooks and the Pods' most frequent requests bypass the framework: its routing would double
    their cost."""

    def __init__(
        self,
        *,
        receiver: Receiver,
        readiness: Readiness,
        metrics: Metrics,
        pods: PodEndpoints | None = None,
        console: Console | None = None,
    ) -> None:
        """Without `pods`, Pods cannot ask for work here; without `console`, there is no dashboard."""
        self._receiver = receiver
        self._access = console.access if console is not None else None
        framework = _framework(receiver, readiness, metrics, pods, console)
        self._others = framework if pods is None else pods.before(framework)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"] == WEBHOOKS and scope["method"] == "POST":
                await self._receiver(scope, receive, send)
            elif (sentence := self._refusal(scope)) is not None:
                await _json(403, Problem(sentence))(scope, receive, send)
            else:
                await self._others(scope, receive, send)
        except Exception:
            _log.exception("request.failed", path=scope["path"])
            raise

    def _refusal(self, scope: Scope) -> str | None:
        """A server that is open to this machine must refuse a foreign page that reaches it under a name
        of the page's own."""
        if self._access is None or not self._access.open_to_this_machine:
            return None
        try:
            self._access.check_host(HTTPConnection(scope))
        except AccessDenied as refused:
            return refused.sentence
        return None


def _framework(
    receiver: Receiver,
    readiness: Readiness,
    metrics: Metrics,
    pods: PodEndpoints | None,
    console: Console | None,
) -> Starlette:
    description = msgspec.json.encode(
        document(with_pods=pods is not None, with_console=console is not None)
    )

    async def healthz(_: Request) -> Response:
        return _json(200, Health("ok"))

    async def readyz(_: Request) -> Response:
        if await readiness.check():
            return _json(200, Health("ready"))
        return _json(503, Problem("The database cannot be used now; the log says why."))

    async def openapi(_: Request) -> Response:
        return Response(description, media_type=JSON_TYPE)

    return Starlette(
        routes=[
            Route(WEBHOOKS, receiver, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics.respond),
            Route("/openapi.json", openapi),
            *(pods.routes if pods is not None else ()),
            *(console.routes if console is not None else ()),
        ],
        exception_handlers={404: console.not_found} if console is not None else None,
    )


def _json(status: int, content: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type=JSON_TYPE)
