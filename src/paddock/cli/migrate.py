"""`paddock migrate`"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from paddock.cli.options import AsJson, Config, DataDir
from paddock.cli.output import say, show
from paddock.cli.run_command import run
from paddock.cli.store import has_no_database, open_database
from paddock.settings import Settings, load
from paddock.store.migrate import Migration, read_migrations
from paddock.store.migrate import migrate as apply_migrations

DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")]


def migrate(
    dry_run: DryRun = False,
    as_json: AsJson = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Bring the database's schema up to this version of paddock.

    Any number of replicas may do this at once: each migration is applied once. Migrations
    that fail leave nothing behind.

    Examples:

        paddock migrate --dry-run

        PADDOCK_DATABASE_URL=postgresql://paddock@db.example.org/paddock paddock migrate
    """
    settings = load(config, data_dir=data_dir)
    migrations = run(_migrate(settings, dry_run=dry_run), settings)
    if as_json:
        names = [migration.name for migration in migrations]
        show(json.dumps({"dry_run": dry_run, "pending" if dry_run else "applied": names}))
    elif not migrations:
        show("The schema is up to date.")
    else:
        verb = "would apply" if dry_run else "applied"
        for migration in migrations:
            show(f"{verb} {migration.name}")


async def _migrate(settings: Settings, *, dry_run: bool) -> Sequence[Migration]:
    if dry_run and not settings.database_url and has_no_database(settings):
        say(f"there is no database in {settings.data_dir} yet")
        return read_migrations()
    async with open_database(settings, name="paddock migrate") as database:
        return await apply_migrations(
            database,
            dry_run=dry_run,
            say=say,
            applying=lambda migration: say(f"applying {migration.name}"),
        )
