"""The webhooks the fake sends, against GitHub's schemas and against real payloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from paddock.fakes.github import FakeGitHub, JobSpec, Outgoing
from paddock.fakes.github.server import wall_clock
from tests.contract.conftest import Scene
from tests.contract.openapi import Contract, ContractError, webhook_examples


@pytest.fixture(scope="module")
def sent() -> dict[tuple[str, str | None], dict[str, Any]]:
    """One payload of each event and action the fake can send."""
    github = FakeGitHub(now=wall_clock, rng=Random(1))
    accounts = github.accounts
    app = accounts.add_app("paddock")
    organization = accounts.add_organization("octo-org")
    hello = accounts.add_repository(organization, "hello")
    other = accounts.add_repository(organization, "other")
    installation = accounts.install(app, organization)
    accounts.select_repositories(installation, [hello])
    accounts.select_repositories(installation, [hello, other])
    accounts.rename(organization, "octo-organization")
    accounts.accept_permissions(installation, {"metadata": "read"})
    accounts.suspend(installation)
    accounts.unsuspend(installation)
    run = github.jobs.queue_run(hello, [JobSpec(labels=("linux",)), JobSpec(gated=True)])
    group = github.world.groups[organization.id][0]
    runner = github.runners.mint(organization, name="r1", group=group, labels=["linux"]).runner
    session = github.runners.connect(
        client_id=runner.client_id, secret=runner.secret, version="2.330.0"
    )
    github.runners.acquire(session.id, run.jobs[0].id)
    github.runners.complete(session.id, run.jobs[0].id, "success")
    accounts.uninstall(installation)
    return {
        (outgoing.headers["X-GitHub-Event"], payload.get("action")): payload
        for outgoing in github.hooks.take()
        for payload in [json.loads(outgoing.body)]
    }


_EVENTS: list[tuple[str, str | None]] = [
    ("ping", None),
    ("installation", "created"),
    ("installation", "deleted"),
    ("installation", "suspend"),
    ("installation", "unsuspend"),
    ("installation", "new_permissions_accepted"),
    ("installation_repositories", "added"),
    ("installation_repositories", "removed"),
    ("installation_target", "renamed"),
    ("workflow_job", "queued"),
    ("workflow_job", "waiting"),
    ("workflow_job", "in_progress"),
    ("workflow_job", "completed"),
]


@pytest.mark.parametrize(("event", "action"), _EVENTS)
def test_a_webhook_fits_githubs_schema(
    contract: Contract,
    sent: dict[tuple[str, str | None], dict[str, Any]],
    event: str,
    action: str | None,
) -> None:
    contract.validate_webhook(event, sent[event, action])


def test_no_webhook_is_left_out(sent: dict[tuple[str, str | None], dict[str, Any]]) -> None:
    assert set(sent) == set(_EVENTS)


@pytest.mark.parametrize("action", ["queued", "waiting", "in_progress", "completed"])
def test_a_workflow_job_has_what_real_ones_have(
    sent: dict[tuple[str, str | None], dict[str, Any]], action: str
) -> None:
    """Every field that all real payloads have, with one of the types they have there; and no field
    of the job itself that none of them has."""
    ours = sent["workflow_job", action]
    real = [one for one in webhook_examples("workflow_job") if "run_attempt" in one["workflow_job"]]
    assert len(real) >= 7
    assert list(_missing(ours, real)) == []
    known = {name for one in real for name in one["workflow_job"]}
    assert set(ours["workflow_job"]) <= known


def _missing(ours: Any, real: list[Any], where: str = "") -> Iterator[str]:
    types = {type(one) for one in real}
    if type(ours) not in types:
        yield f"{where}: {type(ours).__name__}, not {sorted(one.__name__ for one in types)}"
        return
    if isinstance(ours, dict):
        examples = [one for one in real if isinstance(one, dict)]
        for name in set.intersection(*(set(one) for one in examples)):
            if name not in ours:
                yield f"{where}/{name}: missing"
            else:
                yield from _missing(ours[name], [one[name] for one in examples], f"{where}/{name}")


async def test_webhooks_and_answers_agree(scene: Scene) -> None:
    bodies: list[dict[str, Any]] = []

    def receive(outgoing: Outgoing) -> int:
        bodies.append(json.loads(outgoing.body))
        return 200

    scene.github.hooks.sink = receive
    _, session, job_id = scene.busy_runner()
    scene.github.runners.complete(session, job_id, "success")
    answer = await scene.call("GET", f"/repos/octo-org/hello/actions/jobs/{job_id}")
    assert bodies[-1]["workflow_job"] == answer.json()


def test_the_judge_notices_a_missing_field(
    contract: Contract, sent: dict[tuple[str, str | None], dict[str, Any]]
) -> None:
    payload = sent["workflow_job", "queued"]
    job = {name: value for name, value in payload["workflow_job"].items() if name != "labels"}
    with pytest.raises(ContractError, match="labels"):
        contract.validate_webhook("workflow_job", payload | {"workflow_job": job})


def test_the_judge_notices_a_wrong_request(contract: Contract) -> None:
    mint = "/orgs/o/actions/runners/generate-jitconfig"
    right = {"name": "r", "runner_group_id": 1, "labels": ["x"]}
    contract.validate_request("POST", mint, {}, right)
    for query, body, wrong in [
        ({}, right | {"labels": []}, "labels"),
        ({}, right | {"lables": []}, "lables"),
        ({}, None, "body"),
        ({"pages": "1"}, right, "pages"),
    ]:
        with pytest.raises(ContractError, match=wrong):
            contract.validate_request("POST", mint, query, body)
    with pytest.raises(ContractError, match="GitHub has no"):
        contract.validate_request("GET", "/orgs/o/actions/runner")
