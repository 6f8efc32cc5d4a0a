"""A replica of paddock, put together: what it is made of, and in which order it starts and stops.

HTTP is the last to start and the first to stop, so that no request meets a part that is not there.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from paddock.dispatch.comparison import Comparison
from paddock.dispatch.debts import DebtCollector
from paddock.dispatch.deliveries import DeliveryApplier
from paddock.dispatch.dispatcher import Dispatcher
from paddock.dispatch.groups import RunnerGroups
from paddock.dispatch.housekeeping import Housekeeping
from paddock.dispatch.identity import Identities
from paddock.dispatch.inbox import Inbox
from paddock.dispatch.installations import (
    Installations,
    NewAccount,
    RegisteredApp,
    register_apps,
)
from paddock.dispatch.minting import Minter
from paddock.dispatch.redelivery import Redelivery
from paddock.dispatch.refusals import RefusalReview
from paddock.dispatch.sealing import Sealer
from paddock.dispatch.stamping import Stamper
from paddock.domain.accounts import MintBudget
from paddock.domain.budgets import WRITE_POINTS
from paddock.forensics.concluding import Conclusion
from paddock.github.apps import Apps, GitHubApp
from paddock.github.client import GitHubClient
from paddock.github.webhooks import Signatures
from paddock.pools.keeper import Keeper
from paddock.ports import Clock, Fleet, Ids, Reviewer, Wakeups
from paddock.services import Service, running
from paddock.settings import Settings, SettingsError
from paddock.store.budgets import PgBudget
from paddock.store.database import Database
from paddock.store.leadership import led
from paddock.store.store import PgStore
from paddock.store.wakeups import PgWakeups
from paddock.system import SystemClock, SystemIds
from paddock.web.app import Application
from paddock.web.health import Readiness
from paddock.web.pods import PodEndpoints
from paddock.web.receiver import Receiver
from paddock.web.server import CannotListen, bind, serving, url_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetParts:
    """Where runners live, and who can tell them by their tokens."""

    fleet: Fleet
    reviewer: Reviewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What services are made from."""

    database: Database
    store: PgStore
    wakeups: Wakeups
    clock: Clock
    ids: Ids
    apps: Sequence[RegisteredApp]
    github: GitHubClient
    budget: PgBudget
    new_account: NewAccount


def replica_name() -> str:
    """Who did it, in every event; a Pod's host name is its own name."""
    return f"{socket.gethostname()}-{os.getpid()}"


def intake(replica: Replica) -> Sequence[Service]:
    """From stored deliveries to rows, and whatever no webhook told."""
    store, github, clock = replica.store, replica.github, replica.clock
    installations = Installations(
        store=store,
        github=github,
        clock=clock,
        apps=list(replica.apps),
        new_account=replica.new_account,
    )
    applier = DeliveryApplier(
        store=store, installations=installations, clock=clock, wakeups=replica.wakeups
    )
    groups = RunnerGroups(store=store, github=github, apps=replica.apps, wakeups=replica.wakeups)
    redelivery = Redelivery(
        store=store, github=github, budget=replica.budget, clock=clock, apps=replica.apps
    )
    comparison = Comparison(
        store=store, github=github, budget=replica.budget, clock=clock, apps=replica.apps
    )
    single = (
        Service("installations", installations.run),
        Service("runner groups", groups.run),
        Service("refusals", RefusalReview(store=store, wakeups=replica.wakeups).run),
        Service("redelivery", redelivery.run),
        Service("comparison", comparison.run),
        Service("debts", DebtCollector(store=store, github=github, clock=clock).run),
        Service("housekeeping", Housekeeping(store=store, clock=clock).run),
    )
    return (Service("deliveries", applier.run), _single("intake", single, replica))


def _single(name: str, services: Sequence[Service], replica: Replica) -> Service:
    """Services of which one replica's are enough."""

    async def all_of_them() -> None:
        async with running(services, replica.clock):
            await asyncio.Event().wait()

    return Service(name, led(name, all_of_them, database=replica.database, clock=replica.clock))


@dataclass(frozen=True, slots=True)
class Dispatching:
    """What Pods ask, and what answers them."""

    dispatcher: Dispatcher
    endpoints: PodEndpoints
    services: Sequence[Service]


