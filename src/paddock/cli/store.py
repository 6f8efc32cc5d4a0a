"""The database a command works on: the one in PADDOCK_DATABASE_URL, or paddock's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from paddock.cli.output import say
from paddock.ports.errors import DatabaseUnavailable
from paddock.settings import Settings
from paddock.store.data_directory import DataDirectory, running_url
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.errors import DirectoryInUse, EmbeddedPostgresError, redacted

#: Seconds: a person waits for the answer. A restarting database is back by then; a dead one is not.
_LOOK_WAIT: Final = 3.0
#: The limit for the whole attempt, also for an address that drops all packets.
_LOOK_LIMIT: Final = 5.0


@asynccontextmanager
async def open_database(settings: Settings, *, name: str) -> AsyncIterator[Database]:
    """For commands that may create the database and wait for it."""
    async with AsyncExitStack() as stack:
        url = await _url(settings, stack)
        yield await stack.enter_async_context(connected(url, settings, name=name))


@asynccontextmanager
async def existing_database(settings: Settings, *, name: str) -> AsyncIterator[Database]:
    """For commands that read or change an existing paddock: they create nothing, and do not wait for a
    database that does not answer."""
    if not settings.database_url and has_no_database(settings):
        raise EmbeddedPostgresError(
            f"There is no paddock here: PADDOCK_DATABASE_URL is not set, and {settings.data_dir} holds "
            "no database. Name the database of your paddock with PADDOCK_DATABASE_URL or --config, or "
            "the directory of `paddock up` with --data-dir; `paddock up` starts a new one."
        )
    async with AsyncExitStack() as stack:
        url = await _url(settings, stack)
        wait = min(_LOOK_WAIT, settings.database_wait)
        try:
            async with asyncio.timeout(_LOOK_LIMIT):
                database = await Database.connect(url, application_name=name, wait=wait, say=say)
        except TimeoutError:
            raise DatabaseUnavailable(
                f"The database at {redacted(url)} did not answer within {_LOOK_LIMIT:g} s: check the "
                "address in PADDOCK_DATABASE_URL, any firewall in between, and that the server runs."
            ) from None
        stack.push_async_callback(database.close)
        yield database


@asynccontextmanager
async def connected(url: str, settings: Settings, *, name: str) -> AsyncIterator[Database]:
    database = await Database.connect(
        url, application_name=name, wait=settings.database_wait, say=say
    )
    try:
        yield database
    finally:
        await database.close()


def has_no_database(settings: Settings) -> bool:
    """Whether the data directory holds no database of paddock's."""
    return DataDirectory(settings.data_dir).existing_pgdata() is None


async def _url(settings: Settings, stack: AsyncExitStack) -> str:
    """Start paddock's own server while `stack` is open. If `paddock up` already runs one in the same
    directory, use that one."""
    if settings.database_url:
        return settings.database_url.get_secret_value()
    try:
        server = EmbeddedPostgres(settings.data_dir, say=say)
        return (await stack.enter_async_context(server)).url
    except DirectoryInUse:
        url = running_url(settings.data_dir)
        if url is None:
            raise
        return url
