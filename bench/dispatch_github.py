"""GitHub for the dispatch and fleet benchmarks, a process of its own:
`python -m bench.dispatch_github KEY_FILE ORGANIZATIONS`.

It answers as fast as it can, and its quotas do not bind. Every process that builds the scene gets the
same one: the benchmark renders its webhooks from a copy of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import uvloop

from paddock.fakes.github import FakeGitHub, FaultKind, Quotas
from paddock.fakes.github.keys import private_key_at, public_half
from paddock.fakes.github.records import App, Repository
from paddock.fakes.github.server import serving, wall_clock

SECRET: Final = "bench"
LABELS: Final = ("self-hosted", "linux")
PLENTY: Final = 10**7


class Scene(NamedTuple):
    github: FakeGitHub
    app: App
    #: One repository of each organisation.
    repositories: Sequence[Repository]
    #: A repository of an organisation that refuses all mints.
    refused: Repository


def scene(key_file: Path, organizations: int) -> Scene:
    quotas = Quotas(core=PLENTY, mint=PLENTY, points_per_minute=PLENTY, runners_per_group=PLENTY)
    github = FakeGitHub(now=wall_clock, rng=Random(1), quotas=quotas)
    app = github.accounts.add_app(
        "paddock", public_keys=[public_half(private_key_at(key_file))], webhook_secret=SECRET
    )
    repositories = []
    for number in range(1, organizations + 1):
        organization = github.accounts.add_organization(f"octo-org-{number}")
        repositories.append(github.accounts.add_repository(organization, "hello"))
        github.accounts.install(app, organization)
    broken = github.accounts.add_organization("broken-org")
    refused = github.accounts.add_repository(broken, "hello")
    github.accounts.install(app, broken)
    github.inject(FaultKind.RUNNERS_DISABLED, owner="broken-org", times=None, seconds=86_400)
    return Scene(github, app, repositories, refused)


async def main() -> None:
    made = scene(Path(sys.argv[1]), int(sys.argv[2]))
    async with serving(made.github) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
