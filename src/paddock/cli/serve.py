"""`paddock serve`"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

import paddock
import paddock.serve
from paddock.cli.options import Config, DataDir
from paddock.cli.output import say, show
from paddock.cli.run_command import run
from paddock.cli.store import open_database
from paddock.settings import Settings, load
from paddock.store.migrate import check_schema
from paddock.store.migrate import migrate as apply_migrations

Migrate = Annotated[
    bool, typer.Option("--migrate", help="Bring the database's schema up to this version first.")
]


def serve(migrate: Migrate = False, config: Config = None, data_dir: DataDir = None) -> None:
    """Run paddock for production: one replica of any number.

    It needs a GitHub App and a database whose schema is up to date. After Ctrl-C or SIGTERM it
    finishes the work under way and stops; after a second one it stops at once.

    Examples:

        paddock serve --config /etc/paddock/paddock.toml

        PADDOCK_LISTEN=0.0.0.0:8787 paddock serve --migrate
    """
    settings = load(config, data_dir=data_dir)
    paddock.serve.check_settings(settings)
    run(_serve(settings, migrate=migrate), settings)


async def _serve(settings: Settings, *, migrate: bool) -> None:
    try:
        async with open_database(settings, name="paddock serve") as database:
            if migrate:
                await apply_migrations(database, say=say)
            async with database.acquire() as connection:
                await check_schema(connection)
            async with paddock.serve.configured_fleet(settings) as fleet:
                await paddock.serve.serve(database, settings, ready=_ready, fleet=fleet)
    except asyncio.CancelledError:
        show("stopped")


def _ready(url: str) -> None:
    paddock.serve.tune_garbage_collection()
    show(f"paddock {paddock.__version__} answers at {url}")
