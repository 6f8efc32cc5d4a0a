"""Answers over HTTP: their types, and ready-made messages for frequent ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec
from starlette.types import Send

#: A database restarts or fails over within seconds. A full queue is worked off in two.
RETRY_AFTER: Final = 5


class WebhookOutcome(StrEnum):
    """The outcome of an accepted webhook."""

    STORED = "stored"
    DUPLICATE = "duplicate"  # its GUID is known
    IGNORED = "ignored"  # an event that paddock does not use
    PONG = "pong"


class WebhookRefusal(StrEnum):
    """Why a webhook was not accepted."""

    SIGNATURE = "signature"
    MALFORMED = "malformed"
    CONTENT_TYPE = "content_type"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    OVERLOADED = "overloaded"
    NOT_STORED = "not_stored"

    @property
    def status(self) -> int:
        return _STATUS[self]


_STATUS: Final = {
    WebhookRefusal.SIGNATURE: 401,
    WebhookRefusal.MALFORMED: 400,
    WebhookRefusal.CONTENT_TYPE: 415,
    WebhookRefusal.TOO_LARGE: 413,
    WebhookRefusal.TOO_SLOW: 408,
    WebhookRefusal.OVERLOADED: 503,
    WebhookRefusal.NOT_STORED: 503,
}


class Accepted(msgspec.Struct, frozen=True):
    outcome: WebhookOutcome


class Problem(msgspec.Struct, frozen=True):
    """One sentence; GitHub shows it in its list of deliveries."""

    error: str


class Health(msgspec.Struct, frozen=True):
    status: str


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer as its two ASGI messages."""

    status: int
    start: dict[str, Any]
    body: dict[str, Any]

    async def send(self, send: Send) -> None:
        await send(self.start)
        await send(self.body)


def json_answer(
    status: int, content: msgspec.Struct, headers: Sequence[tuple[bytes, bytes]] = ()
) -> HttpResponse:
    body = msgspec.json.encode(content)
    return HttpResponse(
        status=status,
        start={
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                *headers,
            ],
        },
        body={"type": "http.response.body", "body": body},
    )


ACCEPTED: Final = {
    outcome: json_answer(202 if outcome is WebhookOutcome.STORED else 200, Accepted(outcome))
    for outcome in WebhookOutcome
}


def refusal_answer(refusal: WebhookRefusal, sentence: str, *, closing: bool) -> HttpResponse:
    headers: list[tuple[bytes, bytes]] = []
    if refusal.status == 503:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER))
    if closing:
        headers.append((b"connection", b"close"))
    return json_answer(refusal.status, Problem(sentence), headers)
