"""GitHub for the dispatch benchmark, a process of its own: `python -m bench.dispatch_github KEY_FILE`.

It answers as quickly as it can and has no quota worth mentioning. The scene is the same wherever it
is made: the benchmark makes its webhooks from one of its own.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random
from typing import Final

import uvloop

from paddock.sim.github import FakeGitHub, FaultKind, Quotas
from paddock.sim.github.keys import private_key_at, public_half
from paddock.sim.github.records import App, Repository
from paddock.sim.github.server import serving, wall_clock

SECRET: Final = "bench"
LABELS: Final = ("self-hosted", "linux")
PLENTY: Final = 10**7


def scene(key_file: Path) -> tuple[FakeGitHub, App, Repository, Repository]:
    """A repository whose runners are minted, and one of an organisation that refuses them all."""
    quotas = Quotas(core=PLENTY, mint=PLENTY, points_per_minute=PLENTY, runners_per_group=PLENTY)
    github = FakeGitHub(now=wall_clock, rng=Random(1), quotas=quotas)
    app = github.accounts.add_app(
        "paddock", public_keys=[public_half(private_key_at(key_file))], webhook_secret=SECRET
    )
    organization = github.accounts.add_organization("octo-org")
    repository = github.accounts.add_repository(organization, "hello")
    github.accounts.install(app, organization)
    broken = github.accounts.add_organization("broken-org")
    refused = github.accounts.add_repository(broken, "hello")
    github.accounts.install(app, broken)
    github.inject(FaultKind.RUNNERS_DISABLED, owner="broken-org", times=None, seconds=86_400)
    return github, app, repository, refused


async def main() -> None:
    github, *_ = scene(Path(sys.argv[1]))
    async with serving(github) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
