"""Two server processes, one database: an account's only place is never given twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import pytest

from paddock.domain.limits import Limits
from paddock.domain.names import PodName
from paddock.domain.runners.runner import Runner
from paddock.fakes.github.server import plain_http
from paddock.store.base import MATCHER_LOCK
from tests.support.site import PATIENCE, Server, Site, site

pytestmark = pytest.mark.slow

PODS, JOBS = 200, 1_000
#: Pods change between the servers, and leave one that stands still, after this long.
WAIT = 8.0

HOLDS_THE_LOCK = """
SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND (l.classid, l.objid) = (1885430635, 1) AND l.granted
   AND a.datname = current_database()
"""
#: Claims, and what ends them, in the order they took effect: a claim follows the end it waited for.
LIVES = """
SELECT runner_id, after = 'claimed' AS begins FROM events
 WHERE runner_id IS NOT NULL
   AND (after IN ('claimed', 'gone') OR before = 'claimed' AND after = 'idle')
 ORDER BY id
"""


@dataclass
class Crowd:
    """Pods that poll one server after the other until they receive a JIT."""

    site: Site
    servers: Sequence[Server]
    client: httpx2.AsyncClient
    handed: asyncio.Queue[PodName] = field(default_factory=asyncio.Queue)
    served: int = 0

    async def pod(self, name: PodName, turn: int) -> None:
        while True:
            turn += 1
            url = self.servers[turn % len(self.servers)].url
            headers = {"authorization": f"Bearer {name}"}
            try:
                answer = await self.client.post(f"{url}/v1/dispatch?wait={WAIT}", headers=headers)
                if answer.status_code == 200:
                    body = {"delivery": answer.json()["delivery"]}
                    await self.client.post(f"{url}/v1/dispatch/ack", headers=headers, json=body)
                    self.handed.put_nowait(name)
                    return
            except httpx2.TransportError:
                continue

    async def serve(self, times: int) -> None:
        """Lets this many Pods have the place, one after the other."""
        for _ in range(times):
            await self.leave(await self.next())

    async def next(self) -> Runner:
        async with asyncio.timeout(PATIENCE):
            name = await self.handed.get()
        self.served += 1
        return await self.site.runner(name)

    async def leave(self, runner: Runner) -> None:
        """Its job stays queued: no runner executes it here, so demand never runs out."""
        await self.site.conclude(runner)


@pytest.fixture
async def crowd(database_url: str) -> AsyncIterator[Crowd]:
    async with site(database_url) as place:
        servers = await asyncio.gather(place.server("left"), place.server("right"))
        await place.until("SELECT count(*) FROM accounts", 1)
        [(account,)] = await place.rows("SELECT id FROM accounts")
        await place.store.set_account_limits(account, Limits(runners=1))
        place.queue(JOBS)
        await place.until("SELECT count(*) FROM jobs WHERE state = 'queued'", JOBS)
        async with (
            httpx2.AsyncClient(
                timeout=WAIT + 3,
                limits=httpx2.Limits(max_connections=None),
                trust_env=False,
                verify=plain_http(),
            ) as client,
            _waiting(Crowd(place, servers, client)) as crowd,
        ):
            yield crowd


@asynccontextmanager
async def _waiting(crowd: Crowd) -> AsyncIterator[Crowd]:
    pods = await crowd.site.pods(PODS)
    tasks = [asyncio.create_task(crowd.pod(pod, turn)) for turn, pod in enumerate(pods)]
    try:
        yield crowd
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def most_at_once(place: Site) -> int:
    """The most claims held at the same time, over the whole history."""
    holders: set[object] = set()
    most = 0
    for runner, begins in await place.rows(LIVES):
        holders.add(runner) if begins else holders.discard(runner)
        most = max(most, len(holders))
    return most


async def stall_a_matcher(crowd: Crowd, holder: Runner) -> tuple[Server, Server]:
    """Stops a server between its two messages, with the lock held; returns it and the other one."""
    left, right = crowd.servers
    async with crowd.site.database.transaction() as connection:
        # Demand cannot be read, so a matcher that holds the lock now waits here.
        await connection.execute("LOCK TABLE budgets IN ACCESS EXCLUSIVE MODE")
        await crowd.leave(holder)
        await crowd.site.until(f"SELECT count(*) FROM ({HOLDS_THE_LOCK}) held", 1)
        [(name,)] = await crowd.site.rows(HOLDS_THE_LOCK)
        stalled, other = (left, right) if name == "left" else (right, left)
        stalled.stop()
    # The result of its read is sent, and the stopped server does not receive it.
    assert await crowd.site.rows(HOLDS_THE_LOCK) == [(name,)]
    return stalled, other


@pytest.mark.parametrize("ahead", [100.0, -100.0])
async def test_a_server_whose_clock_is_off_writes_the_databases_time(
    database_url: str, ahead: float
) -> None:
    """I82"""
    async with site(database_url) as place:
        server = await place.server("wrong", clock_ahead=ahead)
        await place.until("SELECT count(*) FROM accounts", 1)
        place.queue()
        await place.until("SELECT count(*) FROM jobs WHERE state = 'queued'", 1)
        [pod] = await place.pods(1)
        async with httpx2.AsyncClient(
            timeout=PATIENCE, trust_env=False, verify=plain_http()
        ) as client:
            headers = {"authorization": f"Bearer {pod}"}
            answer = await client.post(f"{server.url}/v1/dispatch?wait=30", headers=headers)
            metrics = (await client.get(f"{server.url}/metrics")).text
        assert answer.status_code == 200
        [ages] = await place.rows(
            "SELECT extract(epoch FROM clock_timestamp() - heard_at)::float8,"
            " extract(epoch FROM clock_timestamp() - claimed_at)::float8 FROM runners"
        )
        assert all(0 <= age < 90 for age in ages)
        [skew] = [
            float(line.split()[1])
            for line in metrics.splitlines()
            if line.startswith("paddock_clock_skew_seconds ")
        ]
        assert abs(skew - ahead) < 10


async def test_one_place_is_never_given_twice_though_a_server_stalls_in_its_match(
    crowd: Crowd,
) -> None:
    """I25, I72"""
    assert "(1885430635, 1)" in MATCHER_LOCK
    await crowd.serve(30)

    stalled, _ = await stall_a_matcher(crowd, await crowd.next())
    await crowd.serve(10)
    assert stalled.process.returncode is None
    stalled.go_on()
    await crowd.serve(10)

    assert await most_at_once(crowd.site) == 1
    # One for each Pod that was served, and perhaps one in progress.
    assert len(crowd.site.fake.truth.mints) - crowd.served in (0, 1)
    actors = await crowd.site.rows("SELECT DISTINCT actor FROM events WHERE after = 'claimed'")
    assert len(actors) == 2, "both servers gave out work"
