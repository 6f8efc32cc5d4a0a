"""`paddock up` with a GitHub App and an installed runner, as it serves the jobs of a real GitHub.

The GitHub and the runner are fakes, but the server's settings do not say so.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

import pytest

from paddock.fakes.github import FakeGitHub, JobSpec, Step
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.records import JobStatus
from paddock.fakes.github.server import serving, wall_clock
from tests.http.test_up import processes_of, until, up
from tests.support.directories import open_directory

pytestmark = pytest.mark.slow

SECRET = "secret"


def install(directory: Path) -> Path:
    """A program where actions/runner has its own, started in the same way."""
    program = directory / "actions-runner" / "bin" / "Runner.Listener"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m paddock.fakes.runner "$@"\n')
    program.chmod(0o755)
    return program.parents[1]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc")
async def test_a_job_of_a_configured_app_is_run_by_the_installed_runner() -> None:
    key = make_private_key()
    fake = FakeGitHub(now=wall_clock, rng=Random(1))
    # A runner that obeyed would end without its job.
    fake.world.update_to = "2.999.0"
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
                spec = JobSpec(name="build", labels=("self-hosted",), steps=(Step("a", "true"),))
                [job] = fake.jobs.queue_run(repository, [spec]).jobs
                async with asyncio.timeout(60):
                    while job.status is not JobStatus.COMPLETED:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                assert job.conclusion == "success"
                assert job.runner is not None
                assert job.runner.name.startswith("local-")
        assert processes_of(data_dir) == []
