"""Control from another process: it sets up repositories, jobs and faults, and reads the ground truth.

POST /_fake/runs               {repository, jobs: [{name, labels, steps, …}]} → {run_id, job_ids}
POST /_fake/runs/R/cancel      POST /_fake/jobs/J/cancel      POST /_fake/jobs/J/approve
PUT  /_fake/faults             the fields of `Faults`; what is not named is off
POST /_fake/inject             {kind, route, owner, path, times, seconds}
GET  /_fake/jobs/J             its steps, the runner's report, and the log that was uploaded
GET  /_fake/truth              executions, mints, deletions, runner records, jobs

A run's steps are commands that a runner executes. So this is served only where `serving` is given a
secret, which every request must send, to a loopback Host; `paddock up` gives none.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.fakes.github.faults import FaultKind, Faults
from paddock.fakes.github.model import FakeGitHub
from paddock.fakes.github.records import Job, JobSpec
from paddock.listener import hostname, is_loopback, requested_host

T = TypeVar("T")

SECRET_HEADER: Final = "X-Control-Secret"  # noqa: S105


class _NewRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    repository: str
    jobs: list[JobSpec]
    workflow: str = "CI"


class _Inject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: FaultKind
    route: str | None = None
    owner: str | None = None
    path: str | None = None
    times: int | None = 1
    seconds: float | None = None


class _UnknownError(Exception):
    """The fake has no such object."""


class _RefusedError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


Handler = Callable[[Request], Awaitable[Response]]


def _json(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")


async def _body(request: Request, kind: type[T]) -> T:
    # A page of another site can send the other content types without a preflight request.
    if request.headers.get("content-type") != "application/json":
        raise _RefusedError(415, "Send the body as application/json.")
    return msgspec.json.decode(await request.body(), type=kind)


def _check(request: Request, secret: str) -> None:
    if not is_loopback(hostname(requested_host(request.headers))):
        raise _RefusedError(403, "The control is served by loopback names and addresses only.")
    given = request.headers.get(SECRET_HEADER, "")
    if not hmac.compare_digest(given.encode(), secret.encode()):
        raise _RefusedError(403, f"Send the secret in {SECRET_HEADER}.")


def _guarded(handler: Handler, secret: str) -> Handler:
    async def guarded(request: Request) -> Response:
        try:
            _check(request, secret)
            return await handler(request)
        except _RefusedError as refused:
            return _json({"message": str(refused)}, refused.status)
        except _UnknownError as error:
            return _json({"message": str(error)}, 404)
        except (msgspec.DecodeError, ValueError) as error:
            return _json({"message": str(error)}, 422)

    return guarded


def routes(github: FakeGitHub, secret: str) -> list[Route]:
    async def queue(request: Request) -> Response:
        wanted = await _body(request, _NewRun)
        repository = github.world.repository(wanted.repository)
        if repository is None:
            raise _UnknownError(f"There is no repository {wanted.repository!r}.")
        run = github.jobs.queue_run(repository, wanted.jobs, workflow=wanted.workflow)
        return _json({"run_id": run.id, "job_ids": [job.id for job in run.jobs]}, 201)

    async def cancel_run(request: Request) -> Response:
        number = request.path_params["number"]
        if number not in github.world.runs:
            raise _UnknownError(f"There is no run {number}.")
        github.jobs.cancel_run(github.world.runs[number])
        return Response(status_code=204)

    async def cancel_job(request: Request) -> Response:
        github.jobs.cancel(_job_of(github, request))
        return Response(status_code=204)

    async def approve_job(request: Request) -> Response:
        github.jobs.approve(_job_of(github, request))
        return Response(status_code=204)

    async def faults(request: Request) -> Response:
        github.set_faults(await _body(request, Faults))
        return Response(status_code=204)

    async def inject(request: Request) -> Response:
        wanted = await _body(request, _Inject)
        github.inject(
            wanted.kind,
            route=wanted.route,
            owner=wanted.owner,
            path=wanted.path,
            times=wanted.times,
            seconds=wanted.seconds,
        )
        return Response(status_code=204)

    table: list[tuple[str, str, Handler]] = [
        ("POST", "/runs", queue),
        ("POST", "/runs/{number:int}/cancel", cancel_run),
        ("POST", "/jobs/{number:int}/cancel", cancel_job),
        ("POST", "/jobs/{number:int}/approve", approve_job),
        ("PUT", "/faults", faults),
        ("POST", "/inject", inject),
        *_reading(github),
    ]
    return [
        Route(path, _guarded(handler, secret), methods=[method]) for method, path, handler in table
    ]


def _job_of(github: FakeGitHub, request: Request) -> Job:
    number = request.path_params["number"]
    if number not in github.world.jobs:
        raise _UnknownError(f"There is no job {number}.")
    return github.world.jobs[number]


def _reading(github: FakeGitHub) -> list[tuple[str, str, Handler]]:
    async def job(request: Request) -> Response:
        return _json(_seen(github, _job_of(github, request)))

    async def truth(_request: Request) -> Response:
        return _json(_truth(github))

    return [("GET", "/jobs/{number:int}", job), ("GET", "/truth", truth)]


def _seen(github: FakeGitHub, job: Job) -> dict[str, Any]:
    uploads = github.uploads.of(job.id)
    return {
        "id": job.id,
        "status": job.status,
        "conclusion": job.conclusion,
        "steps": job.steps,
        "reported": uploads.results,
        "outputs": uploads.outputs,
        "log": uploads.text(),
        "live": uploads.feed,
    }


def _truth(github: FakeGitHub) -> dict[str, Any]:
    world, truth = github.world, github.truth
    return {
        "executions": list(truth.executions),
        "mints": list(truth.mints),
        "deletions": list(truth.deletions),
        "unsent": list(truth.unsent),
        "runners": [
            {
                "id": runner.id,
                "name": runner.name,
                "scope": runner.scope,
                "online": world.online(runner),
                "says_busy": world.says_busy(runner),
                "executing": truth.executing(runner.id),
            }
            for runner in world.runners.values()
        ],
        "jobs": [
            {
                "id": job.id,
                "name": job.spec.name,
                "repository": job.repository.full_name,
                "status": job.status,
                "conclusion": job.conclusion,
            }
            for job in world.jobs.values()
        ],
    }
