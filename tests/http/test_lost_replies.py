"""Connections are cut, and servers are killed, between a claim and its acknowledgement.

A real poller process polls a real server process over a connection that the test cuts.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

import asyncpg
import httpx2
import pytest
from pydantic import SecretStr

import paddock.agent
from paddock.agent.options import AgentExit
from paddock.dispatch.debts import DebtCollector
from paddock.domain.limits import Limits
from paddock.domain.names import PodName
from paddock.fakes.github import Faults
from paddock.fakes.github.runners import Offer
from paddock.fakes.github.server import plain_http
from paddock.fakes.runner import decode_jit
from paddock.github.apps import Apps
from paddock.github.budget import MemoryBudget
from paddock.github.client import GitHubClient
from paddock.github.settings import GitHubAppSettings
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.reading import PgReading
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds
from tests.support.cuts import Cut, Line
from tests.support.database import TEMPLATE
from tests.support.site import PATIENCE, SECRET, Server, Site, site

pytestmark = pytest.mark.slow

DISPATCH, ACK = "/v1/dispatch", "/v1/dispatch/ack"
#: The duration of each call to GitHub, in tests that act during one.
LATENCY = 1.0
AGENT = Path(paddock.agent.__file__).parent


class Point(StrEnum):
    """A stage in the delivery of a JIT."""

    CLAIMED = "claimed; GitHub is being asked"
    MINTED = "GitHub has made the runner, and has not said so yet"
    ARMED = "the JIT is stored; none of the reply came through"
    TORN = "half of the reply came through"
    HELD = "the Pod has it; its acknowledgement did not arrive"
    ACKNOWLEDGED = "the acknowledgement arrived; its reply did not"


class LaterClock(SystemClock):
    """Advances to the time when debts are due."""

    def now(self) -> datetime:
        return super().now() + timedelta(minutes=2)


@dataclass
class Scene:
    site: Site
    line: Line
    server: Server
    restarted: asyncio.Event = field(default_factory=asyncio.Event)

    async def restart(self) -> None:
        await self.server.kill()
        self.server = await self.site.server()
        self.line.port = self.server.port
        # The replica that minted is gone; another may take its claim when its time is up.
        await self.site.rows(
            "UPDATE runners SET mint_deadline = $1 WHERE state = 'claimed' RETURNING id",
            SystemClock().now() - timedelta(seconds=1),
        )
        self.restarted.set()

    def cut(self, point: Point, act: Callable[[], Awaitable[object]]) -> None:
        """Runs `act` at this point, then cuts the connection."""
        match point:
            case Point.CLAIMED | Point.MINTED:
                self.site.fake.set_faults(Faults(latency=(LATENCY, LATENCY)))
                self.line.cut(DISPATCH, Cut.WHILE_IT_IS_HELD, lambda: self._held(point, act))
            case Point.ARMED:
                self.line.cut(DISPATCH, Cut.BEFORE_THE_REPLY, act)
            case Point.TORN:
                self.line.cut(DISPATCH, Cut.WITHIN_THE_REPLY, act)
            case Point.HELD:
                self.line.cut(ACK, Cut.BEFORE_IT_ARRIVES, act)
            case Point.ACKNOWLEDGED:
                self.line.cut(ACK, Cut.BEFORE_THE_REPLY, act)

    async def _held(self, point: Point, act: Callable[[], Awaitable[object]]) -> None:
        before = len(self.site.fake.truth.mints)
        await self.site.until("SELECT count(*) FROM runners WHERE state = 'claimed'", 1)
        if point is Point.MINTED:
            async with asyncio.timeout(PATIENCE):
                while True:
                    if len(self.site.fake.truth.mints) > before:
                        break
                    await asyncio.sleep(0.01)
        await act()
        self.site.fake.set_faults(Faults())

    def mints_of(self, pod: PodName) -> list[str]:
        return [mint.name for mint in self.site.fake.truth.mints if mint.name.startswith(pod)]

    def jits_said(self) -> set[bytes]:
        """The bodies of all answers with work that left the server, arrived or not."""
        heads = [reply.partition(b"\r\n\r\n") for path, reply in self.line.replies]
        return {body for head, _, body in heads if b" 200 " in head[:16]}

    async def run_job(self, jit: str) -> None:
        """What a runner does with a JIT, from the first session to its job's result."""
        files = decode_jit(jit)
        session = self.site.fake.runners.connect(
            client_id=files[".credentials"]["Data"]["ClientId"],
            secret=files[".credentials_rsaparams"]["d"],
            version="2.330.0",
        )
        offer = self.site.fake.runners.poll(session.id)
        assert isinstance(offer, Offer)
        self.site.fake.runners.acquire(session.id, offer.job_id)
        self.site.fake.runners.complete(session.id, offer.job_id, "success")

    async def another_gets_work(self) -> bool:
        """The account may have one runner: if its place were not free, this would wait for ever."""
        [pod] = await self.site.pods(1)
        self.site.queue()
        async with httpx2.AsyncClient(timeout=40, trust_env=False, verify=plain_http()) as client:
            answer = await client.post(
                f"{self.server.url}{DISPATCH}?wait=20", headers={"authorization": f"Bearer {pod}"}
            )
        return answer.status_code == 200

    async def pay_debts(self) -> None:
        now, later, site = SystemClock(), LaterClock(), self.site
        app = GitHubAppSettings(
            app_id=site.app.id,
            private_key_file=site.directory / "app.pem",
            webhook_secret=(SecretStr(SECRET),),
            api_url=site.fake.world.api_url,
        )
        client = GitHubClient(Apps.from_settings([app]), clock=now, budget=MemoryBudget(now))
        store = PgStore(site.database, clock=later, ids=SystemIds(), actor="collector")
        try:
            await DebtCollector(store=store, github=client, clock=later).round()
        finally:
            await client.aclose()
        assert (await PgReading(site.database, later).levels()).debts == 0

    async def tidy(self) -> None:
        """For the next test: no job waits, no place is occupied."""
        self.site.fake.set_faults(Faults())
        self.line.replies.clear()
        self.restarted.clear()
        for run in list(self.site.fake.world.runs.values()):
            self.site.fake.jobs.cancel_run(run)
        await self.site.until("SELECT count(*) FROM jobs WHERE state = 'queued'", 0)
        for runner in await self.site.store.live_runners():
            await self.site.conclude(runner)


