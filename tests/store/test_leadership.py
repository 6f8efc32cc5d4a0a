"""One replica runs a loop; when it ends, another one does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from paddock.store import leadership
from paddock.store.database import Database
from paddock.store.leadership import leading, led
from paddock.system import SystemClock


def loop(name: str, log: list[str]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        log.append(f"{name} leads")
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"{name} stops")

    return run


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_one_of_two_leads_and_the_other_follows_it(
    database: Database, database_url: str
) -> None:
    log: list[str] = []
    other = await Database.connect(database_url)
    clock = SystemClock()
    first = asyncio.create_task(
        _follow(led("loop", loop("a", log), database=database, clock=clock))
    )
    await until(lambda: log == ["a leads"])
    second = asyncio.create_task(_follow(led("loop", loop("b", log), database=other, clock=clock)))
    await asyncio.sleep(0.3)
    assert log == ["a leads"]

    first.cancel()
    await until(lambda: log == ["a leads", "a stops", "b leads"])
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    await other.close()


async def test_a_leader_that_loses_its_connection_stops(database: Database) -> None:
    log: list[str] = []
    clock = SystemClock()
    task = asyncio.create_task(_follow(led("loop", loop("a", log), database=database, clock=clock)))
    await until(lambda: log == ["a leads"])
    async with database.transaction() as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE locktype = 'advisory'"
            " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    await until(lambda: "a stops" in log)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_leader_that_is_silent_is_replaced(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine vanished behind a proxy: the connection stays, and no query comes any more."""
    monkeypatch.setattr(leadership, "_SILENT_FOR", timedelta(seconds=1))
    other = await Database.connect(database_url)
    async with leading("loop", database) as silent:
        assert silent is not None
        async with leading("loop", other) as follower:
            assert follower is None
        async with asyncio.timeout(60):
            while not await _leads(other):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    await other.close()


async def test_a_session_that_was_a_leaders_is_used_like_any_other(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "_SILENT_FOR", timedelta(seconds=1))
    async with leading("loop", database) as session:
        assert session is not None
    async with database.acquire() as session:
        assert await session.fetchval("SHOW idle_session_timeout") == "0"


async def _leads(database: Database) -> bool:
    async with leading("loop", database) as connection:
        return connection is not None


async def _follow(run: Callable[[], Awaitable[None]]) -> None:
    await run()
