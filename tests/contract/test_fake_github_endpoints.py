"""Every endpoint of the fake, over real HTTP, against GitHub's own description."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple

import pytest

from paddock.fakes.github import FakeGitHub, FaultKind, JobSpec
from paddock.fakes.github.answers import DOCUMENTATION
from paddock.fakes.github.api import ERRORS
from paddock.fakes.github.records import VersionDates
from paddock.fakes.github.server import wall_clock
from tests.contract.conftest import Scene


class Case(NamedTuple):
    route: str
    status: int
    method: str
    path: Callable[[Scene], str]
    body: Any = None
    as_app: bool = False
    query: dict[str, Any] | None = None


def _job(scene: Scene) -> int:
    return scene.github.jobs.queue_run(scene.repository, [JobSpec(), JobSpec(name="b")]).jobs[0].id


def _run(scene: Scene) -> int:
    return scene.github.world.jobs[_job(scene)].run.id


def _finished_run(scene: Scene) -> int:
    run = _run(scene)
    scene.github.jobs.cancel_run(scene.github.world.runs[run])
    return run


def _finished_job(scene: Scene) -> int:
    return scene.github.world.runs[_finished_run(scene)].jobs[0].id


def _delivery(scene: Scene) -> int:
    return next(iter(scene.github.world.deliveries))


def _repository_runner(scene: Scene) -> int:
    group = scene.github.world.groups[scene.organization.id][0]
    minted = scene.github.runners.mint(scene.repository, name="x", group=group, labels=["linux"])
    return minted.runner.id


def _group(scene: Scene) -> int:
    return scene.github.accounts.add_group(
        scene.organization, "builders", repositories=[scene.repository]
    ).id


def _version(s: Scene) -> str:
    s.github.world.version_dates["2.330.0"] = VersionDates(
        runtime_deprecates_at=datetime(2026, 3, 16, tzinfo=UTC)
    )
    return "2.330.0"


_MINT = {"name": "r9", "runner_group_id": 1, "labels": ["linux"], "work_folder": "_work"}
_ORG = "/orgs/octo-org/actions"
_REPO = "/repos/octo-org/hello"

CASES = [
    Case("app", 200, "GET", lambda _: "/app", as_app=True),
    Case("installations", 200, "GET", lambda _: "/app/installations", as_app=True),
    Case(
        "installation",
        200,
        "GET",
        lambda s: f"/app/installations/{s.installation.id}",
        as_app=True,
    ),
    Case(
        "access_token",
        201,
        "POST",
        lambda s: f"/app/installations/{s.user_installation.id}/access_tokens",
        {"repositories": ["dotfiles"], "permissions": {"actions": "read"}},
        as_app=True,
    ),
    Case(
        "uninstall",
        204,
        "DELETE",
        lambda s: f"/app/installations/{s.installation.id}",
        as_app=True,
    ),
    Case(
        "suspend",
        204,
        "PUT",
        lambda s: f"/app/installations/{s.installation.id}/suspended",
        as_app=True,
    ),
    Case(
        "unsuspend",
        204,
        "DELETE",
        lambda s: f"/app/installations/{s.installation.id}/suspended",
        as_app=True,
    ),
    Case(
        "organization_installation",
        200,
        "GET",
        lambda _: "/orgs/octo-org/installation",
        as_app=True,
    ),
    Case("user_installation", 200, "GET", lambda _: "/users/octocat/installation", as_app=True),
    Case("repository_installation", 200, "GET", lambda _: f"{_REPO}/installation", as_app=True),
    Case(
        "deliveries",
        200,
        "GET",
        lambda _: "/app/hook/deliveries",
        as_app=True,
        query={"per_page": 2},
    ),
    Case("delivery", 200, "GET", lambda s: f"/app/hook/deliveries/{_delivery(s)}", as_app=True),
    Case(
        "redeliver",
        202,
        "POST",
        lambda s: f"/app/hook/deliveries/{_delivery(s)}/attempts",
        as_app=True,
    ),
    Case("installation_repositories", 200, "GET", lambda _: "/installation/repositories"),
    Case("revoke_token", 204, "DELETE", lambda _: "/installation/token"),
    Case("rate_limit", 200, "GET", lambda _: "/rate_limit"),
    Case("repository", 200, "GET", lambda _: _REPO),
    Case("mint_organization", 201, "POST", lambda _: f"{_ORG}/runners/generate-jitconfig", _MINT),
    Case(
        "mint_repository",
        201,
        "POST",
        lambda _: f"{_REPO}/actions/runners/generate-jitconfig",
        _MINT,
    ),
    Case(
        "organization_runners",
        200,
        "GET",
        lambda s: f"{_ORG}/runners" if s.mint().id else "",
        query={"name": "r1", "per_page": 100},
    ),
    Case("organization_runner", 200, "GET", lambda s: f"{_ORG}/runners/{s.mint().id}"),
    Case("delete_organization_runner", 204, "DELETE", lambda s: f"{_ORG}/runners/{s.mint().id}"),
    Case(
        "repository_runners",
        200,
        "GET",
        lambda s: f"{_REPO}/actions/runners" if _repository_runner(s) else "",
    ),
    Case(
        "repository_runner",
        200,
        "GET",
        lambda s: f"{_REPO}/actions/runners/{_repository_runner(s)}",
    ),
    Case(
        "delete_repository_runner",
        204,
        "DELETE",
        lambda s: f"{_REPO}/actions/runners/{_repository_runner(s)}",
    ),
    Case(
        "organization_runner_version",
        200,
        "GET",
        lambda s: f"{_ORG}/runners/deprecations/{_version(s)}",
    ),
    Case(
        "repository_runner_version",
        200,
        "GET",
        lambda s: f"{_REPO}/actions/runners/deprecations/{_version(s)}",
    ),
    Case("runner_groups", 200, "GET", lambda s: f"{_ORG}/runner-groups" if _group(s) else ""),
    Case("runner_group", 200, "GET", lambda s: f"{_ORG}/runner-groups/{_group(s)}"),
    Case(
        "runner_group_repositories",
        200,
        "GET",
        lambda s: f"{_ORG}/runner-groups/{_group(s)}/repositories",
    ),
    Case(
        "runner_group_runners",
        200,
        "GET",
        lambda s: f"{_ORG}/runner-groups/{s.mint().group.id}/runners",
    ),
    Case(
        "runs",
        200,
        "GET",
        lambda s: f"{_REPO}/actions/runs" if _run(s) else "",
        query={"status": "queued", "per_page": 1},
    ),
    Case("run", 200, "GET", lambda s: f"{_REPO}/actions/runs/{_run(s)}"),
    Case(
        "run_jobs",
        200,
        "GET",
        lambda s: f"{_REPO}/actions/runs/{_run(s)}/jobs",
        query={"filter": "all"},
    ),
    Case("attempt_jobs", 200, "GET", lambda s: f"{_REPO}/actions/runs/{_run(s)}/attempts/1/jobs"),
    Case("job", 200, "GET", lambda s: f"{_REPO}/actions/jobs/{_job(s)}"),
    Case("cancel_run", 202, "POST", lambda s: f"{_REPO}/actions/runs/{_run(s)}/cancel"),
    Case("rerun_run", 201, "POST", lambda s: f"{_REPO}/actions/runs/{_finished_run(s)}/rerun"),
    Case(
        "rerun_failed_jobs",
        201,
        "POST",
        lambda s: f"{_REPO}/actions/runs/{_finished_run(s)}/rerun-failed-jobs",
    ),
    Case("rerun_job", 201, "POST", lambda s: f"{_REPO}/actions/jobs/{_finished_job(s)}/rerun"),
]

#: Cancelling and re-running is a user's business: paddock's App has no permission for it.
_USERS_ROUTES = {"cancel_run", "rerun_run", "rerun_failed_jobs", "rerun_job"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.route)
async def test_an_answer_is_one_github_gives(scene: Scene, case: Case) -> None:
    if case.route in _USERS_ROUTES:
        scene.installation.permissions["actions"] = "write"
    response = await scene.call(
        case.method, case.path(scene), query=case.query, body=case.body, as_app=case.as_app
    )
    assert response.status_code == case.status


def test_no_endpoint_is_left_out() -> None:
    routes = FakeGitHub(now=wall_clock, rng=Random(1)).routes
    assert {route.name for route in routes} == {case.route for case in CASES}


async def test_a_job_is_described_alike_in_every_state(scene: Scene) -> None:
    runner, session, job_id = scene.busy_runner()
    path = f"{_REPO}/actions/jobs/{job_id}"
    running = (await scene.call("GET", path)).json()
    assert (running["status"], running["runner_id"]) == ("in_progress", runner.id)

    scene.github.runners.complete(
        session, job_id, "failure", [{"name": "test", "conclusion": "failure"}]
    )
    done = (await scene.call("GET", path)).json()
    assert (done["status"], done["conclusion"]) == ("completed", "failure")
    assert [step["conclusion"] for step in done["steps"]] == ["success", "failure", "success"]

    waiting = scene.github.jobs.queue_run(scene.repository, [JobSpec(gated=True)]).jobs[0]
    held = (await scene.call("GET", f"{_REPO}/actions/jobs/{waiting.id}")).json()
    assert (held["status"], held["runner_id"]) == ("waiting", None)


async def test_a_run_is_described_alike_in_every_state(scene: Scene) -> None:
    _, session, job_id = scene.busy_runner()
    run_id = scene.github.world.jobs[job_id].run.id
    path = f"{_REPO}/actions/runs/{run_id}"
    assert (await scene.call("GET", path)).json()["status"] == "in_progress"
    scene.github.runners.complete(session, job_id, "success")
    assert (await scene.call("GET", path)).json()["conclusion"] == "success"


@pytest.mark.parametrize("kind", sorted(ERRORS - {FaultKind.BAD_GATEWAY}))
async def test_every_error_has_the_shape_of_githubs_errors(scene: Scene, kind: FaultKind) -> None:
    scene.github.inject(kind, route="mint_organization")
    response = await scene.call("POST", f"{_ORG}/runners/generate-jitconfig", body=_MINT)
    assert response.status_code >= 400
    assert response.json()["documentation_url"] == DOCUMENTATION


async def test_the_refusals_that_come_of_the_callers_own_mistakes(scene: Scene) -> None:
    mint = f"{_ORG}/runners/generate-jitconfig"
    _, _, job_id = scene.busy_runner("r1")
    assert job_id
    cases = [
        ("POST", mint, _MINT | {"name": "r1"}, 409),
        ("POST", mint, _MINT | {"name": "x" * 65}, 422),
        ("POST", mint, _MINT | {"labels": []}, 422),
        ("POST", mint, {}, 422),
        ("POST", mint, _MINT | {"runner_group_id": 77}, 404),
        ("POST", "/orgs/octocat/actions/runners/generate-jitconfig", _MINT, 404),
        ("DELETE", f"{_ORG}/runners/1", None, 422),
        ("DELETE", f"{_ORG}/runners/999", None, 404),
        ("GET", "/repos/octocat/dotfiles/actions/runs", None, 404),
    ]
    answered = [
        (await scene.call(method, path, body=body, checked=False)).status_code
        for method, path, body, _ in cases
    ]
    assert answered == [status for *_, status in cases]


async def test_a_completed_run_cannot_be_cancelled(scene: Scene) -> None:
    scene.installation.permissions["actions"] = "write"
    path = f"{_REPO}/actions/runs/{_finished_run(scene)}/cancel"
    assert (await scene.call("POST", path)).status_code == 409


async def test_pages_are_linked_and_complete(scene: Scene) -> None:
    for number in range(5):
        scene.mint(f"r{number}")
    seen: list[str] = []
    url: str | None = f"{_ORG}/runners?per_page=2"
    while url:
        path, _, query = url.partition("?")
        response = await scene.call(
            "GET", path, query=dict(one.split("=") for one in query.split("&"))
        )
        assert response.json()["total_count"] == 5
        seen += [runner["name"] for runner in response.json()["runners"]]
        following = response.links.get("next", {}).get("url")
        url = following.removeprefix(str(scene.client.base_url).rstrip("/")) if following else None
    assert seen == ["r0", "r1", "r2", "r3", "r4"]


async def test_deliveries_are_paged_by_a_cursor(scene: Scene) -> None:
    for _ in range(4):
        scene.github.jobs.queue_run(scene.repository, [JobSpec()])
    seen: list[int] = []
    query: dict[str, Any] | None = {"per_page": 3}
    while query:
        response = await scene.call("GET", "/app/hook/deliveries", query=query, as_app=True)
        seen += [delivery["id"] for delivery in response.json()]
        following = response.links.get("next", {}).get("url")
        query = (
            dict(one.split("=") for one in following.partition("?")[2].split("&"))
            if following
            else None
        )
    assert seen == sorted(scene.github.world.deliveries, reverse=True)


async def test_rate_headers_come_with_every_answer(scene: Scene) -> None:
    core = await scene.call("GET", f"{_ORG}/runners")
    assert core.headers["x-ratelimit-resource"] == "core"
    assert core.headers["x-ratelimit-limit"] == "5000"
    assert core.headers["x-ratelimit-remaining"] == "4999"
    mint = await scene.call("POST", f"{_ORG}/runners/generate-jitconfig", body=_MINT)
    assert mint.headers["x-ratelimit-resource"] == "actions_runner_registration"
    assert mint.headers["x-ratelimit-remaining"] == "9999"
