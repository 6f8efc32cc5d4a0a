"""The results service: runners upload the states of steps to it, and logs to addresses that it
names."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from paddock.fakes.github.model import FakeGitHub
from paddock.fakes.github.records import Job
from paddock.fakes.github.runner_auth import RunnerAuth
from paddock.fakes.github.runner_ids import BLOB_PATH, job_id
from paddock.fakes.github.runner_protocol import (
    Handler,
    ProtocolError,
    fields,
    json_reply,
    objects,
    octets,
)
from paddock.fakes.github.uploads import LOG_OCTETS

_RECEIVER = "/results/twirp/results.services.receiver.Receiver"
_UPDATES = "/results/twirp/github.actions.results.api.v1.WorkflowStepUpdateService"


class ResultsService:
    def __init__(self, github: FakeGitHub, auth: RunnerAuth) -> None:
        self._github = github
        self._auth = auth
        self._key = secrets.token_bytes(32)

    @property
    def handlers(self) -> list[tuple[str, str, str, Handler]]:
        name = "runner.results"
        return [
            (name, "POST", f"{_RECEIVER}/GetStepLogsSignedBlobURL", self.logs_url),
            (name, "POST", f"{_RECEIVER}/GetJobLogsSignedBlobURL", self.logs_url),
            (name, "POST", f"{_RECEIVER}/CreateStepLogsMetadata", self.accept),
            (name, "POST", f"{_RECEIVER}/CreateJobLogsMetadata", self.accept),
            (name, "POST", f"{_UPDATES}/WorkflowStepsUpdate", self.update_steps),
            ("runner.blob", "PUT", "/blob/{job:int}/{step:path}", self.upload),
        ]

    async def logs_url(self, request: Request) -> Response:
        given, job = await self._of_job(request)
        place = f"{job.id}/{given.get('step_backend_id') or ''}"
        url = f"{self._github.world.api_url}{BLOB_PATH}/{place}?sig={self._signature(place)}"
        return json_reply({"logs_url": url, "blob_storage_type": "BLOB_STORAGE_TYPE_AZURE"})

    def _signature(self, place: str) -> str:
        return hmac.new(self._key, place.encode(), hashlib.sha256).hexdigest()

    async def upload(self, request: Request) -> Response:
        """An address with a signature is all that is needed, as at GitHub."""
        number, step = request.path_params["job"], request.path_params["step"]
        signature = self._signature(f"{number}/{step}")
        if not hmac.compare_digest(
            request.query_params.get("sig", "").encode(), signature.encode()
        ):
            raise ProtocolError(403, {"message": "Forbidden"})
        content = await octets(request, most=4 * LOG_OCTETS)
        append = request.query_params.get("comp") == "appendblock"
        self._github.uploads.write(number, step, content, append=append)
        return Response(status_code=201)

    async def update_steps(self, request: Request) -> Response:
        given, job = await self._of_job(request)
        self._github.uploads.update_steps(job.id, objects(given.get("steps")))
        return json_reply({"ok": True})

    async def accept(self, request: Request) -> Response:
        await self._of_job(request)
        return json_reply({"ok": True})

    async def _of_job(self, request: Request) -> tuple[dict[str, Any], Job]:
        _, job = self._auth.job(request.headers)
        given = await fields(request)
        if given.get("workflow_job_run_backend_id") != job_id(job):
            raise ProtocolError(403, {"message": "The token is for another job."})
        return given, job
