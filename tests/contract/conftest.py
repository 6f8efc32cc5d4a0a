"""A fake GitHub over real HTTP, each of whose answers is checked against GitHub's description."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx2
import jwt
import pytest

from paddock.fakes.github import FakeGitHub, JobSpec
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.records import Account, App, Installation, Repository, Runner
from paddock.fakes.github.server import plain_http, serving, wall_clock
from tests.contract.openapi import Contract, contract

__all__ = ["contract"]


@pytest.fixture(scope="session")
def private_key() -> str:
    return make_private_key()


@dataclass
class Scene:
    """An organisation and a user, each with a repository and the App installed, and a client that
    rejects requests and answers that GitHub would not send or accept."""

    github: FakeGitHub
    contract: Contract
    client: httpx2.AsyncClient
    private_key: str
    app: App
    organization: Account
    repository: Repository
    installation: Installation
    user: Account
    user_repository: Repository
    user_installation: Installation

    def jwt(self, **claims: Any) -> str:
        now = int(time.time())
        default = {"iss": str(self.app.id), "iat": now - 60, "exp": now + 540}
        return jwt.encode(default | claims, self.private_key, algorithm="RS256")

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        bearer: str | None = None,
        as_app: bool = False,
        checked: bool = True,
    ) -> httpx2.Response:
        """`checked=False`: a request that is wrong on purpose."""
        if bearer is None:
            bearer = self.jwt() if as_app else self.github.token_for(self.installation)
        if checked:
            self.contract.validate_request(method, path, query, body)
        response = await self.client.request(
            method, path, params=query, json=body, headers={"authorization": f"Bearer {bearer}"}
        )
        self.contract.validate_response(
            method,
            path,
            response.status_code,
            response.headers,
            response.json() if response.content else None,
        )
        return response

    def mint(self, name: str = "r1", labels: tuple[str, ...] = ("linux",)) -> Runner:
        group = self.github.world.groups[self.organization.id][0]
        return self.github.runners.mint(
            self.organization, name=name, group=group, labels=labels
        ).runner

    def start(self, runner: Runner) -> str:
        """The runner comes online; returns its session."""
        return self.github.runners.connect(
            client_id=runner.client_id, secret=runner.secret, version="2.330.0"
        ).id

    def busy_runner(self, name: str = "r1") -> tuple[Runner, str, int]:
        """A runner that executes a job: the record, its session, the job's id."""
        runner = self.mint(name)
        session = self.start(runner)
        job = self.github.jobs.queue_run(self.repository, [JobSpec(labels=("linux",))]).jobs[0]
        self.github.runners.acquire(session, job.id)
        return runner, session, job.id


@pytest.fixture
async def scene(contract: Contract, private_key: str) -> AsyncIterator[Scene]:
    github = FakeGitHub(now=wall_clock, rng=Random(1))
    async with (
        serving(github) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, verify=plain_http()) as client,
    ):
        accounts = github.accounts
        app = accounts.add_app("paddock", public_keys=[public_half(private_key)])
        organization = accounts.add_organization("octo-org")
        user = accounts.add_user("octocat")
        repository = accounts.add_repository(organization, "hello")
        user_repository = accounts.add_repository(user, "dotfiles", private=False)
        yield Scene(
            github=github,
            contract=contract,
            client=client,
            private_key=private_key,
            app=app,
            organization=organization,
            repository=repository,
            installation=accounts.install(app, organization),
            user=user,
            user_repository=user_repository,
            user_installation=accounts.install(app, user, repositories=[user_repository]),
        )
