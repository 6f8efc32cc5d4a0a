"""The services for a runner's listener: the token endpoint, its session, and the long poll for
messages.

github-act-runner first asks an older service, which redirects it to the broker (`connection_data`,
`old_session`).
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from paddock.fakes.github.model import FakeGitHub
from paddock.fakes.github.records import Runner
from paddock.fakes.github.runner_auth import RunnerAuth, executes
from paddock.fakes.github.runner_ids import BROKER_PATH, RUN_PATH, job_id, request_id
from paddock.fakes.github.runner_protocol import (
    Handler,
    ProtocolError,
    broker_error,
    fields,
    folded,
    json_reply,
    octets,
    runner_not_found,
)
from paddock.fakes.github.runners import (
    Cancellation,
    Offer,
    RegistrationDeletedError,
    SessionConflictError,
    VersionDeprecatedError,
)

#: Runners give a poll up after 100 s, and poll again at once after an answer.
HOLD_SECONDS: Final = 50.0

#: The time in which a cancelled job has to stop: runners receive it, and few read it.
_CANCEL_TIMEOUT: Final = "00:05:00"

#: Of a request for a token, which is read before the runner is known. An assertion has some 600 bytes.
_MOST_ASSERTION: Final = 16 * 1024

_SESSION_AREA: Final = "134e239e-2df3-4794-a6f6-24f1f19ec8dc"


class RunnerBroker:
    def __init__(self, github: FakeGitHub, auth: RunnerAuth) -> None:
        self._github = github
        self._auth = auth
        self._waiting: dict[int, set[asyncio.Event]] = {}
        #: The requests that runners said they have received: runner id to request id.
        self._acknowledged: dict[int, str] = {}
        self._message = itertools.count(1)
        github.runners.on_news(self._wake)

    @property
    def handlers(self) -> list[tuple[str, str, str, Handler]]:
        broker = "/broker"
        return [
            ("runner.token", "POST", "/token", self.token),
            ("runner.connect", "GET", f"{broker}/_apis/connectionData", self.connection_data),
            (
                "runner.connect",
                "POST",
                f"{broker}/_apis/distributedtask/pools/{{pool}}/sessions",
                self.old_session,
            ),
            ("runner.session", "POST", f"{broker}/session", self.connect),
            ("runner.session", "DELETE", f"{broker}/session", self.disconnect),
            ("runner.message", "GET", f"{broker}/message", self.message),
            ("runner.acknowledge", "POST", f"{broker}/acknowledge", self.acknowledge),
        ]

    def _wake(self, runner: Runner) -> None:
        for event in self._waiting.get(runner.id, ()):
            event.set()

    async def token(self, request: Request) -> Response:
        form = parse_qs((await octets(request, most=_MOST_ASSERTION)).decode("latin-1"))
        return json_reply(self._auth.exchange(form))

    async def connection_data(self, _request: Request) -> Response:
        """Needs no authentication: github-act-runner retries any failure here for ever."""
        service = {
            "serviceType": "distributedtask",
            "identifier": _SESSION_AREA,
            "displayName": "sessions",
            "relativePath": "/_apis/{area}/pools/{poolId}/{resource}/{sessionId}",
        }
        return json_reply({"locationServiceData": {"serviceDefinitions": [service]}})

    async def old_session(self, request: Request) -> Response:
        self._auth.runner(request.headers)
        url = self._github.world.api_url + BROKER_PATH
        return json_reply({"brokerMigrationMessage": {"brokerBaseUrl": url}})

    async def connect(self, request: Request) -> Response:
        runner = self._auth.runner(request.headers)
        agent = (await fields(request)).get("agent")
        version = str(folded(agent).get("version", "")) if isinstance(agent, dict) else ""
        try:
            session = self._github.runners.connect(
                client_id=runner.client_id, secret=runner.secret, version=version
            )
        except RegistrationDeletedError:
            raise ProtocolError(404, {"message": "Not Found"}) from None
        except SessionConflictError as error:
            key = "TaskAgentSessionConflictException"
            raise broker_error(409, "RunnerSessionConflict", str(error), key=key) from None
        return json_reply(
            {
                "sessionId": session.id,
                "ownerName": "RUNNER",
                "agent": {
                    "id": runner.id,
                    "name": runner.name,
                    "version": version,
                    "osDescription": runner.os.lower(),
                    "ephemeral": runner.ephemeral,
                    "status": 0,
                    "provisioningState": "Provisioned",
                },
                "useFipsEncryption": False,
            }
        )

    async def disconnect(self, request: Request) -> Response:
        runner = self._auth.runner(request.headers)
        if runner.session is not None:
            self._github.runners.disconnect(runner.session.id)
        return Response(status_code=204)

    async def message(self, request: Request) -> Response:
        runner = self._auth.runner(request.headers)
        session = request.query_params.get("sessionId", "")
        busy = request.query_params.get("status", "").lower() == "busy"
        updates = request.query_params.get("disableUpdate", "").lower() != "true"
        event = asyncio.Event()
        waiting = self._waiting.setdefault(runner.id, set())
        waiting.add(event)
        until = asyncio.get_running_loop().time() + HOLD_SECONDS
        try:
            while (found := self._look(runner, session, busy=busy, updates=updates)) is None:
                left = until - asyncio.get_running_loop().time()
                if left <= 0:
                    return Response(status_code=202)
                event.clear()
                try:
                    async with asyncio.timeout(left):
                        await event.wait()
                except TimeoutError:
                    pass
                # A runner that died meanwhile must not receive the message: no runner would execute
                # it.
                if await request.is_disconnected():
                    return Response(status_code=202)
        finally:
            waiting.discard(event)
            if not waiting:
                self._waiting.pop(runner.id, None)
        return json_reply({"messageId": next(self._message), **found})

    def _look(
        self, runner: Runner, session_id: str, *, busy: bool, updates: bool
    ) -> dict[str, str] | None:
        if runner.session is None or runner.session.id != session_id:
            if runner.removed:
                raise runner_not_found()
            key = "TaskAgentSessionExpiredException"
            raise broker_error(404, "RunnerSessionInvalid", "There is no such session.", key=key)
        if runner.removed and executes(runner):
            return self._cancellation_of(runner)
        newer = self._github.world.update_to
        if updates and not busy and newer not in (None, runner.version):
            return _message("RunnerRefresh", {"target_version": newer, "os": "linux"})
        try:
            found = self._github.runners.poll(session_id)
        except RegistrationDeletedError:
            raise runner_not_found() from None
        except VersionDeprecatedError as error:
            # Without a key: at one, github-act-runner opens a new session and polls at once.
            raise broker_error(403, "RunnerVersionTooOld", str(error)) from None
        match found:
            case Offer():
                return None if busy else self._job_request(runner)
            case Cancellation():
                return self._cancellation(found.job_id)
            case None:
                self._acknowledged.pop(runner.id, None)
                return None

    def _job_request(self, runner: Runner) -> dict[str, str] | None:
        job = runner.offered
        assert job is not None
        request = request_id(job, runner)
        if self._acknowledged.get(runner.id) == request:
            return None
        content = {
            "id": request,
            "runner_request_id": request,
            "should_acknowledge": True,
            "run_service_url": f"{self._github.world.api_url}{RUN_PATH}/",
            "billing_owner_id": f"O_{runner.owner.id}",
        }
        return _message("RunnerJobRequest", content)

    def _cancellation_of(self, runner: Runner) -> dict[str, str] | None:
        job = runner.job
        assert job is not None
        if not job.cancel_requested or job.cancel_sent:
            return None
        job.cancel_sent = True
        return self._cancellation(job.id)

    def _cancellation(self, number: int) -> dict[str, str]:
        job = self._github.world.jobs[number]
        return _message("JobCancellation", {"jobId": job_id(job), "timeout": _CANCEL_TIMEOUT})

    async def acknowledge(self, request: Request) -> Response:
        runner = self._auth.runner(request.headers)
        acknowledged = (await fields(request)).get("runnerrequestid")
        job = runner.offered
        if job is None or request_id(job, runner) != acknowledged:
            message = "The job is no longer offered to this runner."
            raise broker_error(404, "AcknowledgeJobNotFound", message)
        self._acknowledged[runner.id] = acknowledged
        return json_reply({})


def _message(kind: str, content: dict[str, Any]) -> dict[str, str]:
    return {"messageType": kind, "body": msgspec.json.encode(content).decode()}
