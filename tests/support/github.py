"""A fake GitHub over HTTP with the real client, and its webhooks in a store."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pydantic import SecretStr

from paddock.dispatch.deliveries import DeliveryApplier
from paddock.dispatch.delivery_writer import DeliveryWriter
from paddock.dispatch.installation_reads import InstallationReads
from paddock.dispatch.installations import Installations, NewAccount, RegisteredApp, register_apps
from paddock.domain.accounts import MintBudget
from paddock.domain.github.budgets import BudgetLimits
from paddock.domain.github.deliveries import NewDelivery
from paddock.domain.github.objects import GitHubAppId, GitHubHost
from paddock.domain.limits import Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.fakes.github import FakeGitHub
from paddock.fakes.github.hooks import Outgoing
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.records import Account, App, Installation, Repository
from paddock.fakes.github.server import serving, wall_clock
from paddock.github.apps import Apps, GitHubApp
from paddock.github.budget import MemoryBudget
from paddock.github.client import GitHubClient
from paddock.ports import Topic
from paddock.store.database import Database
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds

HOST = GitHubHost("github.test")

#: A pool for jobs that ask for `self-hosted` and `linux`.
LINUX = PoolFacts(
    name="linux",
    labels=("self-hosted", "linux"),
    shape="gated",
    cost=Resources(),
    max_runners=None,
    spec="{}",
    spec_hash="v1",
)

_KEY = make_private_key()


class NoWakeups:
    """The test calls rounds itself."""

    def subscribe(self, *topics: Topic) -> NoWakeups:
        return self

    async def wait(self, timeout: float) -> frozenset[Topic]:
        return frozenset()


@dataclass
class GitHubScene:
    fake: FakeGitHub
    app: App
    acme: Account
    site: Repository
    installation: Installation
    client: GitHubClient
    store: PgStore
    registered: RegisteredApp
    installations: Installations
    applier: DeliveryApplier
    reads: InstallationReads
    sent: list[Outgoing] = field(default_factory=list)

    async def deliver(self, *outgoing: Outgoing) -> None:
        """Stores webhooks as the receiver would: by default all that were sent since the last call."""
        chosen = list(outgoing) or self.take()
        await self.store.store_deliveries([self.stored(each) for each in chosen])

    async def apply(self) -> None:
        """Applies all stored webhooks, and all readings of GitHub that they need."""
        while await self.applier.round() or await self.reads.read_next():
            pass

    def take(self) -> list[Outgoing]:
        taken, self.sent[:] = list(self.sent), []
        return taken

    def stored(self, outgoing: Outgoing) -> NewDelivery:
        headers = {name.lower(): value for name, value in outgoing.headers.items()}
        return NewDelivery(
            host=self.registered.host,
            app=self.registered.app,
            guid=headers["x-github-delivery"],
            event=headers["x-github-event"],
            action=None,
            installation=self.installation.id,
            payload=outgoing.body,
        )


@asynccontextmanager
async def github_scene(database: Database) -> AsyncIterator[GitHubScene]:
    fake = FakeGitHub(now=wall_clock, rng=Random(1))
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as directory:
        key_file = Path(directory) / "app.pem"
        key_file.write_text(_KEY)
        async with serving(fake) as url:
            sent: list[Outgoing] = []

            def keep(outgoing: Outgoing) -> int:
                sent.append(outgoing)
                return 200

            fake.hooks.sink = keep
            app = fake.accounts.add_app("paddock", public_keys=[public_half(_KEY)])
            acme = fake.accounts.add_organization("acme")
            site = fake.accounts.add_repository(acme, "site")
            installation = fake.accounts.install(app, acme)
            apps = Apps(
                [
                    GitHubApp(
                        host=HOST,
                        app_id=GitHubAppId(app.id),
                        api_url=url,
                        private_key_file=key_file,
                        webhook_secrets=(SecretStr(app.webhook_secret),),
                        limits=BudgetLimits(),
                    )
                ]
            )
            client = GitHubClient(apps, clock=clock, budget=MemoryBudget(clock))
            store = PgStore(database, clock=clock, ids=SystemIds(), actor="test")
            [registered] = await register_apps(
                store, {each.key: (each.api_url, MintBudget()) for each in apps}
            )
            installations = Installations(
                store=store,
                github=client,
                clock=clock,
                apps=[registered],
                new_account=NewAccount(),
            )
            writer = DeliveryWriter(store)
            reads = InstallationReads(
                store=store, installations=installations, clock=clock, writer=writer
            )
            applier = DeliveryApplier(store=store, reads=reads, writer=writer, wakeups=NoWakeups())
            try:
                yield GitHubScene(
                    fake=fake,
                    app=app,
                    acme=acme,
                    site=site,
                    installation=installation,
                    client=client,
                    store=store,
                    registered=registered,
                    installations=installations,
                    applier=applier,
                    reads=reads,
                    sent=sent,
                )
            finally:
                await client.aclose()
