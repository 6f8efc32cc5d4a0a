"""`paddock up`"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import paddock
from paddock.cli.options import Config, DataDir
from paddock.cli.output import say, show
from paddock.cli.progress import follow
from paddock.cli.running import run
from paddock.cli.store import connected
from paddock.dispatch.sealing import KEY_BYTES, Sealer
from paddock.fleet.local.fleet import LocalFleet, Programs
from paddock.fleet.local.reviewer import LocalReviewer
from paddock.github.apps import Apps
from paddock.pools.spec import parse_pools
from paddock.replica import FleetParts
from paddock.serve import configured_apps, serve
from paddock.settings import Settings, load
from paddock.sim.demo import HOST, POOL, Demo
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.migrate import migrate
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds


def up(config: Config = None, data_dir: DataDir = None) -> None:
    """Run paddock on this machine, with a PostgreSQL of its own.

    Nothing else has to be installed. Without a GitHub App in the settings it brings a
    GitHub of its own, with a little work, and runs it as processes of this machine.
    Ctrl-C stops everything it started; the data directory is there again at the next
    start.

    Examples:

        paddock up

        paddock up --data-dir ~/paddock-trial
    """
    settings = load(config, data_dir=data_dir)
    run(_up(settings), settings)


async def _up(settings: Settings) -> None:
    try:
        async with AsyncExitStack() as stack:
            await _run(settings, stack)
    except asyncio.CancelledError:
        show("stopped")
    except ExceptionGroup as failures:
        raise _first(failures) from None


def _first(failures: ExceptionGroup[Exception]) -> Exception:
    """Of what runs side by side the first to fail ends the rest, and is what there is to tell."""
    failure = failures.exceptions[0]
    return _first(failure) if isinstance(failure, ExceptionGroup) else failure


async def _run(settings: Settings, stack: AsyncExitStack) -> None:
    show(f"paddock {paddock.__version__}")
    server: EmbeddedPostgres | None = None
    if settings.database_url:
        url = settings.database_url.get_secret_value()
    else:
        server = EmbeddedPostgres(settings.data_dir, say=say)
        url = (await stack.enter_async_context(server)).url
    database = await stack.enter_async_context(connected(url, settings, name="paddock up"))
    await migrate(database, say=say)
    show(f"  PostgreSQL  {database.shown}")
    demo, apps = await _github(settings, stack)
    runners = await stack.enter_async_context(_local_fleet(settings))
    async with asyncio.TaskGroup() as group:
        if server is not None:
            group.create_task(server.wait())
        await _serve(settings, database, apps, runners, demo)


async def _github(settings: Settings, stack: AsyncExitStack) -> tuple[Demo | None, Apps]:
    """The Apps of the settings, or a GitHub of our own."""
    if settings.github.all_apps:
        apps = configured_apps(settings)
        show(f"  GitHub      {', '.join(str(app.key) for app in apps)}")
        return None, apps
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    demo, app = await stack.enter_async_context(Demo.running(settings.data_dir))
    show(f"  GitHub      a demonstration of our own, {app.api_url}")
    return demo, Apps.from_settings([app])


class _Runners:
    """Where the runners live."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fleet: LocalFleet | None = None

    async def fleet(self, server: str) -> LocalFleet:
        """The fleet whose runners ask the server at this URL."""
        self._fleet = LocalFleet(
            self.root, Programs.of_agent(server), clock=SystemClock(), ids=SystemIds()
        )
        await self._fleet.open()
        return self._fleet

    async def stop(self) -> None:
        """All of them, whoever started them. By the fleet that did: it alone knows of supervisors that
        have not begun yet."""
        fleet = self._fleet or await self.fleet("")
        await fleet.stop_all()


@asynccontextmanager
async def _local_fleet(settings: Settings) -> AsyncIterator[_Runners]:
    runners = _Runners(settings.data_dir.expanduser().absolute() / "runners")
    try:
        yield runners
    finally:
        await runners.stop()


async def _serve(
    settings: Settings, database: Database, apps: Apps, runners: _Runners, demo: Demo | None
) -> None:
    clock = SystemClock()
    store = PgStore(database, clock=clock, ids=SystemIds(), actor="paddock up")
    sealer = Sealer(settings.sealing or [_own_key(settings.data_dir)])
    if demo is not None:
        await store.apply_pools(parse_pools(POOL, name="the demonstration"))
        await store.abandon_jobs(HOST, why="the demonstration's GitHub starts anew")

    async def fleet(url: str) -> FleetParts:
        return FleetParts(
            fleet=await runners.fleet(url), reviewer=LocalReviewer(runners.root, clock)
        )

    async with asyncio.TaskGroup() as group:

        def ready(url: str) -> None:
            show(f"  paddock     {url}")
            show("Ctrl-C stops it.")
            if demo is not None:
                demo.send_webhooks_to(f"{url}/webhooks/github")
                group.create_task(demo.work())
            group.create_task(follow(store, clock))

        await serve(database, settings, ready=ready, apps=apps, fleet=fleet, sealer=sealer)


def _own_key(directory: Path) -> bytes:
    """Made once: what it sealed must open after a restart."""
    path = directory.expanduser() / "sealing-key"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
    return path.read_bytes()
