"""The App client against the fake GitHub over HTTP: it sends only what GitHub's description allows,
and understands the answers."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import SecretStr

from paddock.domain.github.budgets import BudgetLimits
from paddock.domain.github.errors import Failure, GitHubError, Kind
from paddock.domain.github.objects import (
    Absent,
    AppKey,
    ConflictAction,
    DeliveryId,
    GitHubAppId,
    GitHubHost,
    InstallationId,
    InstallationKey,
    MintedJit,
    Removal,
    RunId,
    RunnerGroupId,
    RunnerPage,
    RunnerRecord,
    Scope,
)
from paddock.domain.ids import GitHubRunnerId, JobId
from paddock.domain.runners.versions import RunnerVersion, VersionSchedule
from paddock.domain.states import JobState
from paddock.fakes.github import FakeGitHub, FaultKind, JobSpec, Reply, Request
from paddock.fakes.github.keys import public_half
from paddock.fakes.github.records import Installation, Repository, VersionDates
from paddock.fakes.github.server import serving, wall_clock
from paddock.github.apps import Apps, GitHubApp
from paddock.github.budget import MemoryBudget
from paddock.github.client import GitHubClient
from paddock.ports import GitHub
from paddock.system import SystemClock

HOST = GitHubHost("github.test")
ACME = Scope(host=HOST, owner="acme")
SITE = Scope(host=HOST, owner="acme", repository="site")
GROUP = RunnerGroupId(1)


class Watched(FakeGitHub):
    """Records its requests."""

    asked: list[Request]

    def request(self, request: Request) -> Reply:
        self.asked.append(request)
        return super().request(request)


@dataclass
class Scene:
    fake: Watched
    github: GitHub
    app: AppKey
    who: InstallationKey
    installation: Installation
    site: Repository

    async def mint(self, name: str = "linux-x7k2-1", scope: Scope = ACME) -> MintedJit:
        return await self.github.mint_jit(
            self.who, scope, name=name, runner_group_id=GROUP, labels=["linux"]
        )

    def queue(self, *labels: str) -> tuple[RunId, JobId]:
        run = self.fake.jobs.queue_run(self.site, [JobSpec(labels=labels or ("linux",))])
        return RunId(run.id), JobId(run.jobs[0].id)

    async def busy(self) -> GitHubRunnerId:
        """A runner that executes a job."""
        minted = await self.mint()
        runner = self.fake.world.runners[minted.runner.id]
        session = self.fake.runners.connect(
            client_id=runner.client_id, secret=runner.secret, version="2.330.0"
        ).id
        _, job = self.queue()
        self.fake.runners.acquire(session, job)
        return minted.runner.id


@pytest.fixture
async def scene(private_key: str, tmp_path: Path) -> AsyncIterator[Scene]:
    fake = Watched(now=wall_clock, rng=Random(1))
    fake.asked = []
    app = fake.accounts.add_app("paddock", public_keys=[public_half(private_key)])
    acme = fake.accounts.add_organization("acme")
    site = fake.accounts.add_repository(acme, "site")
    fake.accounts.add_group(acme, "large")
    installation = fake.accounts.install(app, acme)
    key_file = tmp_path / "app.pem"
    key_file.write_text(private_key)
    async with serving(fake) as url:
        apps = Apps(
            [
                GitHubApp(
                    host=HOST,
                    app_id=GitHubAppId(app.id),
                    api_url=url,
                    private_key_file=key_file,
                    webhook_secrets=(SecretStr("secret"),),
                    limits=BudgetLimits(),
                )
            ]
        )
        clock = SystemClock()
        client = GitHubClient(apps, clock=clock, budget=MemoryBudget(clock))
        try:
            yield Scene(
                fake=fake,
                github=client,
                app=AppKey(host=HOST, app=GitHubAppId(app.id)),
                who=InstallationKey(
                    host=HOST,
                    app=GitHubAppId(app.id),
                    installation=InstallationId(installation.id),
                ),
                installation=installation,
                site=site,
            )
        finally:
            await client.aclose()


async def failing(call: Awaitable[Any]) -> Failure:
    with pytest.raises(GitHubError) as raised:
        await call
    return raised.value.failure


# -- every request


async def _mint(s: Scene) -> None:
    assert (await s.mint()).runner.status == "offline"
    assert (await s.mint("linux-x7k2-2", SITE)).runner.labels == ("linux",)


async def _delete(s: Scene) -> None:
    for scope in (ACME, SITE):
        runner = (await s.mint(f"r-{scope.repository}", scope)).runner.id
        assert await s.github.delete_runner(s.who, scope, runner) is Removal.REMOVED
        assert await s.github.delete_runner(s.who, scope, runner) is Removal.ABSENT


async def _find(s: Scene) -> None:
    for scope in (ACME, SITE):
        name = f"r-{scope.repository}"
        minted = await s.mint(name, scope)
        assert await s.github.find_runner(s.who, scope, name=name) == minted.runner
        assert isinstance(await s.github.find_runner(s.who, scope, name="unknown"), Absent)


async def _list_runners(s: Scene) -> None:
    for scope in (ACME, SITE):
        minted = await s.mint(f"r-{scope.repository}", scope)
        listed = await s.github.list_runners(s.who, scope)
        assert isinstance(listed, RunnerPage)
        assert minted.runner in listed.runners


async def _get_runner(s: Scene) -> None:
    for scope in (ACME, SITE):
        minted = await s.mint(f"r-{scope.repository}", scope)
        assert await s.github.get_runner(s.who, scope, minted.runner.id) == minted.runner
        found = await s.github.get_runner(s.who, scope, GitHubRunnerId(9999))
        assert isinstance(found, Absent)


async def _conflict(s: Scene) -> None:
    await s.mint()
    conflict = await s.github.resolve_name_conflict(s.who, ACME, name="linux-x7k2-1")
    assert conflict.action is ConflictAction.DELETE_AND_RENAME


async def _control(s: Scene) -> None:
    await s.github.control_read(s.who, ACME)
    await s.github.control_read(s.who, SITE)


async def _groups(s: Scene) -> None:
    groups = await s.github.list_runner_groups(s.who, ACME)
    assert [(group.name, group.default) for group in groups] == [
        ("Default", True),
        ("large", False),
    ]


async def _version_schedule(s: Scene) -> None:
    ends_at = datetime(2026, 3, 16, tzinfo=UTC)
    s.fake.world.version_dates["2.330.0"] = VersionDates(runtime_deprecates_at=ends_at)
    for scope in (ACME, SITE):
        known = await s.github.get_version_schedule(s.who, scope, RunnerVersion("2.330.0"))
        assert known == VersionSchedule(
            version=RunnerVersion("2.330.0"), registration_ends_at=None, runtime_ends_at=ends_at
        )
        unknown = await s.github.get_version_schedule(s.who, scope, RunnerVersion("9.9.9"))
        assert isinstance(unknown, Absent)


async def _job(s: Scene) -> None:
    run, job = s.queue("linux", "large")
    found = await s.github.get_job(s.who, SITE, job)
    assert not isinstance(found, Absent)
    assert (found.state, found.run_id, found.runner_id) == (JobState.QUEUED, run, None)
    assert found.labels == ("linux", "large")
    assert isinstance(await s.github.get_job(s.who, SITE, JobId(1)), Absent)


async def _run(s: Scene) -> None:
    run, _ = s.queue()
    found = await s.github.get_run(s.who, SITE, run)
    assert not isinstance(found, Absent)
    assert (found.id, found.fork) == (run, False)
    assert isinstance(await s.github.get_run(s.who, SITE, RunId(1)), Absent)


async def _active(s: Scene) -> None:
    run, job = s.queue()
    active = await s.github.list_active_runs(s.who, SITE)
    assert active.complete
    assert [(found.id, [one.id for one in jobs]) for found, jobs in active.runs] == [(run, [job])]


async def _repositories(s: Scene) -> None:
    [site] = await s.github.list_repositories(s.who)
    assert (site.id, site.full_name, site.owner_type) == (s.site.id, "acme/site", "Organization")


async def _installations(s: Scene) -> None:
    [installation] = await s.github.list_installations(s.app)
    assert (installation.id, installation.account_login) == (s.who.installation, "acme")
    assert await s.github.get_installation(s.app, installation.id) == installation


async def _installation(s: Scene) -> None:
    s.fake.accounts.suspend(s.installation)
    found = await s.github.get_installation(s.app, s.who.installation)
    assert not isinstance(found, Absent)
    assert found.suspended_at is not None
    assert isinstance(await s.github.get_installation(s.app, InstallationId(1)), Absent)


async def _deliveries(s: Scene) -> None:
    for _ in range(120):
        s.queue()
    first = await s.github.list_deliveries(s.app)
    assert len(first.deliveries) == 100
    rest = await s.github.list_deliveries(s.app, cursor=first.next)
    assert rest.next is None
    guids = [delivery.guid for page in (first, rest) for delivery in page.deliveries]
    assert len(set(guids)) == len(guids) >= 120


async def _redeliver(s: Scene) -> None:
    s.queue()
    [newest, *_] = (await s.github.list_deliveries(s.app)).deliveries
    await s.github.redeliver(s.app, newest.id)
    attempts = (await s.github.list_deliveries(s.app)).deliveries
    assert [one.redelivery for one in attempts if one.guid == newest.guid] == [True, False]
    assert (await failing(s.github.redeliver(s.app, DeliveryId(1)))).kind is not Kind.UNKNOWN


CALLS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "mint_jit": _mint,
    "resolve_name_conflict": _conflict,
    "delete_runner": _delete,
    "find_runner": _find,
    "list_runners": _list_runners,
    "get_runner": _get_runner,
    "control_read": _control,
    "list_runner_groups": _groups,
    "get_version_schedule": _version_schedule,
    "get_job": _job,
    "get_run": _run,
    "list_active_runs": _active,
    "list_repositories": _repositories,
    "list_installations": _installations,
    "get_installation": _installation,
    "list_deliveries": _deliveries,
    "redeliver": _redeliver,
}


def test_every_method_of_the_port_is_held_to_the_contract() -> None:
    methods = {name for name, _ in inspect.getmembers(GitHub, inspect.iscoroutinefunction)}
    assert CALLS.keys() == {name for name in methods if not name.startswith("_")}


@pytest.mark.parametrize("method", CALLS)
async def test_every_request_is_one_github_describes(
    contract: Any, scene: Scene, method: str
) -> None:
    await CALLS[method](scene)
    assert scene.fake.asked
    for request in scene.fake.asked:
        contract.validate_request(request.method, request.path, request.query, request.body)
        assert request.headers["accept"] == "application/vnd.github+json"
        assert request.headers["x-github-api-version"] == "2022-11-28"


# -- the refusals of the fake, told apart

REFUSALS = {
    FaultKind.SUSPENDED: Kind.INSTALLATION_SUSPENDED,
    FaultKind.RUNNERS_DISABLED: Kind.RUNNERS_DISABLED,
    FaultKind.ACTIONS_DISABLED: Kind.ACTIONS_DISABLED,
    FaultKind.IP_NOT_PERMITTED: Kind.IP_NOT_PERMITTED,
    FaultKind.NOT_ACCESSIBLE: Kind.NOT_ACCESSIBLE,
    FaultKind.MAX_RUNNERS: Kind.RUNNER_LIMIT,
    FaultKind.RATE_LIMIT: Kind.PRIMARY_LIMIT,
    FaultKind.SECONDARY_LIMIT: Kind.SECONDARY_LIMIT,
    FaultKind.NOT_FOUND: Kind.NOT_FOUND,
    FaultKind.NAME_EXISTS: Kind.NAME_EXISTS,
    FaultKind.INVALID: Kind.INVALID_REQUEST,
    FaultKind.SERVER_ERROR: Kind.OUTCOME_UNKNOWN,
    FaultKind.BAD_GATEWAY: Kind.OUTCOME_UNKNOWN,
    FaultKind.UNAVAILABLE: Kind.OUTCOME_UNKNOWN,
    FaultKind.REQUEST_LOST: Kind.OUTCOME_UNKNOWN,
    FaultKind.REPLY_LOST: Kind.OUTCOME_UNKNOWN,
}


@pytest.mark.parametrize("fault", REFUSALS)
async def test_a_mint_that_is_refused_has_its_class(scene: Scene, fault: FaultKind) -> None:
    scene.fake.inject(fault, path="generate-jitconfig")
    assert (await failing(scene.mint())).kind is REFUSALS[fault]
    assert sum(request.path.endswith("generate-jitconfig") for request in scene.fake.asked) == 1


async def test_a_mint_refused_for_its_token_is_sent_again_with_another(scene: Scene) -> None:
    scene.fake.inject(FaultKind.BAD_CREDENTIALS, path="generate-jitconfig")
    assert (await scene.mint()).runner.name == "linux-x7k2-1"


# -- whole stories


async def test_a_lost_mint_is_found_by_its_name_removed_and_minted_under_another(
    scene: Scene,
) -> None:
    """I19, I41: after the lost answer, one look decides; nothing loops."""
    scene.fake.inject(FaultKind.REPLY_LOST, path="generate-jitconfig")
    assert (await failing(scene.mint())).unsettled
    assert (await failing(scene.mint())).kind is Kind.NAME_EXISTS
    conflict = await scene.github.resolve_name_conflict(scene.who, ACME, name="linux-x7k2-1")
    assert conflict.action is ConflictAction.DELETE_AND_RENAME
    assert conflict.record is not None
    removal = await scene.github.delete_runner(scene.who, ACME, conflict.record.id)
    assert removal is Removal.REMOVED
    fresh = await scene.mint("linux-x7k2-2")
    assert [runner.id for runner in scene.fake.world.runners.values()] == [fresh.runner.id]


async def test_a_busy_runner_is_not_removed(scene: Scene) -> None:
    """I35"""
    runner = await scene.busy()
    assert await scene.github.delete_runner(scene.who, ACME, runner) is Removal.BUSY
    found = await scene.github.get_runner(scene.who, ACME, runner)
    assert isinstance(found, RunnerRecord)
    assert (found.busy, found.online) == (True, True)


async def test_a_suspended_installation_proves_nothing_absent(scene: Scene) -> None:
    """I66: it answers 404 to everything its old token asks."""
    runner = (await scene.mint()).runner.id
    _, job = scene.queue()
    scene.fake.accounts.suspend(scene.installation)
    for call in (
        scene.github.delete_runner(scene.who, ACME, runner),
        scene.github.get_runner(scene.who, ACME, runner),
        scene.github.get_job(scene.who, SITE, job),
    ):
        assert (await failing(call)).kind is Kind.NOT_FOUND
    assert runner in scene.fake.world.runners


async def test_an_organisation_that_answers_404_for_a_moment_proves_nothing_absent(
    scene: Scene,
) -> None:
    """I66"""
    runner = (await scene.mint()).runner.id
    scene.fake.inject(FaultKind.NOT_FOUND, owner="acme", times=None, seconds=60)
    failure = await failing(scene.github.delete_runner(scene.who, ACME, runner))
    assert failure.kind is Kind.NOT_FOUND


async def test_an_uninstalled_app_is_proven_to_be_uninstalled(scene: Scene) -> None:
    scene.fake.accounts.uninstall(scene.installation)
    failure = await failing(scene.github.control_read(scene.who, ACME))
    assert failure.kind is Kind.NOT_FOUND_PROVEN
    found = await scene.github.get_installation(scene.app, scene.who.installation)
    assert isinstance(found, Absent)


async def test_a_waiting_sibling_is_seen_in_a_run_that_has_started(scene: Scene) -> None:
    """I8"""
    minted = await scene.mint()
    runner = scene.fake.world.runners[minted.runner.id]
    session = scene.fake.runners.connect(
        client_id=runner.client_id, secret=runner.secret, version="2.330.0"
    ).id
    run = scene.fake.jobs.queue_run(
        scene.site, [JobSpec(labels=("linux",)), JobSpec(labels=("linux",))]
    )
    scene.fake.runners.acquire(session, run.jobs[0].id)
    [(found, jobs)] = (await scene.github.list_active_runs(scene.who, SITE)).runs
    assert found.status == "in_progress"
    assert {job.state for job in jobs} == {JobState.IN_PROGRESS, JobState.QUEUED}
