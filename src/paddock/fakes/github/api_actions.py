"""Endpoints about runners, runner groups, runs and jobs."""

from __future__ import annotations

from typing import Any

from paddock.fakes.github import answers, payloads
from paddock.fakes.github.answers import ErrorResponse, Reply
from paddock.fakes.github.api import Call, Routes
from paddock.fakes.github.faults import FaultKind
from paddock.fakes.github.records import (
    Account,
    Job,
    JobStatus,
    Repository,
    Run,
    Runner,
    RunnerGroup,
)

routes = Routes()

_ORG_READ = ("organization_self_hosted_runners", "read")
_ORG_WRITE = ("organization_self_hosted_runners", "write")
_REPO_READ = ("administration", "read")
_REPO_WRITE = ("administration", "write")
_ACTIONS_READ = ("actions", "read")
_ACTIONS_WRITE = ("actions", "write")

_NAME_LIMIT = 64
_LABELS_LIMIT = 100
#: "Maximum number of results: 1,000" when a list of runs is filtered.
_FILTERED_RUNS_LIMIT = 1_000


def _runner_json(call: Call, runner: Runner) -> dict[str, Any]:
    unseen = call.take(FaultKind.BUSY_UNSEEN)
    return payloads.runner(call.world, runner, busy=False if unseen else None)


def _list_runners(call: Call, runners: list[Runner]) -> Reply:
    name = call.request.query.get("name")
    if name is not None:
        runners = [runner for runner in runners if runner.name == name]
    page, headers = call.page(runners)
    body = {
        "total_count": len(runners),
        "runners": [_runner_json(call, runner) for runner in page],
    }
    return Reply(200, body, headers)


def _runner(call: Call, scope: Account | Repository) -> Runner:
    number = call.number("runner_id")
    runner = call.world.runners.get(number)
    if runner is None or (runner.repository or runner.owner) is not scope:
        raise answers.not_found()
    return runner


def _delete_runner(call: Call, runner: Runner) -> Reply:
    """GitHub refuses while its own `busy` flag is set, which may differ from the truth."""
    world = call.world
    granted = call.take(FaultKind.BUSY_DELETED) or world.chance(
        world.faults.busy_deleted, "busy_deleted"
    )
    if world.says_busy(runner) and not granted:
        raise answers.runner_busy(runner.name)
    call.parts.runners.delete(runner)
    return Reply(204)


def _mint(call: Call, scope: Account | Repository, owner: Account) -> Reply:
    world = call.world
    name, group_id, labels = _checked(call.body())
    group = world.group(owner, group_id)
    if group is None or (isinstance(scope, Repository) and not group.default):
        raise answers.not_found()
    siblings = world.runners_of(scope)
    if any(runner.name.lower() == name.lower() for runner in siblings):
        raise answers.name_exists()
    limit = world.quotas.runners_per_group
    if sum(1 for runner in siblings if runner.group is group) >= limit:
        raise answers.max_runners(group.id, limit)
    minted = call.parts.runners.mint(
        scope,
        name=name,
        group=group,
        labels=labels,
        work_folder=call.body().get("work_folder") or "_work",
        app_id=call.app.id,
    )
    body = {
        "runner": payloads.runner(world, minted.runner),
        "encoded_jit_config": minted.encoded_jit_config,
    }
    return Reply(201, body)


def _checked(body: dict[str, Any]) -> tuple[str, int, list[str]]:
    name, group_id, labels = (body.get(key) for key in ("name", "runner_group_id", "labels"))
    problems = []
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_LIMIT:
        problems.append(f"name must have 1 to {_NAME_LIMIT} characters")
    if not isinstance(group_id, int) or isinstance(group_id, bool):
        problems.append("runner_group_id is missing or not a number")
    if (
        not isinstance(labels, list)
        or not 0 < len(labels) <= _LABELS_LIMIT
        or not all(isinstance(label, str) and label for label in labels)
    ):
        problems.append(f"labels must be 1 to {_LABELS_LIMIT} strings")
    if problems:
        raise answers.invalid(*problems)
    assert isinstance(name, str)
    assert isinstance(group_id, int)
    assert isinstance(labels, list)
    return name, group_id, labels


@routes.add("GET", "/orgs/{org}/actions/runners", permission=_ORG_READ)
def organization_runners(call: Call) -> Reply:
    return _list_runners(call, call.world.runners_of(call.organization()))


