"""A small world at the fake GitHub in virtual time, for tests that need one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from paddock.fakes.github import FakeGitHub, Faults, JobSpec, Quotas, Reply, Request, Timing
from paddock.fakes.github.records import Installation, Job, Repository, Runner

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@dataclass
class Clock:
    time: datetime = BEGIN

    def now(self) -> datetime:
        return self.time


@dataclass
class Scene:
    """An organisation with one repository and the App installed."""

    seed: int = 1
    faults: Faults = field(default_factory=Faults)
    timing: Timing = field(default_factory=Timing)
    quotas: Quotas = field(default_factory=Quotas)

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.github = FakeGitHub(
            now=self.clock.now,
            rng=Random(self.seed),
            faults=self.faults,
            timing=self.timing,
            quotas=self.quotas,
        )
        accounts = self.github.accounts
        self.app = accounts.add_app("paddock")
        self.organization = accounts.add_organization("octo-org")
        self.repository = accounts.add_repository(self.organization, "hello")
        self.installation = accounts.install(self.app, self.organization)
        self.github.hooks.take()

    def passes(self, seconds: float) -> None:
        """Advances the time and the model."""
        self.clock.time += timedelta(seconds=seconds)
        self.github.advance()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        token: str | None = None,
        installation: Installation | None = None,
    ) -> Reply:
        bearer = token or self.github.token_for(installation or self.installation)
        headers = {"authorization": f"Bearer {bearer}"}
        return self.github.request(Request(method, path, query or {}, headers, body))

    def mint(
        self, name: str = "r1", *labels: str, scope: str | None = None, group: int = 1
    ) -> Reply:
        body = {"name": name, "runner_group_id": group, "labels": list(labels) or ["linux"]}
        place = f"/repos/{scope}" if scope else "/orgs/octo-org"
        return self.call("POST", f"{place}/actions/runners/generate-jitconfig", body)

    def runner(
        self, name: str = "r1", *labels: str, scope: str | None = None, group: int = 1
    ) -> Runner:
        reply = self.mint(name, *labels, scope=scope, group=group)
        assert reply.status == 201, reply
        return self.github.world.runners[reply.body["runner"]["id"]]

    def connect(self, runner: Runner) -> str:
        return self.github.runners.connect(
            client_id=runner.client_id, secret=runner.secret, version="2.330.0"
        ).id

    def online(
        self, name: str = "r1", *labels: str, scope: str | None = None, group: int = 1
    ) -> str:
        """A runner that is connected; returns its session."""
        return self.connect(self.runner(name, *labels, scope=scope, group=group))

    def queue(self, *labels: str, repository: Repository | None = None, **spec: Any) -> Job:
        specs = [JobSpec(labels=labels or ("linux",), **spec)]
        return self.github.jobs.queue_run(repository or self.repository, specs).jobs[0]

    def busy(self, name: str = "r1") -> tuple[Runner, str, Job]:
        """A runner that executes a job."""
        session = self.online(name)
        job = self.queue()
        self.github.runners.acquire(session, job.id)
        assert job.runner is not None
        return job.runner, session, job

    def get_runner(self, runner: Runner) -> Reply:
        return self.call("GET", f"/orgs/octo-org/actions/runners/{runner.id}")

    def delete_runner(self, runner: Runner) -> Reply:
        return self.call("DELETE", f"/orgs/octo-org/actions/runners/{runner.id}")

    def webhooks(self) -> list[tuple[str, str | None, dict[str, Any]]]:
        """What was sent since the last call: event, action, payload."""
        return [
            (outgoing.headers["X-GitHub-Event"], payload.get("action"), payload)
            for outgoing in self.github.hooks.take()
            for payload in [json.loads(outgoing.body)]
        ]
