"""`POST /webhooks/github`: check the signature, store the delivery durably, answer (I1).

Nothing else happens before the answer: GitHub waits ten seconds, does not retry, and may send hundreds
of webhooks per second. This is plain ASGI, without a framework's request object, because only this
address receives bursts.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import structlog
from prometheus_client import Counter, Histogram
from starlette.types import Receive, Scope, Send

from paddock.dispatch.inbox import Inbox, NotStored, Overloaded
from paddock.dispatch.installations import RegisteredApp
from paddock.domain.github.deliveries import NewDelivery
from paddock.domain.github.objects import AppKey
from paddock.github.webhooks import (
    APPLIED_EVENTS,
    PING,
    Malformed,
    NotOurs,
    Signatures,
    WrongContentType,
    read_webhook,
)
from paddock.ports import Clock
from paddock.web.answers import (
    ACCEPTED,
    HttpResponse,
    WebhookOutcome,
    WebhookRefusal,
    refusal_answer,
)

_log = structlog.get_logger()

#: GitHub sends no payload above 25 MB. (Form encoding can turn one byte into three; the events that
#: paddock applies have some ten thousand bytes.)
MAX_BODY: Final = 25 * 1024 * 1024
_LONGEST_LENGTH: Final = 10  # digits; the HTTP server has checked that they are digits
#: For all requests together: ten of the largest, or some twenty thousand ordinary ones.
MAX_HELD: Final = 256 * 1024 * 1024
#: GitHub gives up after ten seconds, and the commit needs some of them.
BODY_TIMEOUT: Final = 5.0
#: A refused sender that is still sending gets this long to read why, instead of a reset connection.
LINGER: Final = 2.0
#: Above this size checking a signature takes more than a millisecond, and would delay other requests.
LARGE: Final = 1024 * 1024

DELIVERIES = Counter(
    "paddock_webhook_deliveries_total",
    "Webhooks accepted, by event and by what became of them.",
    ["event", "outcome"],
)
REFUSALS = Counter("paddock_webhook_refusals_total", "Webhooks refused, by reason.", ["reason"])
SECONDS = Histogram(
    "paddock_webhook_seconds",
    "From a webhook's headers to its answer.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)


# Cached: looked up a million times a day.
_counter = functools.cache(DELIVERIES.labels)


class WebhookRefused(Exception):
    def __init__(
        self, refusal: WebhookRefusal, sentence: str, *, detail: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.refusal = refusal
        self.sentence = sentence
        #: Only for the log: it may name parts of the installation.
        self.detail = detail or sentence


class Disconnected(Exception):
    """The sender has disconnected, so there is no answer to send."""


class _Request:
    """A request, with the part of its body that has arrived."""

    __slots__ = ("body", "headers", "held", "is_displaced", "is_read", "receive")

    def __init__(self, headers: Mapping[bytes, bytes], receive: Receive) -> None:
        self.headers = headers
        self.receive = receive
        self.body = b""
        self.held = 0
        self.is_read = False
        #: Refused while its body was arriving, because others needed the room.
        self.is_displaced = False


class Receiver:
    def __init__(
        self,
        *,
        inbox: Inbox,
        signatures: Signatures,
        apps: Mapping[AppKey, RegisteredApp],
        clock: Clock,
    ) -> None:
        self._inbox = inbox
        self._signatures = signatures
        self._apps = apps
        self._clock = clock
        self._refusals = RefusalLog()
        self._held = 0
        #: Requests whose bodies are arriving, the oldest first, with their deadlines.
        self._arriving: dict[_Request, asyncio.Timeout] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._clock.monotonic()
        request = _Request(dict(scope["headers"]), receive)
        try:
            answer = ACCEPTED[await self._accept(request)]
        except WebhookRefused as refused:
            answer = self._refuse(request, refused)
        except Disconnected:
            return
        finally:
            self._held -= request.held
        if request.is_read:
            await answer.send(send)
        else:
            await _send_and_linger(answer, request, send)
        SECONDS.observe(self._clock.monotonic() - began)

    async def _accept(self, request: _Request) -> WebhookOutcome:
        await self._read(request)
        if len(request.body) > LARGE:
            delivery = await asyncio.to_thread(self._delivery, request)
        else:
            delivery = self._delivery(request)
        outcome = await self._keep(delivery)
        _counter(delivery.event, outcome).inc()
        return outcome

    async def _keep(self, delivery: NewDelivery) -> WebhookOutcome:
        if delivery.event == PING:
            _log.info("webhook.pinged", app=delivery.app)
            return WebhookOutcome.PONG
        if delivery.event not in APPLIED_EVENTS:
            return WebhookOutcome.IGNORED
        try:
            is_new = await self._inbox.store(delivery)
        except Overloaded as error:
            raise WebhookRefused(WebhookRefusal.OVERLOADED, str(error)) from None
        except NotStored as error:
            raise WebhookRefused(
                WebhookRefusal.NOT_STORED, "The delivery could not be stored.", detail=str(error)
            ) from None
        return WebhookOutcome.STORED if is_new else WebhookOutcome.DUPLICATE

    def _delivery(self, request: _Request) -> NewDelivery:
        try:
            app = self._apps[self._signatures.signer(request.headers, request.body)]
            return read_webhook(request.headers, request.body, host=app.host, app=app.app)
        except NotOurs as error:
            raise WebhookRefused(WebhookRefusal.SIGNATURE, str(error)) from None
        except WrongContentType as error:
            raise WebhookRefused(WebhookRefusal.CONTENT_TYPE, str(error)) from None
        except Malformed as error:
            raise WebhookRefused(WebhookRefusal.MALFORMED, str(error)) from None

    async def _read(self, request: _Request) -> None:
        """Read the whole body and check its size while it arrives: there may be no Content-Length, and
        the sender has not yet proven to be GitHub."""
        length = request.headers.get(b"content-length", b"0")
        if len(length) > _LONGEST_LENGTH or int(length) > MAX_BODY:
            raise _too_large()
        message = await request.receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            self._hold(request, message["body"])
            request.body, request.is_read = message["body"], True
            return
        try:
            async with asyncio.timeout(BODY_TIMEOUT) as deadline:
                self._arriving[request] = deadline
                try:
                    await self._read_on(request, message)
                finally:
                    self._arriving.pop(request, None)
        except TimeoutError:
            if request.is_displaced:
                raise _too_much() from None
            raise WebhookRefused(
                WebhookRefusal.TOO_SLOW, f"The body did not come within {BODY_TIMEOUT:g} s."
            ) from None

    async def _read_on(self, request: _Request, message: Mapping[str, Any]) -> None:
        chunks = []
        while True:
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunks.append(message["body"])
            self._hold(request, chunks[-1])
            if not message.get("more_body"):
                break
            message = await request.receive()
        request.body, request.is_read = b"".join(chunks), True

    def _hold(self, request: _Request, chunk: bytes) -> None:
        request.held += len(chunk)
        self._held += len(chunk)
        if request.held > MAX_BODY:
            raise _too_large()
        while self._held > MAX_HELD:
            self._make_room(request)

    def _make_room(self, request: _Request) -> None:
        """Refuse the request that has been arriving for the longest time. No sender has proven to be
        GitHub yet: a dozen that keep their last byte back must not keep deliveries out."""
        oldest = next(iter(self._arriving), request)
        if oldest is request:
            raise _too_much()
        self._held -= oldest.held
        oldest.held = 0
        oldest.is_displaced = True
        self._arriving.pop(oldest).reschedule(0)

    def _refuse(self, request: _Request, refused: WebhookRefused) -> HttpResponse:
        REFUSALS.labels(refused.refusal).inc()
        self._refusals.note(refused.refusal, refused.detail)
        return refusal_answer(refused.refusal, refused.sentence, closing=not request.is_read)


def _too_large() -> WebhookRefused:
    return WebhookRefused(WebhookRefusal.TOO_LARGE, f"The body is larger than {MAX_BODY} bytes.")


def _too_much() -> WebhookRefused:
    return WebhookRefused(WebhookRefusal.OVERLOADED, "Too much is being received at once.")


async def _send_and_linger(answer: HttpResponse, request: _Request, send: Send) -> None:
    """Answer a sender that is still sending, and discard the rest."""
    await send(answer.start)
    await send({**answer.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            while (message := await request.receive()).get("more_body"):
                del message
    await send({"type": "http.response.body"})


#: Short enough to show when refusals ended, long enough to keep the log readable.
SUMMARY_EVERY: Final = 60.0


class RefusalLog:
    """Logs refusals without letting them fill a disk: every host on the internet can reach the
    webhook's address. The first refusal of each kind is logged at once; those of the next minute become
    one line with their number."""

    def __init__(self) -> None:
        self._more: dict[WebhookRefusal, int] = {}

    def note(self, refusal: WebhookRefusal, why: str) -> None:
        """`why` says what was wrong, and quotes neither payload nor secret."""
        if refusal in self._more:
            self._more[refusal] += 1
            return
        self._more[refusal] = 0
        _log.warning("webhook.refused", reason=refusal, why=why)
        asyncio.get_running_loop().call_later(SUMMARY_EVERY, self._summarise, refusal)

    def _summarise(self, refusal: WebhookRefusal) -> None:
        more = self._more.pop(refusal)
        if more:
            _log.warning(
                "webhook.refused_more", reason=refusal, more=more, seconds=int(SUMMARY_EVERY)
            )
