"""A fake GitHub over HTTP in virtual time, whose webhooks a store receives, or misses."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from pydantic import SecretStr

from paddock.dispatch.comparison import Comparison
from paddock.dispatch.deliveries import DeliveryApplier
from paddock.dispatch.delivery_writer import DeliveryWriter
from paddock.dispatch.installation_reads import InstallationReads
from paddock.dispatch.installations import Installations, NewAccount, RegisteredApp, register_apps
from paddock.dispatch.redelivery import Redelivery
from paddock.domain.accounts import MintBudget
from paddock.domain.github.budgets import BudgetLimits
from paddock.domain.github.deliveries import NewDelivery
from paddock.domain.github.objects import GitHubAppId, GitHubHost
from paddock.domain.limits import Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.fakes.github import FakeGitHub, JobSpec
from paddock.fakes.github.hooks import Outgoing
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.records import App, Installation, Job, Repository
from paddock.fakes.github.server import serving
from paddock.github.apps import Apps, GitHubApp
from paddock.github.budget import MemoryBudget
from paddock.github.client import GitHubClient
from paddock.store.database import Database
from paddock.store.store import PgStore
from tests.support.github import NoWakeups
from tests.support.time import ManualClock, SeededIds

LABELS = ("self-hosted", "linux")
_HOST = GitHubHost("github.test")
_KEY = make_private_key()


class AheadClock(ManualClock):
    """Begins now and only runs ahead: the fake's server sleeps by real time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = datetime.now(UTC).replace(microsecond=0)


@dataclass
class Missed:
    clock: AheadClock
    database: Database
    fake: FakeGitHub
    app: App
    installation: Installation
    site: Repository
    client: GitHubClient
    budget: MemoryBudget
    store: PgStore
    registered: RegisteredApp
    applier: DeliveryApplier
    reads: InstallationReads
    redelivery: Redelivery
    comparison: Comparison
    #: The status that webhooks get while paddock does not receive them; None: it receives them.
    away: int | None = None
    arrived: list[Outgoing] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    def take(self, outgoing: Outgoing) -> int:
        self.sent.append(outgoing.headers["X-GitHub-Delivery"])
        if self.away is not None:
            return self.away
        self.arrived.append(outgoing)
        return 200

    async def settle(self) -> None:
        """Stores what arrived, as the receiver would, and applies it."""
        arrived, self.arrived = self.arrived, []
        await self.store.store_deliveries([self._stored(each) for each in arrived])
        while await self.applier.round() or await self.reads.read_next():
            pass

    def queue(self, count: int = 1, *, repository: Repository | None = None) -> list[Job]:
        specs = [JobSpec(labels=LABELS)] * count
        return list(self.fake.jobs.queue_run(repository or self.site, specs).jobs)

    async def rounds(self, count: int, *, every: float = 60.0) -> None:
        for _ in range(count):
            await self.redelivery.round()
            await self.settle()
            self.clock.advance(every)

    def restarted(self) -> Redelivery:
        """The same loop in a new process: it knows only what is stored."""
        return Redelivery(
            store=self.store,
            github=self.client,
            budget=self.budget,
            clock=self.clock,
            apps=[self.registered],
        )

    def calls(self, part: str = "") -> list[tuple[str, str]]:
        """The requests to GitHub since the last call."""
        answers = self.fake.truth.answers
        found = [(each.method, each.path) for each in answers if part in each.path]
        answers.clear()
        return found

    async def known(self) -> set[int]:
        return {row[0] for row in await self.rows("SELECT id FROM jobs")}

    async def state(self, job: Job) -> str | None:
        rows = await self.rows("SELECT state FROM jobs WHERE id = $1", job.id)
        return rows[0][0] if rows else None

    async def rows(self, query: str, *args: object) -> Sequence[tuple[Any, ...]]:
        async with self.database.transaction() as connection:
            return [tuple(row) for row in await connection.fetch(query, *args)]

    def _stored(self, outgoing: Outgoing) -> NewDelivery:
        return NewDelivery(
            host=self.registered.host,
            app=self.registered.app,
            guid=outgoing.headers["X-GitHub-Delivery"],
            event=outgoing.headers["X-GitHub-Event"],
            action=None,
            installation=self.installation.id,
            payload=outgoing.body,
        )


@asynccontextmanager
async def missed_webhooks(database: Database) -> AsyncIterator[Missed]:
    clock = AheadClock()
    fake = FakeGitHub(now=clock.now, rng=Random(1))
    with tempfile.TemporaryDirectory() as directory:
        key_file = Path(directory) / "app.pem"
        key_file.write_text(_KEY)
        async with serving(fake) as url:
            app = fake.accounts.add_app("paddock", public_keys=[public_half(_KEY)])
            acme = fake.accounts.add_organization("acme")
            site = fake.accounts.add_repository(acme, "site")
            apps = Apps(
                [
                    GitHubApp(
                        host=_HOST,
                        app_id=GitHubAppId(app.id),
                        api_url=url,
                        private_key_file=key_file,
                        webhook_secrets=(SecretStr(app.webhook_secret),),
                        limits=BudgetLimits(),
                    )
                ]
            )
            budget = MemoryBudget(clock, apps.limits)
            client = GitHubClient(apps, clock=clock, budget=budget)
            try:
                yield await _begin(
                    clock, database, fake, app, site, apps=apps, client=client, budget=budget
                )
            finally:
                await client.aclose()


async def _begin(
    clock: AheadClock,
    database: Database,
    fake: FakeGitHub,
    app: App,
    site: Repository,
    *,
    apps: Apps,
    client: GitHubClient,
    budget: MemoryBudget,
) -> Missed:
    store = PgStore(database, clock=clock, ids=SeededIds(), actor="test")
    [registered] = await register_apps(
        store, {each.key: (each.api_url, MintBudget()) for each in apps}
    )
    parts: dict[str, Any] = {"store": store, "github": client, "clock": clock}
    parts["apps"] = [registered]
    installations = Installations(**parts, new_account=NewAccount())
    writer = DeliveryWriter(store)
    reads = InstallationReads(store=store, installations=installations, clock=clock, writer=writer)
    scene = Missed(
        clock=clock,
        database=database,
        fake=fake,
        app=app,
        installation=fake.accounts.install(app, site.owner),
        site=site,
        client=client,
        budget=budget,
        store=store,
        registered=registered,
        applier=DeliveryApplier(store=store, reads=reads, writer=writer, wakeups=NoWakeups()),
        reads=reads,
        redelivery=Redelivery(**parts, budget=budget),
        comparison=Comparison(**parts, budget=budget),
    )
    fake.hooks.sink = scene.take
    await store.apply_pool(
        PoolFacts(
            name="linux",
            labels=LABELS,
            shape="gated",
            cost=Resources(),
            max_runners=None,
            spec="{}",
            spec_hash="v1",
        )
    )
    await installations.read_all()
    await scene.redelivery.round()  # the cursor begins here
    clock.advance(60)
    scene.calls()
    return scene
