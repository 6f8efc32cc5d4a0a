"""`paddock up`"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import paddock
from paddock.cli.options import Config, DataDir
from paddock.cli.output import say, show
from paddock.cli.running import run
from paddock.cli.store import connected
from paddock.settings import Settings, load
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.migrate import migrate


def up(config: Config = None, data_dir: DataDir = None) -> None:
    """Run paddock on this machine, with a PostgreSQL of its own.

    Nothing else has to be installed. Ctrl-C stops it; everything is kept in the data
    directory and there again at the next start.

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
    show(f"  running   PostgreSQL, {database.shown}")
    show("  ready     the schema")
    show("  not yet   webhooks, dispatch, pools, recovery, dashboard")
    show("Ctrl-C stops it.")
    if server:
        await server.wait()
    else:
        await asyncio.Event().wait()
