"""The runner's side over HTTP. This protocol is the fake's own: a real runner speaks to a service of
GitHub's that paddock never sees.

    POST   /_runner/sessions                          {client_id, secret, version} → {session_id}
    POST   /_runner/sessions/S/poll?wait=50           → 200 {type: job|cancel, job_id}, 204 nothing
    POST   /_runner/sessions/S/jobs/J/acquire         → the job's name, repository and steps
    POST   /_runner/sessions/S/jobs/J/renew           the lease
    POST   /_runner/sessions/S/jobs/J/complete        {conclusion, steps}
    DELETE /_runner/sessions/S
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.fakes.github.model import FakeGitHub
from paddock.fakes.github.records import Runner
from paddock.fakes.github.runners import (
    Cancellation,
    JobGoneError,
    Offer,
    RegistrationDeletedError,
    RunnerRefused,
    SessionConflictError,
)

#: A real runner's long poll takes about this long.
_MAX_WAIT = 50.0


class _Connect(msgspec.Struct, frozen=True):
    client_id: str
    secret: str
    version: str = ""


class _StepEnd(msgspec.Struct, frozen=True):
    name: str
    conclusion: str


class _Complete(msgspec.Struct, frozen=True):
    conclusion: str
    steps: list[_StepEnd] = []


def _json(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")


def _refused(refusal: RunnerRefused) -> Response:
    match refusal:
        case RegistrationDeletedError():
            status = 401
        case SessionConflictError():
            status = 409
        case JobGoneError():
            status = 410
        case _:
            status = 403
    return _json({"code": refusal.code, "message": str(refusal)}, status)


Handler = Callable[[Request], Awaitable[Response]]


def _guarded(handler: Handler) -> Handler:
    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except RunnerRefused as refusal:
            return _refused(refusal)
        except msgspec.ValidationError as error:
            return _json({"code": "invalid", "message": str(error)}, 422)

    return guarded


class _RunnerApi:
    def __init__(self, github: FakeGitHub) -> None:
        self._github = github
        self._waiting: dict[int, asyncio.Event] = {}
        github.runners.on_news(self._wake)

    def _wake(self, runner: Runner) -> None:
        if event := self._waiting.get(runner.id):
            event.set()

    async def connect(self, request: Request) -> Response:
        body = msgspec.json.decode(await request.body(), type=_Connect)
        session = self._github.runners.connect(
            client_id=body.client_id, secret=body.secret, version=body.version
        )
        return _json({"session_id": session.id}, 201)

    async def poll(self, request: Request) -> Response:
        session_id = request.path_params["session"]
        wait = min(float(request.query_params.get("wait", "0")), _MAX_WAIT)
        message = self._github.runners.poll(session_id)
        if message is None and wait > 0:
            await self._news(self._github.world.sessions[session_id], wait)
            # A runner that died meanwhile must not be given the message: nobody would execute it.
            if await request.is_disconnected():
                return Response(status_code=204)
            message = self._github.runners.poll(session_id)
        match message:
            case None:
                return Response(status_code=204)
            case Offer():
                return _json({"type": "job", "job_id": message.job_id})
            case Cancellation():
                return _json({"type": "cancel", "job_id": message.job_id})

    async def _news(self, runner: Runner, wait: float) -> None:
        event = self._waiting[runner.id] = asyncio.Event()
        try:
            await asyncio.wait_for(event.wait(), timeout=wait)
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(runner.id, None)

    async def acquire(self, request: Request) -> Response:
        return _json(self._github.runners.acquire(*_ids(request)))

    async def renew(self, request: Request) -> Response:
        self._github.runners.renew(*_ids(request))
        return Response(status_code=204)

    async def complete(self, request: Request) -> Response:
        body = msgspec.json.decode(await request.body(), type=_Complete)
        steps = [msgspec.structs.asdict(step) for step in body.steps]
        self._github.runners.complete(*_ids(request), body.conclusion, steps)
        return Response(status_code=204)

    async def disconnect(self, request: Request) -> Response:
        self._github.runners.disconnect(request.path_params["session"])
        return Response(status_code=204)


def routes(github: FakeGitHub) -> list[Route]:
    api = _RunnerApi(github)
    job = "/sessions/{session}/jobs/{job:int}"
    table: list[tuple[str, str, Handler]] = [
        ("POST", "/sessions", api.connect),
        ("DELETE", "/sessions/{session}", api.disconnect),
        ("POST", "/sessions/{session}/poll", api.poll),
        ("POST", f"{job}/acquire", api.acquire),
        ("POST", f"{job}/renew", api.renew),
        ("POST", f"{job}/complete", api.complete),
    ]
    return [Route(path, _guarded(handler), methods=[method]) for method, path, handler in table]


def _ids(request: Request) -> tuple[str, int]:
    return request.path_params["session"], request.path_params["job"]
