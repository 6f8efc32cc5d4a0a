"""A job as GitHub sends it to the runner that acquired it.

Scalars of a context are JSON's own, its lists and maps are tagged. Texts of a workflow are tokens: a
literal, or an expression that the runner evaluates. GitHub has turned `echo ${{ env.A }}` into the
expression `format('echo {0}', env.A)` before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from paddock.fakes.github.records import Job, Runner, Step
from paddock.fakes.github.runner_ids import (
    FEED_PATH,
    RESULTS_PATH,
    RUN_PATH,
    job_id,
    plan_id,
    step_id,
)

#: The job's variable that tells the fake runner how to die. Other runners do not know it.
DIE_VARIABLE: Final = "paddock.fakes.die"

_EXPRESSION: Final = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_LITERAL, _MAP, _EXPRESSION_TOKEN = 0, 2, 3


def job_message(
    job: Job, runner: Runner, *, api_url: str, html_url: str, job_token: str
) -> dict[str, Any]:
    spec = job.spec
    socket_url = re.sub("^http", "ws", api_url)
    endpoint = {
        "name": "SystemVssConnection",
        "url": f"{api_url}{RUN_PATH}/",
        "authorization": {"scheme": "OAuth", "parameters": {"AccessToken": job_token}},
        "data": {
            "FeedStreamUrl": f"{socket_url}{FEED_PATH}",
            "ResultsServiceUrl": f"{api_url}{RESULTS_PATH}/",
        },
        "isShared": False,
        "isReady": True,
    }
    return {
        "messageType": "RunnerJobRequest",
        "plan": {
            "scopeIdentifier": plan_id(job),
            "planId": plan_id(job),
            "planType": "actions",
            "version": 1,
        },
        "timeline": {"id": job_id(job), "changeId": 0},
        "jobId": job_id(job),
        "jobDisplayName": spec.name,
        "jobName": "__default",
        "requestId": 0,
        "resources": {"endpoints": [endpoint]},
        "contextData": _contexts(job, api_url, html_url),
        "variables": _variables(job, runner, api_url),
        "mask": [{"type": "regex", "value": re.escape(each)} for each in spec.secrets.values()],
        "environmentVariables": [_map(spec.env)] if spec.env else [],
        "jobOutputs": _map(spec.outputs) if spec.outputs else None,
        "fileTable": [".github/workflows/ci.yml"],
        "steps": [_step(job, number, step) for number, step in enumerate(spec.steps, start=1)],
    }


def _contexts(job: Job, api_url: str, html_url: str) -> dict[str, Any]:
    run, repository = job.run, job.repository
    github = {
        "event_name": run.event,
        "server_url": html_url,
        "api_url": api_url,
        "graphql_url": f"{api_url}/graphql",
        "workflow": run.workflow,
        "repository": repository.full_name,
        "repository_owner": repository.owner.login,
        "ref": "refs/heads/main",
        "sha": run.head_sha,
        "run_id": str(run.id),
        "run_number": str(run.number),
        "run_attempt": str(run.attempt),
        "actor": repository.owner.login,
        "job": job.spec.name,
    }
    return {
        "github": _dictionary(github),
        "needs": _dictionary({}),
        "strategy": _dictionary({}),
        "vars": _dictionary({}),
        "inputs": None,
        "matrix": _dictionary(job.spec.matrix) if job.spec.matrix else None,
    }


def _variables(job: Job, runner: Runner, api_url: str) -> dict[str, Any]:
    variables: dict[str, Any] = {
        "system.github.results_endpoint": {"value": f"{api_url}{RESULTS_PATH}/"},
        "system.github.token": {"value": f"ghs_job{job.id}", "isSecret": True},
        "system.github.job": {"value": job.spec.name},
        "system.runnerGroupName": {"value": runner.group.name},
        "system.phaseDisplayName": {"value": job.spec.name},
    }
    for name, value in job.spec.secrets.items():
        variables[name] = {"value": value, "isSecret": True}
    if job.spec.die is not None:
        variables[DIE_VARIABLE] = {"value": job.spec.die}
    return variables


def _step(job: Job, number: int, step: Step) -> dict[str, Any]:
    inputs = {"script": step.run}
    if step.shell is not None:
        inputs["shell"] = step.shell
    if step.working_directory is not None:
        inputs["workingDirectory"] = step.working_directory
    name = "__run" if number == 1 else f"__run_{number}"
    sent: dict[str, Any] = {
        "type": "action",
        "id": step_id(job, number),
        "name": name,
        "contextName": name,
        "reference": {"type": "script"},
        "displayNameToken": _token(step.name),
        "condition": step.condition,
        "inputs": _map(inputs),
    }
    if step.env:
        sent["environment"] = _map(step.env)
    if step.continue_on_error:
        sent["continueOnError"] = True
    if step.timeout_minutes is not None:
        sent["timeoutInMinutes"] = step.timeout_minutes
    return sent


def _dictionary(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"t": 2, "d": [{"k": key, "v": value} for key, value in values.items()]}


def _map(values: Mapping[str, str]) -> dict[str, Any]:
    pairs = [{"key": key, "value": _token(value)} for key, value in values.items()]
    return {"type": _MAP, "map": pairs}


def _token(text: str) -> dict[str, Any]:
    expressions = _EXPRESSION.findall(text)
    if not expressions:
        return {"type": _LITERAL, "lit": text}
    if _EXPRESSION.fullmatch(text) and len(expressions) == 1:
        return {"type": _EXPRESSION_TOKEN, "expr": expressions[0].strip()}
    numbers = iter(range(len(expressions)))
    parts = _EXPRESSION.split(text)
    # Every other part is an expression. In a format's text braces and quotes are doubled.
    quoted = "".join(
        f"{{{next(numbers)}}}" if index % 2 else _quoted(part) for index, part in enumerate(parts)
    )
    arguments = ", ".join(each.strip() for each in expressions)
    return {"type": _EXPRESSION_TOKEN, "expr": f"format('{quoted}', {arguments})"}


def _quoted(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}").replace("'", "''")