@pytest.fixture(scope="module")
async def place(postgres: EmbeddedPostgres) -> AsyncIterator[Scene]:
    """One for all tests: a server takes seconds to start."""
    async with (
        _database(postgres, "lost_replies") as url,
        site(url) as found,
        Line.open() as line,
    ):
        server = await found.server()
        line.port = server.port
        await found.until("SELECT count(*) FROM accounts", 1)
        [(account,)] = await found.rows("SELECT id FROM accounts")
        await found.store.set_account_limits(account, Limits(runners=1))
        yield Scene(found, line, server)


@asynccontextmanager
async def _database(postgres: EmbeddedPostgres, name: str) -> AsyncIterator[str]:
    connection = await asyncpg.connect(postgres.url_of("postgres"))
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        yield postgres.url_of(name)
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


@pytest.fixture
async def scene(place: Scene) -> AsyncIterator[Scene]:
    try:
        yield place
    finally:
        await place.tidy()


@dataclass(frozen=True)
class Staged:
    pod: PodName
    name: str
    jit: str


async def poll(scene: Scene, directory: Path) -> Staged:
    """A Pod's poller, from its start to its end."""
    [pod] = await scene.site.pods(1)
    (directory / "token").write_text(pod)
    stage = directory / "stage"
    stage.mkdir()
    options = ["--server", scene.line.url, "--token-file", str(directory / "token")]
    options += ["--stage", str(stage), "--wait", "10"]
    poller = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", str(AGENT), "poll", *options),
        env={**os.environ, "PADDOCK_AGENT_SPEEDUP": "5"},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            _, said = await poller.communicate()
    finally:
        if poller.returncode is None:
            poller.kill()
            await poller.wait()
    assert poller.returncode == AgentExit.STAGED, said.decode()
    return Staged(pod, (stage / "name").read_text().strip(), (stage / "jit").read_text().strip())


async def nothing() -> None: ...


@pytest.mark.parametrize("point", list(Point), ids=lambda point: point.name)
async def test_a_reply_that_is_lost_costs_a_round_trip_and_no_second_mint(
    scene: Scene, point: Point, tmp_path: Path
) -> None:
    """I20"""
    scene.cut(point, nothing)
    scene.site.queue()

    staged = await poll(scene, tmp_path)

    assert not scene.line.waits, "it was cut"
    assert scene.mints_of(staged.pod) == [staged.name]
    assert len(scene.jits_said()) == 1, "the same as often as it asked"
    [(state,)] = await scene.site.rows("SELECT state FROM runners WHERE state <> 'gone'")
    assert state == "running"
    await scene.run_job(staged.jit)
    await scene.site.until("SELECT state FROM runners WHERE state <> 'gone'", "done")
    await scene.site.conclude(await scene.site.runner(staged.pod))
    assert await scene.another_gets_work()


@pytest.mark.parametrize("point", list(Point), ids=lambda point: point.name)
async def test_a_server_killed_on_the_way_leaves_one_usable_runner_and_at_most_one_ghost(
    scene: Scene, point: Point, tmp_path: Path
) -> None:
    """I16, I19, I20, I41: the rows tell the next server what the dead one had done."""
    scene.cut(point, scene.restart)
    scene.site.queue()

    staged = await poll(scene, tmp_path)

    assert not scene.line.waits, "it was killed"
    # A poller waits less long for its acknowledgement than a slow start may take.
    await scene.restarted.wait()
    ghosts = set(scene.mints_of(staged.pod)) - {staged.name}
    assert len(ghosts) in {Point.CLAIMED: {0, 1}, Point.MINTED: {1}}.get(point, {0})
    await scene.pay_debts()
    left = {runner.name for runner in scene.site.fake.world.runners.values() if not runner.removed}
    assert {name for name in left if name.startswith(staged.pod)} == {staged.name}
    await scene.run_job(staged.jit)
    await scene.site.until("SELECT state FROM runners WHERE state <> 'gone'", "done")
