"""What is answered is as durable as the server's settings ask, on its disk and on its standbys."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from paddock.domain.github.deliveries import NewDelivery
from paddock.domain.runners.runner import Runner
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.migrate import migrate
from paddock.store.postgres_binaries import _wheel_binaries
from tests.support.directories import in_memory, open_directory
from tests.support.world import World

pytestmark = pytest.mark.slow

#: Longer than any of these writes takes without a delay.
SOON = 1.0
ASK = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedPostgres]:
    """Its own server: other tests' writes would wait for the standby too."""
    with open_directory(in_memory()) as path:
        settings = {"fsync": "off", "full_page_writes": "off"}
        async with EmbeddedPostgres(path / "data", settings=settings) as server:
            yield server


@pytest.fixture
async def world(server: EmbeddedPostgres) -> AsyncIterator[World]:
    database = await Database.connect(server.url)
    try:
        await migrate(database)
        yield await World(database).begin()
    finally:
        await database.close()


async def ask_for_standbys(world: World) -> None:
    """From now on a commit waits for a standby, if it waits at all."""
    async with world.database.statement() as connection:
        await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    await world.rows("SELECT pg_reload_conf()")
    async with asyncio.timeout(10), world.database.acquire() as connection:
        while not await connection.fetchval("SHOW synchronous_standby_names"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    # The checkpointer publishes the setting; it has done so when a backend waits.
    connection = await asyncpg.connect(world.database._pool.url)
    try:
        async with asyncio.timeout(10):
            while not await _waits(
                connection.execute("SELECT pg_logical_emit_message(true, '', '')")
            ):
                pass
    finally:
        connection.terminate()


@asynccontextmanager
async def standby(server: EmbeddedPostgres, world: World, path: Path) -> AsyncIterator[int]:
    """A standby that receives the log and confirms what it has flushed; yields its pid."""
    process = await asyncio.create_subprocess_exec(
        str(_wheel_binaries() / "pg_receivewal"),
        "--synchronous",
        "--no-loop",
        "-D",
        str(path),
        "-d",
        server.url_of("postgres"),
    )
    try:
        async with asyncio.timeout(20), world.database.acquire() as connection:
            while not await connection.fetchval(ASK):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield process.pid
    finally:
        process.kill()
        await process.wait()


async def _waits(answer: object) -> bool:
    try:
        async with asyncio.timeout(SOON):
            await answer  # type: ignore[misc]
    except TimeoutError:
        return True
    return False


async def test_a_claim_is_answered_when_the_standby_has_it(
    server: EmbeddedPostgres, world: World, directory: Path
) -> None:
    account, pool = await world.account(), await world.pool()
    await world.queue(account, await world.key(account, pool), 1)
    pods = await world.idle_pods(pool, 1)
    await ask_for_standbys(world)
    async with standby(server, world, directory) as pid:
        os.kill(pid, signal.SIGSTOP)
        match = asyncio.create_task(world.store.match(pods))
        done, _ = await asyncio.wait([match], timeout=SOON)
        assert not done, "no standby has it"
        os.kill(pid, signal.SIGCONT)
        async with asyncio.timeout(20):
            assert len((await match).claims) == 1


async def test_what_others_have_flushed_here_is_still_waited_for_elsewhere(world: World) -> None:
    """A claim's commit does not wait. Then another session's commit flushes the log to this disk, but
    to no standby. Nothing is left to flush here, and still the claim must not be answered."""
    await ask_for_standbys(world)
    async with world.database.acquire() as connection:
        await connection.execute("SET synchronous_commit = local")
        await connection.execute("SELECT pg_logical_emit_message(true, '', '')")
        flushed = "SELECT pg_current_wal_insert_lsn() <= pg_current_wal_flush_lsn()"
        assert await connection.fetchval(flushed)
        await connection.execute("SET synchronous_commit = on")
        assert await _waits(connection.execute("SELECT await_durability()"))


async def test_a_transaction_that_asks_for_no_standby_waits_for_none(world: World) -> None:
    account, pool = await world.account(), await world.pool()
    await world.queue(account, await world.key(account, pool), 1)
    pods = await world.idle_pods(pool, 1)
    await ask_for_standbys(world)
    async with world.database.statement() as connection:
        await connection.execute("SET synchronous_commit = local")
        await connection.execute("ALTER DATABASE paddock SET synchronous_commit = local")
    other = await Database.connect(world.database._pool.url)
    try:
        world.store._database = other
        async with asyncio.timeout(20):
            assert len((await world.store.match(pods)).claims) == 1
    finally:
        await other.close()


@pytest.mark.parametrize("what", ["a delivery", "a JIT", "a limit", "an acknowledgement"])
async def test_nothing_is_acknowledged_before_the_standby_has_it(world: World, what: str) -> None:
    """I1: GitHub does not send an acknowledged delivery again, and only one Pod holds a JIT."""
    account, pool = await world.account(), await world.pool()
    await world.queue(account, await world.key(account, pool), 1)
    [claim] = (await world.store.match(await world.idle_pods(pool, 1))).claims
    armed = None
    if what == "an acknowledgement":
        armed = await world.arm(claim.runner, claim.generation)
    await ask_for_standbys(world)
    match what:
        case "a delivery":
            answer = world.store.store_deliveries([_delivery(world)])
        case "a JIT":
            answer = world.arm(claim.runner, claim.generation)  # type: ignore[assignment]
        case "a limit":
            answer = world.store.pause_account(account, why="test")  # type: ignore[assignment]
        case _:
            assert isinstance(armed, Runner)
            answer = world.acknowledge(armed)  # type: ignore[assignment]
    assert await _waits(answer)


def _delivery(world: World) -> NewDelivery:
    return NewDelivery(
        host=world.host,
        app=world.app,
        guid="1",
        event="workflow_job",
        action="queued",
        installation=1,
        payload=b"{}",
    )
