"""A fake GitHub with jobs, to try all features on one machine.

It has organisations whose workflows are a few shell commands. It lives in memory: each start is a new
GitHub, with new ids, and without the jobs of the last one.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, assert_never

from pydantic import SecretStr

from paddock.fakes.github import FakeGitHub, JobSpec, Step, Timing
from paddock.fakes.github.keys import private_key_at, public_half
from paddock.fakes.github.records import App, Installation, Job, Repository
from paddock.fakes.github.server import serving, wall_clock
from paddock.github.settings import GitHubAppSettings

#: The demonstration's ids are stored under this host.
HOST: Final = "github.demo"
LABELS: Final = ("self-hosted", "linux")

#: The organisations with steady work; one whose account has trouble; one with hardly any work.
_BUSY: Final = (("acme", ("site", "api")), ("globex", ("firmware",)))
_TROUBLED: Final = ("umbrella", "core")
_LAZY: Final = ("initech", "reports")

_STEPS: Final = (
    ("build", "echo compiling; sleep {seconds}; echo done"),
    ("test", "echo '12 tests'; sleep {seconds}; echo '12 passed'"),
    ("lint", "sleep {seconds}; echo clean"),
)


class Mode(StrEnum):
    """The kinds of demonstration."""

    STEADY = "steady"
    BURST = "burst"
    CHAOS = "chaos"
    QUIET = "quiet"

    @property
    def tells(self) -> str:
        return _TELLS[self]


_TELLS: Final = {
    Mode.STEADY: "a job every other second, now and then a matrix",
    Mode.BURST: "a matrix of forty jobs every half a minute, nothing in between",
    Mode.CHAOS: "steady work, and one incident after the other",
    Mode.QUIET: "hardly any work",
}

#: For each job: how many at once, and how many seconds until the next.
_Pace = tuple[int, float]

#: In chaos GitHub gives up dead runners, and runners renew and poll, some twenty times as often as they
#: really do. Otherwise a viewer would wait a quarter of an hour for the end of a lost job.
_HURRIED: Final = Timing(
    lease=20.0, lost_lingers=(0.0, 3.0), offline_after=15.0, fetch_within=8.0, cancel_within=15.0
)
#: The shorter waiting times of runners and pollers.
SPEEDUP: Final[Mapping[str, str]] = {"PADDOCK_FAKE_RUNNER_SPEEDUP": "6", "PADDOCK_AGENT_WAIT": "4"}
#: The shorter waiting times of recovery (`[recovery]`).
QUICK_RECOVERY: Final[Mapping[str, float]] = {
    "fresh": 3.0,
    "recheck": 4.0,
    "boot": 30.0,
    "silent": 10.0,
    "undelivered": 8.0,
    "start": 6.0,
    "suspect": 7.0,
    "waiting": 20.0,
    "never_registered": 12.0,
    "zombie": 15.0,
    "surplus": 30.0,
    "no_job": 60.0,
    "unassigned": 7.0,
    "linger": 60.0,
    "adopt": 6.0,
    "supply_grace": 8.0,
    "in_progress": 40.0,
}

POOL: Final = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {name: demo}
spec:
  labels: [self-hosted, linux]
  resources: {vcpu: 1, memory: 256Mi}
  minIdle: 4
  maxRunners: 12
"""


class Demo:
    def __init__(
        self,
        mode: Mode,
        fake: FakeGitHub,
        app: App,
        repositories: list[Repository],
        *,
        troubled: tuple[Installation, Repository],
        lazy: Repository,
    ) -> None:
        self.mode = mode
        self.fake = fake
        self.app = app
        self.troubled = troubled
        self.lazy = lazy
        self._repositories = repositories
        # A demonstration's random draws need not be unpredictable.
        self.dice = random.Random()  # noqa: S311

    @classmethod
    @asynccontextmanager
    async def running(
        cls, directory: Path, mode: Mode = Mode.STEADY
    ) -> AsyncIterator[tuple[Demo, GitHubAppSettings]]:
        """Serves the fake GitHub at an address of this machine, with the App that paddock uses."""
        key_file = directory / "demo-app.pem"
        key = private_key_at(key_file)
        secret = secrets.token_hex(16)
        fake = FakeGitHub(
            now=wall_clock,
            rng=random.Random(secrets.randbits(64)),  # noqa: S311
            timing=_HURRIED if mode is Mode.CHAOS else None,
            epoch=time.time_ns() // 10**6 % 10**12 * 10,
        )
        app = fake.accounts.add_app(
            "paddock-demo", public_keys=[public_half(key)], webhook_secret=secret
        )
        repositories: list[Repository] = []
        for login, names in _BUSY:
            account = fake.accounts.add_organization(login)
            repositories += [fake.accounts.add_repository(account, name) for name in names]
            fake.accounts.install(app, account)
        (troubled, trouble), (lazy, _) = (
            _organization(fake, app, *names) for names in (_TROUBLED, _LAZY)
        )
        async with serving(fake) as url:
            settings = GitHubAppSettings(
                app_id=app.id,
                private_key_file=key_file,
                webhook_secret=(SecretStr(secret),),
                api_url=url,
                host=HOST,
            )
            demo = cls(mode, fake, app, repositories, troubled=(trouble, troubled), lazy=lazy)
            yield demo, settings

    def send_webhooks_to(self, url: str) -> None:
        self.app.webhook_url = url

    async def work(self) -> None:
        """Queues jobs for ever."""
        for jobs, pause in self._pace():
            if jobs:
                self.queue(jobs)
            await asyncio.sleep(pause)

    def _pace(self) -> Iterator[_Pace]:
        dice = self.dice
        while True:
            match self.mode:
                case Mode.STEADY:
                    yield (6 if dice.random() < 0.1 else 1), dice.uniform(0.5, 3.0)
                case Mode.BURST:
                    yield 40, 30.0
                case Mode.CHAOS:
                    yield 1, dice.uniform(1.5, 4.0)
                case Mode.QUIET:
                    yield 1, dice.uniform(20.0, 40.0)
                case _:
                    assert_never(self.mode)

    def queue(self, jobs: int = 1) -> None:
        name, command = self.dice.choice(_STEPS)
        seconds = self.dice.randint(1, 4)
        specs = [
            JobSpec(
                name=name if jobs == 1 else f"{name} ({number + 1})",
                labels=LABELS,
                steps=(Step(name, command.format(seconds=seconds)),),
            )
            for number in range(jobs)
        ]
        self.fake.jobs.queue_run(self.dice.choice(self._repositories), specs)

    def queue_one(
        self,
        name: str,
        *,
        seconds: float = 1.0,
        die: str | None = None,
        repository: Repository | None = None,
    ) -> Job:
        """Queues a single job that a viewer or an incident follows."""
        step = Step(name, f"echo {name}; sleep {seconds:g}")
        spec = JobSpec(name=name, labels=LABELS, steps=(step,), die=die)
        place = repository or self._repositories[0]
        [job] = self.fake.jobs.queue_run(place, [spec]).jobs
        return job


def _organization(
    fake: FakeGitHub, app: App, login: str, name: str
) -> tuple[Repository, Installation]:
    account = fake.accounts.add_organization(login)
    return fake.accounts.add_repository(account, name), fake.accounts.install(app, account)