@routes.add("GET", "/repos/{owner}/{repo}/actions/runners", permission=_REPO_READ)
def repository_runners(call: Call) -> Reply:
    return _list_runners(call, call.world.runners_of(call.repository()))


@routes.add("GET", "/orgs/{org}/actions/runners/{runner_id}", permission=_ORG_READ)
def organization_runner(call: Call) -> Reply:
    return Reply(200, _runner_json(call, _runner(call, call.organization())))


@routes.add("GET", "/repos/{owner}/{repo}/actions/runners/{runner_id}", permission=_REPO_READ)
def repository_runner(call: Call) -> Reply:
    return Reply(200, _runner_json(call, _runner(call, call.repository())))


@routes.add("DELETE", "/orgs/{org}/actions/runners/{runner_id}", permission=_ORG_WRITE)
def delete_organization_runner(call: Call) -> Reply:
    return _delete_runner(call, _runner(call, call.organization()))


@routes.add("DELETE", "/repos/{owner}/{repo}/actions/runners/{runner_id}", permission=_REPO_WRITE)
def delete_repository_runner(call: Call) -> Reply:
    return _delete_runner(call, _runner(call, call.repository()))


def _version_dates(call: Call, owner: Account) -> Reply:
    version, world = call.params["version"], call.world
    dates = world.version_dates.get(version)
    if dates is None:
        raise answers.not_found()
    before = world.version_answers.get((owner.login, version))
    if before is None or before[0] != dates:
        world.version_answers[owner.login, version] = (dates, world.time)
    return Reply(200, payloads.version_dates(version, dates))


@routes.add("GET", "/orgs/{org}/actions/runners/deprecations/{version}", permission=_ORG_READ)
def organization_runner_version(call: Call) -> Reply:
    return _version_dates(call, call.organization())


@routes.add(
    "GET", "/repos/{owner}/{repo}/actions/runners/deprecations/{version}", permission=_REPO_READ
)
def repository_runner_version(call: Call) -> Reply:
    return _version_dates(call, call.repository().owner)


@routes.add("POST", "/orgs/{org}/actions/runners/generate-jitconfig", permission=_ORG_WRITE)
def mint_organization(call: Call) -> Reply:
    organization = call.organization()
    return _mint(call, organization, organization)


@routes.add(
    "POST", "/repos/{owner}/{repo}/actions/runners/generate-jitconfig", permission=_REPO_WRITE
)
def mint_repository(call: Call) -> Reply:
    repository = call.repository()
    if repository.actions_disabled:
        raise answers.actions_disabled()
    if repository.runners_disabled:
        raise answers.runners_disabled()
    return _mint(call, repository, repository.owner)


def _group(call: Call) -> RunnerGroup:
    group = call.world.group(call.organization(), call.number("runner_group_id"))
    if group is None:
        raise answers.not_found()
    return group


@routes.add("GET", "/orgs/{org}/actions/runner-groups", permission=_ORG_READ)
def runner_groups(call: Call) -> Reply:
    groups = call.world.groups[call.organization().id]
    visible_to = call.request.query.get("visible_to_repository")
    if visible_to is not None:
        repository = call.world.repository(f"{call.params['org']}/{visible_to}")
        groups = [group for group in groups if repository and group.admits(repository)]
    page, headers = call.page(groups)
    body = {
        "total_count": len(groups),
        "runner_groups": [payloads.group(call.world, group) for group in page],
    }
    return Reply(200, body, headers)


@routes.add("GET", "/orgs/{org}/actions/runner-groups/{runner_group_id}", permission=_ORG_READ)
def runner_group(call: Call) -> Reply:
    return Reply(200, payloads.group(call.world, _group(call)))


@routes.add(
    "GET", "/orgs/{org}/actions/runner-groups/{runner_group_id}/repositories", permission=_ORG_READ
)
def runner_group_repositories(call: Call) -> Reply:
    group = _group(call)
    repositories = [
        repository
        for repository in call.world.repositories.values()
        if repository.id in group.repositories
    ]
    page, headers = call.page(repositories)
    body = {
        "total_count": len(repositories),
        "repositories": [payloads.repository(call.world, one) for one in page],
    }
    return Reply(200, body, headers)


