"""The database a command works on: the one in PADDOCK_DATABASE_URL, or paddock's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from paddock.cli.output import say
from paddock.settings import Settings
from paddock.store.data_directory import running_url
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.errors import DirectoryInUse


@asynccontextmanager
async def open_database(settings: Settings, *, name: str) -> AsyncIterator[Database]:
    """paddock's own server is started for as long as it is needed, unless `paddock up` runs it in
    the same directory: then that one is used."""
    async with AsyncExitStack() as stack:
        url = settings.database_url and settings.database_url.get_secret_value()
        if not url:
            try:
                server = EmbeddedPostgres(settings.data_dir, say=say)
                url = (await stack.enter_async_context(server)).url
            except DirectoryInUse:
                url = running_url(settings.data_dir)
                if url is None:
                    raise
        yield await stack.enter_async_context(connected(url, settings, name=name))


@asynccontextmanager
async def connected(url: str, settings: Settings, *, name: str) -> AsyncIterator[Database]:
    database = await Database.connect(
        url, application_name=name, wait=settings.database_wait, say=say
    )
    try:
        yield database
    finally:
        await database.close()