def dispatching(replica: Replica, parts: FleetParts, sealer: Sealer) -> Dispatching:
    store, clock = replica.store, replica.clock
    minter = Minter(store=store, github=replica.github, sealer=sealer, clock=clock, ids=replica.ids)
    dispatcher = Dispatcher(
        store=store, minter=minter, sealer=sealer, clock=clock, wakeups=replica.wakeups
    )
    identities = Identities(parts.reviewer, clock)
    keeper = Keeper(
        store=store,
        fleet=parts.fleet,
        conclusion=Conclusion(store=store, fleet=parts.fleet, clock=clock),
        stamper=Stamper(fleet=parts.fleet, clock=clock),
        identities=identities,
        clock=clock,
        ids=replica.ids,
        wakeups=replica.wakeups,
    )
    return Dispatching(
        dispatcher,
        PodEndpoints(dispatcher=dispatcher, identities=identities, store=store, clock=clock),
        (
            Service("dispatch", dispatcher.run),
            _single("pools", (Service("keeper", keeper.run),), replica),
        ),
    )


def spare_the_collector() -> None:
    """For a process that does nothing but serve: what it has loaded stays, and a burst keeps thousands
    of small things alive for some milliseconds each. Looking at all of them again and again for
    garbage that is not there took 7 % of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


async def serve(
    database: Database,
    settings: Settings,
    *,
    ready: Callable[[str], None],
    apps: Apps | None = None,
    fleet: Callable[[str], Awaitable[FleetParts]] | None = None,
    sealer: Sealer | None = None,
    services: Callable[[Replica], Sequence[Service]] = intake,
) -> None:
    """Until cancelled. `ready` is told the URL as soon as requests are answered; `fleet` makes the
    fleet that finds paddock there. Without one nobody can ask for work."""
    apps = configured_apps(settings) if apps is None else apps
    signatures = Signatures(apps)
    with _listener(settings) as listener:
        async with AsyncExitStack() as stack:
            url = url_of(listener)
            replica = await stack.enter_async_context(_replica(database, settings, apps))
            inbox = await stack.enter_async_context(Inbox.open(replica.store, replica.clock))
            work = None
            if fleet is not None:
                parts = await fleet(url)
                work = dispatching(replica, parts, sealer or _sealer(settings))
            application = Application(
                receiver=Receiver(
                    inbox=inbox,
                    signatures=signatures,
                    apps={app.key: app for app in replica.apps},
                    clock=replica.clock,
                ),
                readiness=Readiness(database, replica.clock),
                pods=work.endpoints if work else None,
            )
            beside = (*services(replica), *(work.services if work else ()))
            await stack.enter_async_context(running(beside, replica.clock))
            await stack.enter_async_context(serving(application, listener))
            if work:
                stack.push_async_callback(work.dispatcher.close)
            ready(url)
            await asyncio.Event().wait()


@asynccontextmanager
async def _replica(database: Database, settings: Settings, apps: Apps) -> AsyncIterator[Replica]:
    clock, ids = SystemClock(), SystemIds()
    store = PgStore(database, clock=clock, ids=ids, actor=replica_name())
    registered = await register_apps(
        store, {app.key: (app.api_url, _mint_budget(app)) for app in apps}
    )
    budget = PgBudget(
        database,
        clock=clock,
        apps={app.key: (app.app, apps[app.key].limits) for app in registered},
    )
    github = GitHubClient(apps, clock=clock, budget=budget)
    try:
        async with PgWakeups.listening(database, clock) as wakeups:
            yield Replica(
                database=database,
                store=store,
                wakeups=wakeups,
                clock=clock,
                ids=ids,
                apps=registered,
                github=github,
                budget=budget,
                new_account=NewAccount(
                    limits=settings.accounts.limits, weight=settings.accounts.weight
                ),
            )
    finally:
        await github.aclose()


def _listener(settings: Settings) -> socket.socket:
    try:
        return bind(settings.listen_address)
    except CannotListen as error:
        raise SettingsError(str(error)) from None


def _mint_budget(app: GitHubApp) -> MintBudget:
    return MintBudget(
        per_minute=app.limits.points_per_minute // WRITE_POINTS, per_hour=app.limits.mints_per_hour
    )


def _sealer(settings: Settings) -> Sealer:
    keys = settings.sealing
    if not keys:
        raise SettingsError(
            "No sealing key is set, and JITs are not stored in the clear: set PADDOCK_SEALING_KEYS to "
            "the output of `head -c 32 /dev/urandom | base64`, the same for all replicas."
        )
    return Sealer(keys)


def configured_apps(settings: Settings) -> Apps:
    try:
        apps = Apps.from_settings(settings.github.all_apps)
        Signatures(apps)
    except ValueError as error:
        raise SettingsError(f"[[github.apps]]: {str(error).rstrip('.')}.") from None
    if not len(apps):
        raise SettingsError(
            "No GitHub App is configured, so no webhook could be believed: set PADDOCK_GITHUB_APP_ID, "
            "PADDOCK_GITHUB_PRIVATE_KEY_FILE and PADDOCK_GITHUB_WEBHOOK_SECRET, or write "
            "[[github.apps]] in the settings file."
        )
    return apps
