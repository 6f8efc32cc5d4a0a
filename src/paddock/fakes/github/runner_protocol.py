"""The common parts of the runner's protocol: bodies, refusals, and injected faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddock.fakes.github.faults import FaultKind
from paddock.fakes.github.world import World

#: Of a request that is not an upload. The largest is a job's result: a few hundred bytes for each step.
_MOST_OCTETS: Final = 1 << 20


#: What decoding raises.
PayloadError: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_STATUSES: Final = {
    FaultKind.BAD_CREDENTIALS: 401,
    FaultKind.NOT_ACCESSIBLE: 403,
    FaultKind.NOT_FOUND: 404,
    FaultKind.CONFLICT: 409,
    FaultKind.INVALID: 422,
    FaultKind.SERVER_ERROR: 500,
    FaultKind.BAD_GATEWAY: 502,
    FaultKind.UNAVAILABLE: 503,
}

Handler = Callable[[Request], Awaitable[Response]]


class ProtocolError(Exception):
    """A service for runners answers with an error."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class Broken(Response):
    """A reply that is lost: the connection closes before the message is complete."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": [(b"content-length", b"1")]})


def json_reply(body: Any, status: int = 200) -> Response:
    """Without this content type actions/runner reads nothing."""
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")


def broker_error(status: int, kind: str, message: str, *, key: str | None = None) -> ProtocolError:
    """actions/runner acts on `kind`, github-act-runner looks for `key` in the text."""
    body = {
        "source": "actions-broker-listener",
        "errorKind": kind,
        "statusCode": status,
        "errorMessage": message,
    }
    return ProtocolError(status, body if key is None else {**body, "typeKey": key})


def run_error(status: int, message: str) -> ProtocolError:
    body = {"source": "actions-run-service", "statusCode": status, "errorMessage": message}
    return ProtocolError(status, body)


def unauthorized() -> ProtocolError:
    return ProtocolError(401, {"message": "Requires authentication"})


async def octets(request: Request, most: int = _MOST_OCTETS) -> bytes:
    received = bytearray()
    try:
        async for piece in request.stream():
            received += piece
            if len(received) > most:
                raise ProtocolError(413, {"message": "The body is too large."})
    except ClientDisconnect:
        raise ProtocolError(400, {"message": "The body did not arrive."}) from None
    return bytes(received)


async def fields(request: Request) -> dict[str, Any]:
    """Of a JSON object, by their names in lower case: github-act-runner writes PascalCase, and
    actions/runner writes camelCase."""
    return folded(msgspec.json.decode(await octets(request) or b"{}", type=dict[str, Any]))


def folded(object_: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in object_.items()}


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list. What is none is left out: a runner's steps can write to these services
    too."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def faulty(world: World, route: str, handler: Handler) -> Handler:
    """The handler, with refusals turned into answers, and with the faults injected for its name."""

    async def answer(request: Request) -> Response:
        world.advance()
        kind = world.take_runner_fault(route)
        if kind is FaultKind.REQUEST_LOST:
            return Broken()
        if kind in _STATUSES:
            return json_reply(_injected(route, _STATUSES[kind]), _STATUSES[kind])
        try:
            response = await handler(request)
        except ProtocolError as error:
            response = json_reply(error.body, error.status)
        except PayloadError as error:
            response = json_reply({"message": str(error)}, 400)
        return Broken() if kind is FaultKind.REPLY_LOST else response

    return answer


def _injected(route: str, status: int) -> Mapping[str, Any]:
    message = f"Injected: {status}."
    if route in ("runner.acquire", "runner.renew", "runner.complete"):
        return run_error(status, message).body
    if status == 404 and route == "runner.message":
        return runner_not_found().body
    return {"message": "Not Found" if status == 404 else message}


def runner_not_found() -> ProtocolError:
    message = "The runner registration was not found."
    key = "TaskAgentSessionExpiredException"
    return broker_error(404, "RunnerNotFound", message, key=key)
