"""The run service: a runner fetches its job here, renews the lease on it, and reports its result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from paddock.fakes.github.job_message import job_message
from paddock.fakes.github.model import FakeGitHub
from paddock.fakes.github.payloads import stamp
from paddock.fakes.github.records import Job, JobStatus, Runner
from paddock.fakes.github.runner_auth import RunnerAuth
from paddock.fakes.github.runner_ids import job_id, request_id
from paddock.fakes.github.runner_protocol import Handler, fields, json_reply, objects, run_error
from paddock.fakes.github.runners import JobGoneError, RegistrationDeletedError

_CONCLUSIONS: Final = {
    "succeeded": "success",
    "failed": "failure",
    "canceled": "cancelled",
    "cancelled": "cancelled",
    "skipped": "skipped",
    "abandoned": "failure",
}
#: GitHub adds these two steps itself; actions/runner reports them too.
_FRAME: Final = ("Set up job", "Complete job")


class RunService:
    def __init__(self, github: FakeGitHub, auth: RunnerAuth) -> None:
        self._github = github
        self._auth = auth

    @property
    def handlers(self) -> list[tuple[str, str, str, Handler]]:
        return [
            ("runner.acquire", "POST", "/run/acquirejob", self.acquire),
            ("runner.renew", "POST", "/run/renewjob", self.renew),
            ("runner.complete", "POST", "/run/completejob", self.complete),
        ]

    async def acquire(self, request: Request) -> Response:
        runner = self._auth.runner(request.headers)
        wanted = (await fields(request)).get("jobmessageid")
        job, session = runner.offered, runner.session
        if job is None or session is None or request_id(job, runner) != wanted:
            raise run_error(409, "The job is no longer offered to this runner.")
        try:
            self._github.runners.acquire(session.id, job.id)
        except (JobGoneError, RegistrationDeletedError) as error:
            raise run_error(404, str(error)) from None
        world = self._github.world
        token = self._auth.for_job(runner, job)
        return json_reply(
            job_message(
                job, runner, api_url=world.api_url, html_url=world.html_url, job_token=token
            )
        )

    async def renew(self, request: Request) -> Response:
        _, job = await self._executed(request)
        self._github.jobs.renew(job)
        assert job.lease_until is not None
        return json_reply({"lockedUntil": stamp(job.lease_until)})

    async def complete(self, request: Request) -> Response:
        given, job = await self._executed(request)
        results = objects(given.get("stepresults"))
        outputs = given.get("outputs")
        conclusion = _CONCLUSIONS.get(str(given.get("conclusion")).lower(), "failure")
        self._github.uploads.complete(job.id, results, outputs if isinstance(outputs, dict) else {})
        self._github.jobs.finish(job, conclusion, _steps(results))
        return Response(status_code=204)

    async def _executed(self, request: Request) -> tuple[dict[str, Any], Job]:
        """The token's job, while GitHub waits for its end."""
        runner, job = self._auth.job(request.headers)
        given = await fields(request)
        if given.get("jobid") != job_id(job) or not _executes(runner, job):
            raise run_error(404, "The job is not executed by this runner any more.")
        return given, job


def _executes(runner: Runner, job: Job) -> bool:
    return job.status is JobStatus.IN_PROGRESS and job.runner is runner


def _number(result: dict[str, Any]) -> int:
    number = result.get("number")
    return number if isinstance(number, int) else 0


def _steps(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps as GitHub's API shows them, in the order of their numbers."""
    ordered = sorted(results, key=_number)
    return [
        {
            "name": str(each.get("name", "")),
            "conclusion": _CONCLUSIONS.get(str(each.get("conclusion")).lower(), "success"),
        }
        for each in ordered
        if each.get("name") not in _FRAME
    ]
