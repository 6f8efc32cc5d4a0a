"""The HTTP requests of Pods: asking for work, acknowledging it, reporting vitals.

The server holds a request for work until there is some. Thousands are held at once, so each costs only
a task and an entry in a dictionary. When a Pod disconnects, both are freed at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar, assert_never
from uuid import UUID

import msgspec
import structlog
from prometheus_client import Counter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.dispatch.dispatcher import Dispatcher
from paddock.dispatch.identity import Identities
from paddock.dispatch.vitals import VitalsBatches
from paddock.domain.plain_text import escaped
from paddock.domain.pods.pod import Audience, PodIdentity
from paddock.domain.runners.handover import Answer, Handover, Leave, NothingYet
from paddock.domain.runners.vitals import MOST_REPORTED, Sample, VitalsReport
from paddock.github.payloads import PayloadError
from paddock.github.webhooks import JSON_TYPE
from paddock.ports import Clock, FleetUnavailable, ReviewsExhausted
from paddock.ports.errors import StoreError
from paddock.ports.runners import VitalsStore
from paddock.web.answers import RETRY_AFTER, Problem
from paddock.web.log_limit import LogLimit

_log = structlog.get_logger()

T = TypeVar("T")

DISPATCH: Final = "/v1/dispatch"
#: The longest that a request is held: below the minute after which load balancers cut idle connections.
LONGEST_WAIT: Final = 50.0
DEFAULT_WAIT: Final = 30.0
#: An acknowledgement has some sixty bytes; a report of 64 samples some ten thousand.
_MOST_ACK: Final = 1024
_MOST_VITALS: Final = 64 * 1024
#: A sidecar reports every few seconds. A Pod's more frequent reports are refused, over all connections.
_VITALS_GAP: Final = 1.0

REFUSED = Counter("paddock_pod_requests_refused_total", "Pods' requests refused.", ["reason"])


class Jit(msgspec.Struct, frozen=True):
    """Work: the configuration of a runner that may run one job. Acknowledge it by its delivery."""

    delivery: UUID
    runner_name: str
    jit: str


class Acknowledgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delivery: UUID


class VitalsBody(msgspec.Struct, frozen=True):
    """A runner's vitals, and when its job began, as the Pod reports it."""

    samples: Annotated[list[Sample], msgspec.Meta(max_length=MOST_REPORTED)]
    job_started_at: Annotated[float, msgspec.Meta(ge=0, le=4e9)] | None = None


class LeaveBody(msgspec.Struct, frozen=True):
    reason: str


