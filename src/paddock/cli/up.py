"""`paddock up`"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

import paddock
from paddock.cli.address import AlreadyRunning, published, refuse_a_second
from paddock.cli.local import LocalRunners, local_runners
from paddock.cli.options import Config, DataDir
from paddock.cli.output import say, show
from paddock.cli.progress import Screen
from paddock.cli.run_command import run
from paddock.cli.store import connected
from paddock.demo.chaos import Chaos
from paddock.demo.demo import HOST, POOL, QUICK_RECOVERY, SPEEDUP, Demo, Mode
from paddock.demo.incidents import IncidentContext, SessionBlocker
from paddock.dispatch.sealing import KEY_BYTES, Sealer
from paddock.fleet.local.fleet import GRACE
from paddock.fleet.local.reviewer import LocalReviewer
from paddock.forensics.post_mortem import LOG_CAPTURED
from paddock.github.apps import Apps
from paddock.pools.spec import parse_pools
from paddock.ports.errors import Contended, DatabaseUnavailable, OutcomeUnknown
from paddock.replica import FleetParts
from paddock.serve import configured_apps, serve
from paddock.services import Service, supervise
from paddock.settings import LogLevel, Settings, SettingsError, load
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.errors import DirectoryInUse
from paddock.store.migrate import migrate
from paddock.store.reading import PgReading
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds

#: In chaos a Pod that does not react to its deletion is killed after this, not after half a minute.
_CHAOS_GRACE: Final = 6.0

_ATTEMPTS: Final = 5
#: A file in the data directory that records what chaos did to which object.
_CHAOS: Final = "chaos.jsonl"

#: Events that the screen replaces: it shows endings with their reasons, and `paddock why` the log tail.
_ON_THE_SCREEN: Final = frozenset({LOG_CAPTURED})

#: For a real GitHub, if there is no pool yet: as many runners as this machine has processors, with the
#: labels of GitHub's own runners.
_POOL: Final = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {{name: local}}
spec:
  labels: [self-hosted, {system}, {machine}]
  resources: {{vcpu: 1, memory: 2Gi}}
  minIdle: 1
  maxRunners: {processors}
"""
_MACHINES: Final = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}

DemoMode = Annotated[
    Mode | None,
    typer.Option("--demo", help="; ".join(f"{mode}: {mode.tells}" for mode in Mode) + "."),
]


def up(demo: DemoMode = None, config: Config = None, data_dir: DataDir = None) -> None:
    """Run all of paddock on this machine, with a PostgreSQL of its own.

    Nothing else has to be installed. Without a GitHub App in the settings it starts a fake
    GitHub with some jobs, and runs them as processes of this machine; `--demo chaos` breaks
    things, and shows how paddock detects and repairs them. With PADDOCK_LOCAL_RUNNER, the directory
    of an unpacked actions/runner, that program runs them. With an App too, it serves real jobs.

    Ctrl-C stops everything it started; the next start uses the same data directory.

    Examples:

        paddock up

        paddock up --demo chaos

        paddock up --data-dir ~/paddock-trial
    """
    settings = load(config, data_dir=data_dir)
    if settings.github.all_apps:
        _check_for_a_real_github(settings, demo)
    mode = demo or Mode.STEADY
    if mode is Mode.CHAOS and settings.local.runner is not None:
        raise SettingsError(
            "--demo chaos needs runners that die when they are told to: unset PADDOCK_LOCAL_RUNNER, or "
            "choose another demonstration."
        )
    if "log_level" not in settings.model_fields_set:
        # The screen already shows what happens.
        settings = settings.model_copy(update={"log_level": LogLevel.WARNING})
    if mode is Mode.CHAOS:
        settings = _with_quick_recovery(settings)
    refuse_a_second(settings.data_dir.expanduser())
    run(_up(settings, mode), settings, untold=_ON_THE_SCREEN)


def _check_for_a_real_github(settings: Settings, demo: Mode | None) -> None:
    if demo is not None:
        raise SettingsError(
            "--demo is for a GitHub of our own, and the settings name a GitHub App: leave one of "
            "them out."
        )
    if settings.local.runner is None:
        raise SettingsError(
            "The settings name a GitHub App, and no runner for its jobs: unpack a release of "
            "actions/runner, and set PADDOCK_LOCAL_RUNNER to that directory. Jobs would run as "
            "processes of this machine, without any isolation (docs/local.md)."
        )


def _with_quick_recovery(settings: Settings) -> Settings:
    """The settings with quicker recovery; values that the operator has set stay."""
    recovery = settings.recovery
    given = recovery.model_fields_set
    quicker = {name: value for name, value in QUICK_RECOVERY.items() if name not in given}
    return settings.model_copy(update={"recovery": recovery.model_copy(update=quicker)})


async def _up(settings: Settings, mode: Mode) -> None:
    try:
        async with AsyncExitStack() as stack:
            await _run(settings, mode, stack)
    except asyncio.CancelledError:
        show("stopped")
    except DirectoryInUse as error:
        raise AlreadyRunning(error.message) from None
    except ExceptionGroup as failures:
        raise _first(failures) from None


def _first(failures: ExceptionGroup[Exception]) -> Exception:
    """The first failure: it cancelled the other tasks, so only it is reported."""
    failure = failures.exceptions[0]
    return _first(failure) if isinstance(failure, ExceptionGroup) else failure


