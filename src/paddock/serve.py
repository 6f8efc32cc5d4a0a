"""A replica of paddock: its parts, and the order in which they start and stop.

HTTP is the last to start and the first to stop, so that no request needs a part that is not running.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from typing import Final, assert_never

from starlette.applications import Starlette
from starlette.types import ASGIApp

from paddock.dispatch.inbox import Inbox
from paddock.dispatch.installations import NewAccount, register_apps
from paddock.dispatch.sealing import Sealer
from paddock.domain.accounts import MintBudget
from paddock.domain.github.budgets import WRITE_POINTS
from paddock.domain.recovery.thresholds import RecoveryTerms
from paddock.github.apps import Apps, GitHubApp
from paddock.github.client import GitHubClient
from paddock.github.webhooks import Signatures
from paddock.listener import ListenerLimits, fitted, is_loopback
from paddock.ports import Clock
from paddock.replica import Dispatching, FleetParts, Replica, dispatching, intake, trust
from paddock.services import Service, Troubles, running
from paddock.settings import FleetKind, Settings, SettingsError
from paddock.store.budgets import PgBudget
from paddock.store.clock import DatabaseClock, asking
from paddock.store.database import Database
from paddock.store.heartbeat import Heartbeat
from paddock.store.leadership import led
from paddock.store.reading import PgReading
from paddock.store.store import PgStore
from paddock.store.wakeups import PgWakeups
from paddock.system import SystemClock, SystemIds
from paddock.web.app import Application
from paddock.web.console import Console
from paddock.web.console_setup import open_console
from paddock.web.health import Readiness
from paddock.web.metrics import Metrics
from paddock.web.pods import PodEndpoints
from paddock.web.receiver import Receiver
from paddock.web.server import CannotListen, bind, serving, url_of
from paddock.web.shown_settings import shown
from paddock.web.tls import (
    CertificateFiles,
    CertificateRejected,
    ServerCertificate,
    load_certificate,
)

_LOCAL: Final = (
    "PADDOCK_FLEET=local is `paddock up`: `paddock serve` is for a cluster, "
    "with PADDOCK_FLEET=kube."
)
_UNSEALED: Final = (
    "No sealing key is set, and JITs are not stored in the clear: set PADDOCK_SEALING_KEYS to the "
    "output of `head -c 32 /dev/urandom | base64`, the same for all replicas."
)

#: Makes the fleet whose Pods reach paddock at the given URL.
OpenFleet = Callable[[str], Awaitable[FleetParts]]


def replica_name() -> str:
    """This replica as the actor of events; in Kubernetes the host name is the Pod's name."""
    return f"{socket.gethostname()}-{os.getpid()}"


