"""Real parts for every test: a PostgreSQL, and a migrated database in it, fresh for each test."""

from __future__ import annotations

import itertools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import hypothesis
import pytest
from anyio.from_thread import start_blocking_portal

from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.migrate import migrate
from tests.support import scenes
from tests.support.directories import in_memory, open_directory

# No test asserts a duration.
hypothesis.settings.register_profile("paddock", deadline=None)
hypothesis.settings.load_profile("paddock")

TEMPLATE = "paddock_template"
# Tests need no durability. Many databases on one server need more than the default of 100 sessions.
QUICK = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
QUICK |= {"max_connections": "200"}

_numbers = itertools.count()

# A shell starts its background jobs with SIGINT ignored, and processes inherit that. The programs under
# test are stopped by SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """For `.ci/run`: whether tests failed, or did not run."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set("paddock/exitstatus", int(exitstatus))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def directory() -> Iterator[Path]:
    with open_directory() as path:
        yield path


@pytest.fixture(scope="session")
def postgres_binaries() -> Path | None:
    """The servers that paddock brings; `tests/store` also has every other version on this machine."""
    return None


@pytest.fixture(scope="session")
def postgres(postgres_binaries: Path | None) -> Iterator[EmbeddedPostgres]:
    """One server for all tests of a process. Its own thread makes it independent of the tests' event
    loops."""
    with open_directory(in_memory()) as path, start_blocking_portal() as portal:
        server = EmbeddedPostgres(path / "data", settings=QUICK, binaries=postgres_binaries)
        with portal.wrap_async_context_manager(server):
            portal.call(_make_template, server)
            yield server


async def _make_template(server: EmbeddedPostgres) -> None:
    await _administer(server, f"CREATE DATABASE {TEMPLATE}")
    database = await Database.connect(server.url_of(TEMPLATE))
    try:
        await migrate(database)
    finally:
        await database.close()


async def _administer(server: EmbeddedPostgres, statement: str) -> None:
    connection = await asyncpg.connect(server.url_of("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
async def empty_database_url(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    async for url in fresh_database(postgres, template="template0"):
        yield url


@pytest.fixture
async def database_url(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """An empty database with paddock's schema, for tests that connect themselves."""
    async for url in fresh_database(postgres, template=TEMPLATE):
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = await Database.connect(database_url, application_name="paddock-test")
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture(scope="session")
def chaotic_template(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A fleet with much trouble: written once and copied for each test."""
    with start_blocking_portal() as portal:
        yield portal.call(stage, postgres, "scene_chaotic", scenes.chaotic)


async def stage(
    server: EmbeddedPostgres, name: str, make: Callable[[Database], Awaitable[object]]
) -> str:
    """A database with history, to copy; its name."""
    await _administer(server, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
    database = await Database.connect(server.url_of(name), application_name="paddock-test")
    try:
        await make(database)
    finally:
        await database.close()
    return name


@pytest.fixture(scope="module")
async def chaotic(postgres: EmbeddedPostgres, chaotic_template: str) -> AsyncIterator[Database]:
    """One for all tests of a module: most of them only read."""
    async for url in fresh_database(postgres, template=chaotic_template):
        database = await Database.connect(url, application_name="paddock-test")
        try:
            yield database
        finally:
            await database.close()


async def fresh_database(server: EmbeddedPostgres, *, template: str) -> AsyncIterator[str]:
    name = f"test_{next(_numbers)}"
    # Copying files is faster than logging and replaying them, as long as no write is synced.
    await _administer(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    try:
        yield server.url_of(name)
    finally:
        await _administer(server, f"DROP DATABASE {name} WITH (FORCE)")
