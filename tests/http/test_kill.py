"""An acknowledged delivery is never lost, neither when paddock is killed nor when PostgreSQL restarts.

PostgreSQL syncs here, as it does in production.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from paddock.store.embedded import EmbeddedPostgres
from tests.support.replicas import Burst, paddock_serve

pytestmark = pytest.mark.slow

DELIVERIES = 5_000
#: Acknowledged deliveries before the failure.
MIDDLE = 2_000


def burst_at(address: tuple[str, int]) -> Burst:
    return Burst(address, [f"delivery-{number}" for number in range(DELIVERIES)])


def in_the_middle(burst: Burst, what: Callable[[], None]) -> None:
    """Calls the failure once, as soon as that many are acknowledged."""
    heard = 0

    def count() -> None:
        nonlocal heard
        heard += 1
        if heard == MIDDLE:
            what()

    burst.heard = count


async def stored(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT guid FROM deliveries ORDER BY guid")
    finally:
        await connection.close()
    return [row["guid"] for row in rows]


async def test_kill_9_in_a_burst_loses_nothing_that_was_acknowledged(directory: Path) -> None:
    """I1"""
    async with EmbeddedPostgres(directory / "data") as server:
        async with paddock_serve(directory, server.url, "--migrate") as replica:
            burst = burst_at(replica.address)
            in_the_middle(burst, replica.process.kill)
            await burst.send()
        assert MIDDLE <= len(burst.acknowledged) < DELIVERIES
        assert burst.acknowledged <= set(await stored(server.url))
        # GitHub sends all of them again, those that had arrived as well (I6).
        async with paddock_serve(directory, server.url) as replica:
            again = burst_at(replica.address)
            await again.send()
        assert set(again.counted) <= {200, 202}
        assert again.counted[200] >= len(burst.acknowledged)
        assert await stored(server.url) == sorted(burst.guids)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
async def test_restarting_postgresql_in_a_burst_loses_nothing_that_was_acknowledged(
    directory: Path, how: signal.Signals
) -> None:
    """I1: and paddock goes on by itself when the database is back."""
    restarted: asyncio.Task[None] | None = None
    server = EmbeddedPostgres(directory / "data")
    await server.__aenter__()
    try:
        async with paddock_serve(directory, server.url, "--migrate") as replica:
            burst = burst_at(replica.address)

            async def restart() -> None:
                os.kill(server.pid, how)
                await server.__aexit__(None, None, None)
                await server.__aenter__()

            def begin() -> None:
                nonlocal restarted
                restarted = asyncio.create_task(restart())

            in_the_middle(burst, begin)
            await burst.send()
            assert restarted is not None
            await restarted
            assert MIDDLE <= len(burst.acknowledged) < DELIVERIES
            assert burst.acknowledged <= set(await stored(server.url))
            assert set(burst.counted) == {202, 503}
            again = burst_at(replica.address)
            await again.send()
            assert set(again.counted) <= {200, 202}
            assert await stored(server.url) == sorted(burst.guids)
            assert replica.process.returncode is None
    finally:
        await server.__aexit__(None, None, None)