class _Refused(Exception):
    def __init__(self, status: int, sentence: str, *, reason: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.reason = reason


class PodEndpoints:
    def __init__(
        self, *, dispatcher: Dispatcher, identities: Identities, store: VitalsStore, clock: Clock
    ) -> None:
        self._dispatcher = dispatcher
        self._identities = identities
        self._vitals_batches = VitalsBatches(store, clock)
        self._clock = clock
        self._reported: dict[str, float] = {}
        self._failures = LogLimit(clock)

    @property
    def routes(self) -> list[Route]:
        return [
            Route(DISPATCH, self._guarded(self._dispatch), methods=["POST"]),
            Route("/v1/dispatch/ack", self._guarded(self._acknowledge), methods=["POST"]),
            *self.vitals_routes,
        ]

    @property
    def vitals_routes(self) -> list[Route]:
        return [Route("/v1/vitals", self._guarded(self._vitals), methods=["POST"])]

    def before(self, framework: ASGIApp) -> ASGIApp:
        """Let polls bypass the framework: its routing would double their cost."""
        dispatch = self._guarded(self._dispatch)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == DISPATCH and scope["method"] == "POST":
                response = await dispatch(Request(scope, receive))
                await response(scope, receive, send)
            else:
                await framework(scope, receive, send)

        return answer

    def _guarded(self, handler: Any) -> Any:
        async def endpoint(request: Request) -> Response:
            try:
                return await handler(request)  # type: ignore[no-any-return]
            except _Refused as refused:
                REFUSED.labels(refused.reason).inc()
                return _problem(refused.status, refused.sentence)
            except ReviewsExhausted:
                # Counted, not logged: there may be hundreds per second.
                REFUSED.labels("reviews").inc()
                return _problem(503, "Too many tokens are reviewed now; ask again.")
            except (FleetUnavailable, StoreError) as error:
                REFUSED.labels("unavailable").inc()
                if requests := self._failures.count():
                    _log.warning("pod.request_failed", error=str(error), requests=requests)
                return _problem(503, "paddock cannot answer now; ask again.")

        return endpoint

    async def _dispatch(self, request: Request) -> Response:
        wait = _wait_of(request)
        pod = await self._who(request, Audience.DISPATCH)
        polling = asyncio.current_task()
        assert polling is not None

        def end(_: asyncio.Task[None]) -> None:
            polling.cancel()

        hung_up = asyncio.create_task(_hang_up(request))
        hung_up.add_done_callback(end)
        try:
            return _answer(await self._dispatcher.poll(pod, wait=wait))
        except asyncio.CancelledError:
            if not hung_up.done() or polling.uncancel():
                raise
            return Response(status_code=HTTPStatus.NO_CONTENT)  # the Pod has disconnected
        finally:
            hung_up.remove_done_callback(end)
            hung_up.cancel()

    async def _acknowledge(self, request: Request) -> Response:
        pod = await self._who(request, Audience.DISPATCH)
        said = await _body(request, Acknowledgement, most=_MOST_ACK)
        match await self._dispatcher.acknowledge(pod, said.delivery):
            case Leave() as leave:
                return _json(410, LeaveBody(leave.reason))
            case False:
                raise _Refused(409, "That delivery was not made to this Pod.", reason="delivery")
            case True:
                return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _vitals(self, request: Request) -> Response:
        pod = await self._who(request, Audience.VITALS)
        self._slow_down(pod)
        report = await _body(request, VitalsBody, most=_MOST_VITALS)
        began = report.job_started_at
        kept = await self._vitals_batches.add(
            VitalsReport(
                pod_name=pod.pod_name,
                pod_uid=pod.pod_uid,
                samples=report.samples,
                job_started_at=None if began is None else datetime.fromtimestamp(began, UTC),
            )
        )
        if not kept:
            return _json(410, LeaveBody("the runner has ended"))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _who(self, request: Request, audience: Audience) -> PodIdentity:
        # The connection's peer address, not a header that the sender could choose.
        peer = request.client.host if request.client is not None else ""
        pod = await self._identities.identify(request.headers, peer=peer)
        if pod is None:
            raise _Refused(401, "The token is not one of a Pod's.", reason="token")
        # A token for work may also report vitals, but a token for vitals may not ask for work.
        if pod.audience is not audience and pod.audience is not Audience.DISPATCH:
            raise _Refused(403, "The token is not for this.", reason="audience")
        return pod

    def _slow_down(self, pod: PodIdentity) -> None:
        now = self._clock.monotonic()
        if now - self._reported.get(pod.pod_uid, -_VITALS_GAP) < _VITALS_GAP:
            raise _Refused(429, "Vitals are taken once a second.", reason="rate")
        if len(self._reported) > 100_000:
            self._reported.clear()
        self._reported[pod.pod_uid] = now


def _wait_of(request: Request) -> float:
    text = request.query_params.get("wait")
    if text is None:
        return DEFAULT_WAIT
    with suppress(ValueError):
        wait = float(text)
        if 0 <= wait <= 3600:
            return min(wait, LONGEST_WAIT)
    raise _Refused(400, "`wait` is a number of seconds.", reason="malformed")


async def _body(request: Request, kind: type[T], *, most: int) -> T:
    read = b""
    try:
        async for chunk in request.stream():
            read += chunk
            if len(read) > most:
                raise _Refused(413, f"The body has more than {most} bytes.", reason="size")
    except ClientDisconnect:
        raise _Refused(400, "The body did not arrive.", reason="incomplete") from None
    try:
        return msgspec.json.decode(read, type=kind)
    except PayloadError as error:
        raise _Refused(
            400, f"The body is not understood: {escaped(str(error))}", reason="malformed"
        ) from None


async def _hang_up(request: Request) -> None:
    """Returns when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer(answer: Answer | None) -> Response:
    match answer:
        case None:
            # The Pod's row may not be written yet, or the Pod is not ours: recovery adopts Pods.
            return _problem(403, "No runner is known by this Pod.")
        case Handover():
            return _json(
                200,
                Jit(delivery=answer.delivery, runner_name=answer.runner_name, jit=answer.jit),
            )
        case Leave():
            return _json(410, LeaveBody(answer.reason))
        case NothingYet():
            return Response(status_code=HTTPStatus.NO_CONTENT)
        case _:
            assert_never(answer)


def _json(status: int, content: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type=JSON_TYPE)


def _problem(status: int, sentence: str) -> Response:
    headers = {"retry-after": str(RETRY_AFTER)} if status == 503 else None
    return Response(
        msgspec.json.encode(Problem(sentence)),
        status_code=status,
        media_type=JSON_TYPE,
        headers=headers,
    )
