"""`paddock doctor`: each failure is found, and comes with its remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from pydantic import SecretStr

from paddock.checkup.finding import CheckResult, Finding
from paddock.checkup.github import examine_apps
from paddock.fakes.github import FakeGitHub
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.records import App, Installation
from paddock.fakes.github.server import serving, wall_clock
from paddock.github.apps import Apps
from paddock.github.settings import GitHubAppSettings
from paddock.system import SystemClock
from tests.http.test_operating import Commands
from tests.support.next_release import write_next_release
from tests.support.processes import paddock

_KEY = make_private_key()


class ShiftedClock(SystemClock):
    def __init__(self, by: float = 0.0) -> None:
        self._by = timedelta(seconds=by)

    def now(self) -> datetime:
        return super().now() + self._by


@dataclass
class Scene:
    fake: FakeGitHub
    app: App
    installation: Installation
    apps: Apps

    async def examine(self, *, groups: tuple[tuple[str, str], ...] = (), off: float = 0.0) -> str:
        """The problems found, each with its remedy."""
        found = [each async for each in examine_apps(self.apps, ShiftedClock(off), groups=groups)]
        return " | ".join(_told(each) for each in found if each.health is not CheckResult.OK)


def _told(finding: Finding) -> str:
    assert finding.remedy, finding
    return f"{finding.health}: {finding.what}: {finding.remedy}"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with _scene(tmp_path) as scene:
        yield scene


@asynccontextmanager
async def _scene(directory: Path) -> AsyncIterator[Scene]:
    fake = FakeGitHub(now=wall_clock, rng=Random(1))
    key_file = directory / "app.pem"
    key_file.write_text(_KEY)
    app = fake.accounts.add_app("paddock", public_keys=[public_half(_KEY)], webhook_secret="s")
    installation = fake.accounts.install(app, fake.accounts.add_organization("acme"))
    async with serving(fake) as url:
        settings = GitHubAppSettings(
            app_id=app.id,
            private_key_file=key_file,
            webhook_secret=(SecretStr("s"),),
            api_url=url,
        )
        yield Scene(fake, app, installation, Apps.from_settings([settings]))


async def test_a_pools_runner_group_that_an_organisation_lacks(scene: Scene) -> None:
    told = await scene.examine(groups=(("linux", "big"),))
    assert "it has no runner group 'big' of pool linux" in told
    assert "make the group in acme" in told


async def test_a_suspended_installation(scene: Scene) -> None:
    scene.fake.accounts.suspend(scene.installation)
    assert "failed: it is suspended: an owner of acme unsuspends it" in await scene.examine()


async def test_a_clock_that_is_off(scene: Scene) -> None:
    told = await scene.examine(off=45.0)
    assert "warning: this machine's clock is 4" in told
    assert "ahead of GitHub's: synchronise it" in told


async def test_an_event_that_is_not_subscribed_to(scene: Scene) -> None:
    scene.app.events = ()
    assert "it is not subscribed to the event workflow_job" in await scene.examine()


async def test_a_key_that_github_does_not_accept(scene: Scene) -> None:
    next(iter(scene.apps)).private_key_file.write_text(make_private_key())
    told = await scene.examine()
    assert told.startswith("failed: ")
    assert "check app_id, the private key and api_url" in told


async def test_the_command_tells_of_the_database_and_ends_with_one_if_something_failed(
    database_url: str,
) -> None:
    found = Commands(database_url).json("doctor")
    health = {each["about"]: each["health"] for each in found}
    assert (health["database"], health["schema"], health["pools"]) == ("ok", "ok", "warning")
    failed = await paddock(
        "doctor",
        PADDOCK_DATABASE_URL="postgresql://operator@127.0.0.1:9/none",
        PADDOCK_FLEET="kube",
    )
    assert failed.code == 1
    assert "failed  database: " in failed.out
    assert "failed  sealing key: " in failed.out
    assert "→ " in failed.out
    assert "Traceback" not in failed.err


async def test_a_database_without_a_schema_is_a_finding_that_names_the_command(
    empty_database_url: str,
) -> None:
    found = await paddock("doctor", PADDOCK_DATABASE_URL=empty_database_url)
    assert found.code == 1
    assert "failed  schema: The database has no schema of paddock's yet" in found.out
    assert "run `paddock migrate`" in found.out
    assert "this machine: " in found.out  # the rest was examined
    assert "bug" not in found.out + found.err


async def test_a_schema_that_is_older_is_a_finding_that_names_the_command(
    database_url: str, tmp_path: Path
) -> None:
    newer = str(write_next_release(tmp_path))
    found = await paddock("doctor", PADDOCK_DATABASE_URL=database_url, PYTHONPATH=newer)
    assert found.code == 1
    assert "failed  schema: The database's schema is older than this paddock" in found.out
    assert "run `paddock migrate`" in found.out
    assert "bug" not in found.out + found.err
