"""Shared by the commands that read or change a running paddock."""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from paddock.cli.output import say
from paddock.cli.run_command import run
from paddock.cli.store import existing_database
from paddock.domain.accounts import AccountSummary
from paddock.domain.pauses import Pause, describe_pause
from paddock.domain.pools.pool import PoolSummary
from paddock.operators import Operator, UnknownName
from paddock.recovery.by_hand import CannotRetire
from paddock.settings import Settings, load
from paddock.store.clock import DatabaseClock, asking
from paddock.store.database import Database
from paddock.store.migrate import check_schema
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds

R = TypeVar("R")

Why = Annotated[str, typer.Option("--why", help="The reason, kept with the change.")]


def paused(summary: AccountSummary | PoolSummary) -> str | None:
    """Who paused the account or pool, when and why, for the column of a list."""
    if summary.paused_at is None or summary.paused_by is None:
        return None
    return describe_pause(summary.paused_at, summary.paused_by, summary.paused_why)


def tell_dispatch_pause(pause: Pause | None) -> None:
    """Written to standard error beside a list: no row shows this pause."""
    if pause is not None:
        say(f"all dispatch is paused {pause}")


class NoSuchObject(Exception):
    """The named object does not exist; the sentence lists what does."""


def with_store(
    work: Callable[[PgStore], Awaitable[R]], *, config: Path | None, data_dir: Path | None
) -> R:
    """Only for reading. Changes are made `as_operator`."""

    async def named(database: Database) -> R:
        clock = await DatabaseClock.measured(asking(database), SystemClock())
        try:
            return await work(PgStore(database, clock=clock, ids=SystemIds(), actor=user()))
        except (UnknownName, CannotRetire) as error:
            raise NoSuchObject(str(error)) from None

    return with_database(named, config=config, data_dir=data_dir)


def as_operator(
    work: Callable[[Operator], Awaitable[R]], *, config: Path | None, data_dir: Path | None
) -> R:
    """Act in the name of the user who runs the command."""
    return with_store(
        lambda store: work(Operator(store, actor=user())), config=config, data_dir=data_dir
    )


def user() -> str:
    """The name of the user who runs the command, for events and logs."""
    try:
        return f"operator:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user has a number but may have no name
        return f"operator:uid-{os.getuid()}"


def with_database(
    work: Callable[[Database], Awaitable[R]], *, config: Path | None, data_dir: Path | None
) -> R:
    settings = load(config, data_dir=data_dir)
    return run(_with_database(work, settings), settings)


async def _with_database(work: Callable[[Database], Awaitable[R]], settings: Settings) -> R:
    async with existing_database(settings, name="paddock") as database:
        async with database.transaction() as connection:
            await check_schema(connection)
        return await work(database)