def tune_garbage_collection() -> None:
    """Make the garbage collector run less, for a process that only serves. Its loaded modules stay, and
    a burst keeps thousands of small objects alive for some milliseconds each. Scanning all of them
    again and again, without finding garbage, took 7 % of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def _intake(replica: Replica) -> Sequence[Service]:
    return (*intake(replica), trust(replica))


async def serve(
    database: Database,
    settings: Settings,
    *,
    ready: Callable[[str], None],
    apps: Apps | None = None,
    fleet: OpenFleet | None = None,
    sealer: Sealer | None = None,
    services: Callable[[Replica], Sequence[Service]] = _intake,
    open_to_this_machine: bool = False,
) -> None:
    """Serve until cancelled. `ready` is called with the URL as soon as requests are answered. `fleet`
    makes the fleet whose Pods reach paddock at that URL; without it no Pod can ask for work.
    `open_to_this_machine`: clients on the loopback may read without a token."""
    apps = configured_apps(settings) if apps is None else apps
    signatures = Signatures(apps)
    certificate = _certificate(settings)
    with ExitStack() as sockets:
        listener = sockets.enter_context(_listener(settings.listen_address))
        pod_listeners = [
            each and sockets.enter_context(_listener(each))
            for each in (settings.pods_address, settings.vitals_address)
        ]
        async with AsyncExitStack() as stack:
            url = url_of(listener)
            replica = await stack.enter_async_context(_replica(database, settings, apps))
            inbox = await stack.enter_async_context(Inbox.open(replica.store, replica.clock))
            work = None
            if fleet is not None:
                parts = await fleet(url)
                work = dispatching(replica, parts, sealer or _sealer(settings))
            endpoints = _endpoints(work, replica) if work else None
            console = await stack.enter_async_context(
                _console(database, settings, replica, open_to_this_machine=open_to_this_machine)
            )
            troubles = Troubles(replica.clock)
            readiness = Readiness(database, replica.clock, troubles)
            application = Application(
                receiver=Receiver(
                    inbox=inbox,
                    signatures=signatures,
                    apps={app.key: app for app in replica.apps},
                    clock=replica.clock,
                ),
                readiness=readiness,
                metrics=Metrics(PgReading(database, replica.clock), replica.clock),
                # With TLS, Pods can get a JIT only through the TLS listener.
                pods=None if certificate and settings.fleet is FleetKind.KUBE else endpoints,
                console=console,
            )
            beside = (
                *services(replica),
                *(work.services if work else ()),
                Service("live", console.live.run),
                *((Service("certificate", certificate.run),) if certificate else ()),
            )
            await stack.enter_async_context(running(beside, replica.clock, troubles))
            limits = _limits(
                settings, listeners=1 + sum(1 for pod_listener in pod_listeners if pod_listener)
            )
            await stack.enter_async_context(serving(application, listener, limits=limits))
            for pod_listener, answers in zip(
                pod_listeners, _pod_applications(endpoints), strict=True
            ):
                if pod_listener:
                    await stack.enter_async_context(
                        serving(answers, pod_listener, limits=limits, certificate=certificate)
                    )
            stack.push_async_callback(console.live.close)
            if work:
                stack.push_async_callback(work.dispatcher.close)
            stack.callback(readiness.stop)
            ready(url)
            await asyncio.Event().wait()


@asynccontextmanager
async def _replica(database: Database, settings: Settings, apps: Apps) -> AsyncIterator[Replica]:
    async with (
        Heartbeat.running(database, SystemClock()),
        DatabaseClock.running(asking(database), SystemClock()) as clock,
        _with_clock(database, settings, apps, clock) as replica,
    ):
        yield replica


@asynccontextmanager
async def _with_clock(
    database: Database, settings: Settings, apps: Apps, clock: Clock
) -> AsyncIterator[Replica]:
    ids = SystemIds()
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
                lead=partial(led, database=database, clock=clock),
                recovery=_recovery(settings),
            )
    finally:
        await github.aclose()


@asynccontextmanager
async def _console(
    database: Database, settings: Settings, replica: Replica, *, open_to_this_machine: bool
) -> AsyncIterator[Console]:
    async with open_console(
        database,
        settings.dashboard,
        shown=tuple(shown(settings)),
        wakeups=replica.wakeups,
        clock=replica.clock,
        ids=replica.ids,
        recovery=replica.recovery,
        open_to_this_machine=open_to_this_machine and is_loopback(settings.listen_address[0]),
        secret=settings.sealing[0] if settings.sealing else replica.ids.secret().encode(),
    ) as console:
        yield console


def check_settings(settings: Settings) -> None:
    """Before anything is started, report all settings that `paddock serve` lacks at once."""
    mistakes: list[str] = []
    try:
        configured_apps(settings)
    except SettingsError as error:
        mistakes += error.mistakes
    try:
        if files := certificate_files(settings):
            load_certificate(files)
    except SettingsError as error:
        mistakes += error.mistakes
    except CertificateRejected as error:
        mistakes.append(str(error))
    match settings.fleet:
        case FleetKind.LOCAL:
            mistakes.append(_LOCAL)
        case FleetKind.KUBE:
            from paddock.fleet.kube.setup import placement

            if not settings.sealing:
                mistakes.append(_UNSEALED)
            try:
                placement(settings.kube)
            except ValueError as error:
                mistakes.append(f"{str(error).rstrip('.')}.")
        case None:
            pass
        case _:
            assert_never(settings.fleet)
    if mistakes:
        raise SettingsError(*mistakes)


@asynccontextmanager
async def configured_fleet(settings: Settings) -> AsyncIterator[OpenFleet | None]:
    """The fleet that PADDOCK_FLEET names; `None` if it is not set."""
    match settings.fleet:
        case None:
            yield None
        case FleetKind.LOCAL:
            raise SettingsError(_LOCAL)
        case FleetKind.KUBE:
            # Imported only if needed: it takes seven megabytes.
            from paddock.fleet.kube.setup import open_kube

            _sealer(settings)  # raises before anything is started
            async with AsyncExitStack() as stack:
                try:
                    kube = await stack.enter_async_context(
                        open_kube(settings.kube, clock=SystemClock())
                    )
                except ValueError as error:
                    raise SettingsError(f"{str(error).rstrip('.')}.") from None

                async def parts(_url: str) -> FleetParts:
                    return FleetParts(
                        fleet=kube.fleet,
                        reviewer=kube.reviewer,
                        end_records=kube.fleet,
                        pools=kube.pools,
                        trial=kube.fleet,
                        server=settings.kube.server_url or "",
                    )

                yield parts
        case _:
            assert_never(settings.fleet)


def _recovery(settings: Settings) -> RecoveryTerms:
    given = settings.recovery
    return RecoveryTerms(
        thresholds=given.thresholds,
        dry_run=given.dry_run,
        dry_run_rules=frozenset(given.dry_run_rules),
        per_rule=given.actions_per_rule,
        per_round=given.actions_per_round,
        questions=given.questions_per_round,
    )


def _endpoints(work: Dispatching, replica: Replica) -> PodEndpoints:
    return PodEndpoints(
        dispatcher=work.dispatcher,
        identities=work.identities,
        store=replica.store,
        clock=replica.clock,
    )


def _pod_applications(endpoints: PodEndpoints | None) -> tuple[ASGIApp, ASGIApp]:
    """The applications at the addresses that only Pods reach."""
    if endpoints is None:
        return Starlette(), Starlette()
    return (
        endpoints.before(Starlette(routes=endpoints.routes)),
        Starlette(routes=endpoints.vitals_routes),
    )


def _limits(settings: Settings, *, listeners: int) -> ListenerLimits:
    limits = ListenerLimits(
        connections=settings.max_connections, waiting_per_peer=settings.max_waiting_per_peer
    )
    return fitted(limits, listeners=listeners)


def _listener(address: tuple[str, int]) -> socket.socket:
    try:
        return bind(address)
    except CannotListen as error:
        raise SettingsError(str(error)) from None


def certificate_files(settings: Settings) -> CertificateFiles | None:
    """The files for the listeners for Pods; `None` if those run without TLS. Raises SettingsError."""
    certificate, key = settings.pods_certificate_file, settings.pods_key_file
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise SettingsError(
            "PADDOCK_PODS_CERTIFICATE_FILE and PADDOCK_PODS_KEY_FILE go together: set both or none."
        )
    if not (settings.pods_listen or settings.vitals_listen):
        raise SettingsError(
            "PADDOCK_PODS_CERTIFICATE_FILE is for PADDOCK_PODS_LISTEN and PADDOCK_VITALS_LISTEN: set "
            "at least the first."
        )
    return CertificateFiles(certificate=certificate, key=key)


def _certificate(settings: Settings) -> ServerCertificate | None:
    try:
        files = certificate_files(settings)
        return ServerCertificate(files, SystemClock()) if files else None
    except CertificateRejected as error:
        raise SettingsError(str(error)) from None


def _mint_budget(app: GitHubApp) -> MintBudget:
    return MintBudget(
        per_minute=app.limits.points_per_minute // WRITE_POINTS, per_hour=app.limits.mints_per_hour
    )


def _sealer(settings: Settings) -> Sealer:
    keys = settings.sealing
    if not keys:
        raise SettingsError(_UNSEALED)
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
