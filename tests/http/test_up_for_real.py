"""`paddock up` with a GitHub App and an installed runner, as it serves the jobs of a real GitHub.

The GitHub and the runner are fakes, but the server's settings do not say so.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from paddock.fakes.github import FakeGitHub, FaultKind, JobSpec, Step
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.records import Job, JobStatus, Repository
from paddock.fakes.github.server import serving, wall_clock
from tests.http.test_up import processes_of, until, up
from tests.support.directories import open_directory
from tests.support.processes import paddock

pytestmark = pytest.mark.slow

SECRET = "secret"


#: What the stand-in below calls itself.
VERSION = "2.330.0"


def install(directory: Path) -> Path:
    """A program where actions/runner has its own, started in the same way."""
    program = directory / "actions-runner" / "bin" / "Runner.Listener"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m paddock.fakes.runner "$@"\n')
    program.chmod(0o755)
    built_from = program.with_name("Runner.Listener.deps.json")
    built_from.write_text(f'{{"targets": {{"net8": {{"Runner.Listener/{VERSION}": {{}}}}}}}}')
    return program.parents[1]


@dataclass(frozen=True)
class Installed:
    fake: FakeGitHub
    repository: Repository
    data_dir: Path

    def queue(self) -> Job:
        spec = JobSpec(name="build", labels=("self-hosted",), steps=(Step("a", "true"),))
        return self.fake.jobs.queue_run(self.repository, [spec]).jobs[0]


@asynccontextmanager
async def installed() -> AsyncIterator[Installed]:
    """`paddock up`, with an idle runner."""
    key = make_private_key()
    fake = FakeGitHub(now=wall_clock, rng=Random(1))
    app = fake.accounts.add_app("paddock", public_keys=[public_half(key)], webhook_secret=SECRET)
    acme = fake.accounts.add_organization("acme")
    repository = fake.accounts.add_repository(acme, "site")
    fake.accounts.install(app, acme)
    with open_directory() as parent:
        data_dir, key_file = parent / "data", parent / "app.pem"
        key_file.write_text(key)
        async with serving(fake) as url:
            settings = {
                "PADDOCK_GITHUB_APP_ID": str(app.id),
                "PADDOCK_GITHUB_PRIVATE_KEY_FILE": str(key_file),
                "PADDOCK_GITHUB_WEBHOOK_SECRET": SECRET,
                "PADDOCK_GITHUB_API_URL": url,
                "PADDOCK_LOCAL_RUNNER": str(install(parent)),
            }
            async with up(data_dir, environment=settings):
                await until(data_dir, "SELECT count(*) FROM runners WHERE state = 'idle'", 1)
                address = (data_dir / "up.address").read_text().split()[1]
                app.webhook_url = f"{address}/webhooks/github"
                yield Installed(fake, repository, data_dir)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc")
async def test_a_job_of_a_configured_app_is_run_by_the_installed_runner() -> None:
    async with installed() as place:
        # A runner that obeyed would end without its job.
        place.fake.world.update_to = "2.999.0"
        job = place.queue()
        async with asyncio.timeout(60):
            while job.status is not JobStatus.COMPLETED:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert job.conclusion == "success"
        assert job.runner is not None
        assert job.runner.name.startswith("local-")
    assert processes_of(place.data_dir) == []


@pytest.mark.parametrize("where", ["poll", "session"])
async def test_runners_that_github_refuses_stop_their_version_and_not_their_group(
    where: str,
) -> None:
    """`why` and `doctor` say so, and no job of the burst costs a second runner."""
    async with installed() as place:
        if where == "poll":
            place.fake.world.deprecated_versions.add(VERSION)
        else:
            kind = FaultKind.NOT_ACCESSIBLE
            place.fake.inject(kind, route="runner.session", times=None, seconds=600.0)
        jobs = [place.queue() for _ in range(3)]
        refused = "SELECT count(*) FROM version_schedules WHERE refused_until > now()"
        await until(place.data_dir, refused, 1)
        await until(place.data_dir, "SELECT count(*) FROM runners WHERE state = 'idle'", 1)
        # A runner that ended counts as supply until GitHub was asked about its job (I68).
        async with asyncio.timeout(150):
            told = ""
            while f"because of runner version {VERSION} of the pool local" not in told:
                told = (await paddock("why", str(jobs[-1].id), "--data-dir", place.data_dir)).out
                assert "runner group" not in told
        found = await paddock("doctor", "--data-dir", place.data_dir)
        assert f"runner version {VERSION}" in found.out, found
        # None was given out again in the meantime.
        assert len(place.fake.truth.mints) <= len(jobs)
        assert {job.status for job in jobs} == {JobStatus.QUEUED}