async def _run(settings: Settings, mode: Mode, stack: AsyncExitStack) -> None:
    show(f"paddock {paddock.__version__}")
    server: EmbeddedPostgres | None = None
    if settings.database_url:
        url = settings.database_url.get_secret_value()
    else:
        server = EmbeddedPostgres(settings.data_dir, say=say)
        url = (await stack.enter_async_context(server)).url
    database = await stack.enter_async_context(connected(url, settings, name="paddock up"))
    await migrate(database, say=say)
    publish = stack.enter_context(published(settings.data_dir.expanduser()))
    show(f"  PostgreSQL  {database.shown}")
    demo, apps = await _github(settings, mode, stack)
    chaos = demo is not None and mode is Mode.CHAOS
    runners = await stack.enter_async_context(
        local_runners(
            settings,
            environment=SPEEDUP if chaos else {},
            grace=_CHAOS_GRACE if chaos else GRACE,
        )
    )
    show(f"  runners     {runners.described}")
    async with asyncio.TaskGroup() as group:
        if server is not None:
            group.create_task(server.wait())
        up = _Up(settings, database, apps, runners, demo)
        await up.serve(publish)


async def _github(
    settings: Settings, mode: Mode, stack: AsyncExitStack
) -> tuple[Demo | None, Apps]:
    """The Apps of the settings, or a fake GitHub."""
    if settings.github.all_apps:
        apps = configured_apps(settings)
        show(f"  GitHub      {', '.join(str(app.key) for app in apps)}")
        return None, apps
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    demo, app = await stack.enter_async_context(Demo.running(settings.data_dir, mode))
    show(f"  GitHub      a demonstration of our own, {app.api_url}: {mode.tells}")
    return demo, Apps.from_settings([app])


class _Up:
    def __init__(
        self,
        settings: Settings,
        database: Database,
        apps: Apps,
        runners: LocalRunners,
        demo: Demo | None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._apps = apps
        self._runners = runners
        self._demo = demo
        self._clock, self._ids = SystemClock(), SystemIds()
        self._store = PgStore(database, clock=self._clock, ids=self._ids, actor="paddock up")
        self._screen = Screen(PgReading(database, self._clock), self._clock)

    async def serve(self, publish: Callable[[str], None]) -> None:
        sealer = Sealer(self._settings.sealing or [_own_key(self._settings.data_dir)])
        await self._patiently(self._prepare)

        async with asyncio.TaskGroup() as group:

            def ready(url: str) -> None:
                publish(url)
                show(f"  dashboard   {url}")
                show("Ctrl-C stops it.")
                if self._demo is not None:
                    self._demo.send_webhooks_to(f"{url}/webhooks/github")
                    group.create_task(self._demo.work())
                    if self._demo.mode is Mode.CHAOS:
                        chaos = Service("chaos", partial(self._chaos, self._demo))
                        group.create_task(supervise(chaos, self._clock))
                group.create_task(self._screen.follow())

            await serve(
                self._database,
                self._settings,
                ready=ready,
                apps=self._apps,
                fleet=self._fleet,
                sealer=sealer,
                open_to_this_machine=True,
            )

    async def _patiently(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """Retry: on an overloaded machine our own database may close slow connections. `prepare` may
        run more than once."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await prepare()
            except (DatabaseUnavailable, OutcomeUnknown, Contended):
                await self._clock.sleep(1.0)
        return await prepare()

    async def _prepare(self) -> None:
        store = self._store
        if self._demo is not None:
            (self._settings.data_dir.expanduser() / _CHAOS).unlink(missing_ok=True)
            await store.apply_pools(parse_pools(POOL, name="the demonstration"))
            await store.abandon_jobs(HOST, why="the demonstration's GitHub starts again")
        elif not await store.list_pools():
            [pool] = parse_pools(_own_pool(), name="this machine")
            await store.apply_pools([pool])
            show(f"  pool        {pool.name}: {', '.join(pool.labels)}")

    async def _fleet(self, url: str) -> FleetParts:
        fleet = await self._runners.fleet()
        await fleet.announce(url)
        return FleetParts(fleet=fleet, reviewer=LocalReviewer(self._runners.root, self._clock))

    async def _chaos(self, demo: Demo) -> None:
        around = IncidentContext(
            demo=demo,
            store=self._store,
            fleet=await self._runners.fleet(),
            runners=self._runners.root,
            clock=self._clock,
            ids=self._ids,
            limited=self._runners.limited,
            mute=SessionBlocker(demo.fake),
        )
        await Chaos(
            around=around,
            reading=PgReading(self._database, self._clock),
            thresholds=self._settings.recovery.thresholds,
            say=lambda incident, what: self._screen.say("chaos", f"{incident}: {what}"),
            record=self._settings.data_dir.expanduser() / _CHAOS,
        ).run()


def _own_pool() -> str:
    machine = platform.machine().lower()
    return _POOL.format(
        system={"darwin": "macos"}.get(platform.system().lower(), platform.system().lower()),
        machine=_MACHINES.get(machine, machine),
        processors=os.cpu_count() or 1,
    )


def _own_key(directory: Path) -> bytes:
    """Created once: a later start must be able to open what it sealed."""
    path = directory.expanduser() / "sealing-key"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
    return path.read_bytes()
