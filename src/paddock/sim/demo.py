"""A GitHub of one's own, with a little work, so that everything can be tried on one machine.

Two organisations whose workflows are a few shell commands. It lives in memory: a new start is a new
GitHub, with new numbers, that knows nothing of the jobs of the last one.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from paddock.github.settings import GitHubAppSettings
from paddock.sim.github import FakeGitHub, JobSpec, Step
from paddock.sim.github.keys import private_key_at, public_half
from paddock.sim.github.records import App, Repository
from paddock.sim.github.server import serving, wall_clock

#: The name the demonstration's ids are kept under.
HOST: Final = "github.demo"
LABELS: Final = ("self-hosted", "linux")

#: A job every other second, and now and then a matrix.
_EVERY: Final = (0.5, 3.0)
_MATRIX_CHANCE: Final = 0.1
_MATRIX: Final = 6

_STEPS: Final = (
    ("build", "echo compiling; sleep {seconds}; echo done"),
    ("test", "echo '12 tests'; sleep {seconds}; echo '12 passed'"),
    ("lint", "sleep {seconds}; echo clean"),
)

POOL: Final = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {name: demo}
spec:
  labels: [self-hosted, linux]
  resources: {vcpu: 1, memory: 512Mi}
  minIdle: 4
  maxRunners: 12
"""


class Demo:
    def __init__(self, fake: FakeGitHub, app: App, repositories: list[Repository]) -> None:
        self.fake = fake
        self._app = app
        self._repositories = repositories
        # What happens next in a demonstration is nobody's secret.
        self._dice = random.Random()  # noqa: S311
        self.queued = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path) -> AsyncIterator[tuple[Demo, GitHubAppSettings]]:
        """The fake GitHub at an address of this machine, and the App through which it is used."""
        key_file = directory / "demo-app.pem"
        key = private_key_at(key_file)
        secret = secrets.token_hex(16)
        fake = FakeGitHub(
            now=wall_clock,
            rng=random.Random(secrets.randbits(64)),  # noqa: S311
            epoch=time.time_ns() // 10**6 % 10**12 * 10,
        )
        app = fake.accounts.add_app(
            "paddock-demo", public_keys=[public_half(key)], webhook_secret=secret
        )
        repositories = []
        for login, names in (("acme", ("site", "api")), ("globex", ("firmware",))):
            account = fake.accounts.add_organization(login)
            repositories += [fake.accounts.add_repository(account, name) for name in names]
            fake.accounts.install(app, account)
        async with serving(fake) as url:
            settings = GitHubAppSettings(
                app_id=app.id,
                private_key_file=key_file,
                webhook_secret=(SecretStr(secret),),
                api_url=url,
                host=HOST,
            )
            yield cls(fake, app, repositories), settings

    def send_webhooks_to(self, url: str) -> None:
        self._app.webhook_url = url

    async def work(self) -> None:
        """Queue jobs for ever."""
        while True:
            matrix = _MATRIX if self._dice.random() < _MATRIX_CHANCE else 1
            self.queue(matrix)
            await asyncio.sleep(self._dice.uniform(*_EVERY))

    def queue(self, jobs: int = 1) -> None:
        name, command = self._dice.choice(_STEPS)
        specs = [
            JobSpec(
                name=name if jobs == 1 else f"{name} ({number + 1})",
                labels=LABELS,
                steps=(Step(name, command.format(seconds=self._dice.randint(1, 4))),),
            )
            for number in range(jobs)
        ]
        self.fake.jobs.queue_run(self._dice.choice(self._repositories), specs)
        self.queued += jobs
