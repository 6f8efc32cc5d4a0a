"""`paddock serve`: how it starts, which settings it refuses with a sentence, and how it stops."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from tests.support.processes import paddock
from tests.support.replicas import SECRET, Burst, Replica, paddock_serve

pytestmark = pytest.mark.slow

APP = {
    "PADDOCK_GITHUB_APP_ID": "12",
    "PADDOCK_GITHUB_PRIVATE_KEY_FILE": "/nonexistent",
    "PADDOCK_GITHUB_WEBHOOK_SECRET": SECRET,
}


@asynccontextmanager
async def locked(url: str) -> AsyncIterator[None]:
    """The table is locked meanwhile."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE deliveries IN SHARE MODE")
            yield
    finally:
        await connection.close()


async def until_waiting(url: str) -> None:
    """Waits until a transaction waits for the lock."""
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'deliveries'::regclass"
    connection = await asyncpg.connect(url)
    try:
        while not await connection.fetchval(query):  # noqa: ASYNC110 -- no event tells of it
            await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def guids(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT guid FROM deliveries ORDER BY guid")
    finally:
        await connection.close()
    return [row["guid"] for row in rows]


async def test_it_serves_and_stops_when_told_to(directory: Path, database_url: str) -> None:
    async with paddock_serve(directory, database_url) as replica:
        burst = Burst(replica.address, ["a", "b"])
        await burst.send()
        assert burst.counted == {202: 2}
        replica.process.send_signal(signal.SIGTERM)
        assert await replica.ended() == 0
    assert await guids(database_url) == ["a", "b"]


async def test_it_finishes_what_is_under_way_and_accepts_nothing_new(
    directory: Path, database_url: str
) -> None:
    async with paddock_serve(directory, database_url) as replica:
        async with locked(database_url):
            burst = Burst(replica.address, ["under-way"])
            sending = asyncio.create_task(burst.send())
            await until_waiting(database_url)
            replica.process.send_signal(signal.SIGTERM)
            await _until_deaf(replica)
        await sending
        assert burst.counted == {202: 1}
        assert await replica.ended() == 0


async def test_a_second_signal_ends_it_at_once(directory: Path, database_url: str) -> None:
    async with paddock_serve(directory, database_url) as replica, locked(database_url):
        sending = asyncio.create_task(Burst(replica.address, ["under-way"]).send())
        await until_waiting(database_url)
        replica.process.send_signal(signal.SIGINT)
        await _until_deaf(replica)
        assert replica.process.returncode is None
        replica.process.send_signal(signal.SIGINT)
        await replica.ended()
        await sending


async def _until_deaf(replica: Replica) -> None:
    """Waits until no process listens at its address."""
    while True:
        try:
            _, writer = await asyncio.open_connection(*replica.address)
        except ConnectionRefusedError:
            return
        except ConnectionResetError:  # it stopped listening at this very moment
            continue
        writer.close()
        await asyncio.sleep(0.01)


async def test_it_can_migrate_first(directory: Path, empty_database_url: str) -> None:
    async with paddock_serve(directory, empty_database_url, "--migrate") as replica:
        burst = Burst(replica.address, ["a"])
        await burst.send()
        assert burst.counted == {202: 1}


async def test_a_database_without_a_schema_is_refused_in_a_sentence(
    empty_database_url: str,
) -> None:
    ended = await paddock("serve", **APP, PADDOCK_DATABASE_URL=empty_database_url)
    assert ended.code == 1
    assert "has no schema of paddock's yet" in ended.err
    assert "run `paddock migrate`" in ended.err


async def test_without_an_app_it_does_not_start() -> None:
    ended = await paddock("serve")
    assert ended.code == 1
    assert ended.err.startswith("error: No GitHub App is configured")
    assert "Traceback" not in ended.err


async def test_everything_that_is_missing_is_told_at_once() -> None:
    ended = await paddock("serve", PADDOCK_FLEET="kube", PADDOCK_RECOVERY_SUSPECT="1")
    assert ended.code == 1
    told = ended.err.split("error: ")[1:]
    assert [sentence.split()[0] for sentence in told] == ["No", "No", "Runners'"]
    assert "GitHub App" in told[0]
    assert "PADDOCK_SEALING_KEYS" in told[1]
    assert "PADDOCK_KUBE_AGENT_IMAGE" in told[2]


async def test_an_app_without_a_secret_is_refused() -> None:
    ended = await paddock("serve", **{**APP, "PADDOCK_GITHUB_WEBHOOK_SECRET": ""})
    assert ended.code == 1
    assert "also set PADDOCK_GITHUB_WEBHOOK_SECRET" in ended.err


async def test_an_address_in_use_is_refused_in_a_sentence(database_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        ended = await paddock(
            "serve", **APP, PADDOCK_DATABASE_URL=database_url, PADDOCK_LISTEN=address
        )
    assert ended.code == 1
    assert f"cannot listen at {address}" in ended.err
    assert "PADDOCK_LISTEN" in ended.err
    assert "Traceback" not in ended.err


async def test_no_secret_is_logged(directory: Path, database_url: str) -> None:
    async with paddock_serve(directory, database_url) as replica:
        await Burst(replica.address, ["a"]).send()
    assert SECRET not in replica.log.read_text()