@routes.add(
    "GET", "/orgs/{org}/actions/runner-groups/{runner_group_id}/runners", permission=_ORG_READ
)
def runner_group_runners(call: Call) -> Reply:
    group = _group(call)
    return _list_runners(
        call, [runner for runner in call.world.runners_of(group.owner) if runner.group is group]
    )


@routes.add("GET", "/repos/{owner}/{repo}", permission=("metadata", "read"))
def repository(call: Call) -> Reply:
    return Reply(200, payloads.full_repository(call.world, call.repository()))


@routes.add("GET", "/repos/{owner}/{repo}/actions/runs", permission=_ACTIONS_READ)
def runs(call: Call) -> Reply:
    repository = call.repository()
    found = [run for run in call.world.runs.values() if run.repository is repository]
    status = call.request.query.get("status")
    if status is not None:
        found = [run for run in found if status in (run.status, run.conclusion)]
    found.sort(key=lambda run: -run.id)
    total = len(found)
    page, headers = call.page(found if status is None else found[:_FILTERED_RUNS_LIMIT])
    body = {
        "total_count": total,
        "workflow_runs": [payloads.run(call.world, run) for run in page],
    }
    return Reply(200, body, headers)


def _run(call: Call) -> Run:
    repository = call.repository()
    run = call.world.runs.get(call.number("run_id"))
    if run is None or run.repository is not repository:
        raise answers.not_found()
    return run


@routes.add("GET", "/repos/{owner}/{repo}/actions/runs/{run_id}", permission=_ACTIONS_READ)
def run(call: Call) -> Reply:
    return Reply(200, payloads.run(call.world, _run(call)))


def _list_jobs(call: Call, jobs: list[Job]) -> Reply:
    page, headers = call.page(jobs)
    body = {"total_count": len(jobs), "jobs": [payloads.job(call.world, job) for job in page]}
    return Reply(200, body, headers)


@routes.add("GET", "/repos/{owner}/{repo}/actions/runs/{run_id}/jobs", permission=_ACTIONS_READ)
def run_jobs(call: Call) -> Reply:
    run = _run(call)
    return _list_jobs(call, run.jobs if call.request.query.get("filter") == "all" else run.latest)


@routes.add(
    "GET",
    "/repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}/jobs",
    permission=_ACTIONS_READ,
)
def attempt_jobs(call: Call) -> Reply:
    run, attempt = _run(call), call.number("attempt_number")
    if not 0 < attempt <= run.attempt:
        raise answers.not_found()
    return _list_jobs(call, [job for job in run.jobs if job.attempt == attempt])


def _job(call: Call) -> Job:
    repository = call.repository()
    job = call.world.jobs.get(call.number("job_id"))
    if job is None or job.repository is not repository:
        raise answers.not_found()
    return job


@routes.add("GET", "/repos/{owner}/{repo}/actions/jobs/{job_id}", permission=_ACTIONS_READ)
def job(call: Call) -> Reply:
    return Reply(200, payloads.job(call.world, _job(call)))


@routes.add("POST", "/repos/{owner}/{repo}/actions/runs/{run_id}/cancel", permission=_ACTIONS_WRITE)
def cancel_run(call: Call) -> Reply:
    if not call.parts.jobs.cancel_run(_run(call)):
        raise ErrorResponse(409, "Cannot cancel a workflow run that is completed.")
    return Reply(202, {})


def _rerun(call: Call, run: Run, jobs: list[Job]) -> Reply:
    if run.status is not JobStatus.COMPLETED:
        raise ErrorResponse(403, "The workflow run containing this job is already running")
    call.parts.jobs.rerun(run, jobs)
    return Reply(201, {})


@routes.add("POST", "/repos/{owner}/{repo}/actions/runs/{run_id}/rerun", permission=_ACTIONS_WRITE)
def rerun_run(call: Call) -> Reply:
    run = _run(call)
    return _rerun(call, run, run.latest)


@routes.add(
    "POST",
    "/repos/{owner}/{repo}/actions/runs/{run_id}/rerun-failed-jobs",
    permission=_ACTIONS_WRITE,
)
def rerun_failed_jobs(call: Call) -> Reply:
    run = _run(call)
    return _rerun(call, run, [job for job in run.latest if job.conclusion != "success"])


@routes.add("POST", "/repos/{owner}/{repo}/actions/jobs/{job_id}/rerun", permission=_ACTIONS_WRITE)
def rerun_job(call: Call) -> Reply:
    job = _job(call)
    return _rerun(call, job.run, [job])
