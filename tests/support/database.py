"""A database for tests that hypothesis drives: they are not async themselves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import asyncpg

from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres

TEMPLATE = "paddock_template"
_numbers = itertools.count()


class Loop:
    """An event loop with a database; `run` gives each example an empty one."""

    def __init__(self, runner: asyncio.Runner, database: Database) -> None:
        self._runner = runner
        self._database = database

    def run(self, scenario: Callable[[Database], Awaitable[None]]) -> None:
        self._runner.run(self._once(scenario))

    async def _once(self, scenario: Callable[[Database], Awaitable[None]]) -> None:
        async with self._database.transaction() as connection:
            await connection.execute("TRUNCATE hosts, pools, events, mints CASCADE")
        await scenario(self._database)


@contextmanager
def fresh_database(server: EmbeddedPostgres) -> Iterator[Loop]:
    name = f"loop_{next(_numbers)}"
    with asyncio.Runner() as runner:
        runner.run(
            _administer(server, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        )
        database = runner.run(Database.connect(server.url_of(name)))
        try:
            yield Loop(runner, database)
        finally:
            runner.run(database.close())
            runner.run(_administer(server, f"DROP DATABASE {name} WITH (FORCE)"))


async def _administer(server: EmbeddedPostgres, statement: str) -> None:
    connection = await asyncpg.connect(server.url_of("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
