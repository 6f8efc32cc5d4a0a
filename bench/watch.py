"""Following Pods: a list of 5,000 and 20,000 events, received and decoded into what a controller
needs, compared with kubernetes_asyncio and kopf.

All get the same bytes from the same separate process, over plain HTTP on the loopback. At the end each
hands in its knowledge of each Pod; a ratio is shown only if the results are equal. Each is a process
of its own, so that memory can be compared. Start-up is not counted: the clock begins with the first
request for Pods. Writing a list's changes to our rows is measured separately.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.request import urlopen

import msgspec
from rich.console import RenderableType

from bench.common import Neighbours, Report, Unusable, environment, median, postgres, say, table
from bench.watchers.stream import stream
from paddock.domain.ids import RunnerId
from paddock.domain.limits import Resources
from paddock.domain.pods.pod import Pod
from paddock.domain.pools.pool import PoolFacts
from paddock.fleet.kube.objects import PodObject
from paddock.fleet.kube.pods import shown
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.migrate import migrate
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds

GOALS = {"kubernetes_asyncio": 20.0, "kopf": 10.0}
#: A fraction of a core. Above this the server is about to be the bottleneck.
MOST_LOAD = 0.8
#: Until the server has rendered what it serves.
PATIENCE = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    pods: int
    events: int
    #: Rounds of ours. The others take minutes, and get one round each after it.
    rounds: int


FULL = Effort(pods=5_000, events=20_000, rounds=5)
QUICK = Effort(pods=1_000, events=4_000, rounds=3)


@dataclass(slots=True)
class Follower:
    name: str
    title: str
    way: str
    command: Sequence[str]
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    rss_mib: float = 0.0
    digest: str = ""
    load: float = 0.0

    async def follow(self, port: int, objects: int) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"bench.watchers.{self.command[0]}", str(port)),
            *self.command[1:],
            stdout=subprocess.PIPE,
        )
        out, _ = await process.communicate()
        if process.returncode != 0:
            raise Unusable(f"{self.title} failed; what it said is above.")
        found: dict[str, Any] = json.loads(out)
        asked = await asyncio.to_thread(_asked, port)
        seconds = found["ended"] - asked["at"]
        if asked["cpu"] / seconds > MOST_LOAD:
            raise Unusable(
                f"The server used {asked['cpu'] / seconds:.0%} of a core: it, and not {self.title}, "
                "was measured."
            )
        self.rates.append(objects / seconds)
        self.cpu.append(found["cpu"])
        self.load = max(self.load, asked["cpu"] / seconds)
        self.rss_mib = max(self.rss_mib, found["rss_mib"])
        self.digest = found["digest"]

    @property
    def rate(self) -> float:
        return median(self.rates)

    def data(self) -> dict[str, object]:
        return {
            "events_per_s": round(self.rate, 1),
            "events_per_s_by_round": [round(rate, 1) for rate in self.rates],
            "cpu_s": round(median(self.cpu), 2),
            "rss_mib": round(self.rss_mib, 1),
        }


def _asked(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/asked") as answer:
        found: dict[str, float] = json.load(answer)
    return found


def followers() -> list[Follower]:
    return [
        Follower("ours", "paddock", "the fields that decide", ["ours"]),
        Follower("kopf", "kopf", "one handler of events", ["with_kopf"]),
        Follower(
            "kubernetes_asyncio",
            "kubernetes_asyncio",
            "its models, as in its examples",
            ["with_kubernetes_asyncio", "models"],
        ),
        Follower(
            "kubernetes_asyncio_dicts",
            "kubernetes_asyncio",
            "kept from making models",
            ["with_kubernetes_asyncio", "dicts"],
        ),
    ]


async def run(*, quick: bool) -> Report:
    effort = QUICK if quick else FULL
    neighbours = Neighbours()
    async with postgres() as server:
        about = await environment(server.url)
        say(f"writing what a list of {effort.pods:,} Pods shows to their rows")
        applied = await _applied(server, effort)
    contestants = followers()
    async with _serving(effort) as port:
        for number in range(effort.rounds):
            await _one(contestants[0], port, effort)
            if number < len(contestants) - 1:
                await _one(contestants[number + 1], port, effort)
    about["neighbours"] = neighbours.share()
    return Report(
        environment=about,
        data=_data(contestants, applied, effort),
        show=lambda: _tables(contestants, applied, effort),
    )


async def _one(follower: Follower, port: int, effort: Effort) -> None:
    say(f"{follower.title}, {follower.way}: round {len(follower.rates) + 1}")
    await follower.follow(port, effort.pods + effort.events)


@asynccontextmanager
async def _serving(effort: Effort) -> AsyncIterator[int]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.watchers.server", str(effort.pods), str(effort.events)),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            port = int(await process.stdout.readline())
        yield port
    finally:
        process.terminate()
        await process.wait()


async def _applied(server: EmbeddedPostgres, effort: Effort) -> float:
    """Rows per second: a pool of as many runners, and lists that each change all of them."""
    database = await Database.connect(server.url)
    try:
        await migrate(database)
        clock, ids = SystemClock(), SystemIds()
        store = PgStore(database, clock=clock, ids=ids, actor="bench")
        pool_id = await store.apply_pool(_pool())
        pods = [
            shown(msgspec.json.decode(line, type=PodObject)) for line in stream(effort.pods, 1).pods
        ]
        planned = [(RunnerId(ids.uuid()), pod.name) for pod in pods]
        await store.plan_runners(pool_id, planned, why="bench")
        times = []
        for number in range(effort.rounds):
            began = time.perf_counter()
            await store.note_pods(_moved(pods, number), read_at=clock.now())
            times.append(time.perf_counter() - began)
    finally:
        await database.close()
    return effort.pods / median(times)


def _pool() -> PoolFacts:
    return PoolFacts(
        name="linux",
        labels=("linux",),
        shape="gated",
        cost=Resources(),
        max_runners=None,
        spec="{}",
        spec_hash="v1",
    )


def _moved(pods: Sequence[Pod], number: int) -> list[Pod]:
    """Each on another node: the largest change that a list can bring."""
    return [replace(pod, node=f"node-{number}") for pod in pods]


def _ratio(contestants: Sequence[Follower], name: str) -> float | None:
    """None if the work was not the same."""
    ours, other = contestants[0], _named(contestants, name)
    return ours.rate / other.rate if other.digest == ours.digest else None


def _named(contestants: Sequence[Follower], name: str) -> Follower:
    return next(each for each in contestants if each.name == name)


def _data(contestants: Sequence[Follower], applied: float, effort: Effort) -> dict[str, object]:
    ratios = {
        each.name: None if (ratio := _ratio(contestants, each.name)) is None else round(ratio, 1)
        for each in contestants[1:]
    }
    return {
        **{each.name: each.data() for each in contestants},
        "ratio": ratios,
        "rows_applied_per_s": round(applied, 1),
        "goals": GOALS,
        "load": {"pods": effort.pods, "events": effort.events},
    }


def _tables(
    contestants: Sequence[Follower], applied: float, effort: Effort
) -> list[RenderableType]:
    rows = []
    for each in contestants:
        ratio = _ratio(contestants, each.name)
        goal = GOALS.get(each.name)
        told = "other work" if ratio is None else f"{ratio:.1f}×"
        rows.append(
            (
                each.title,
                each.way,
                f"{each.rate:,.0f}",
                f"{median(each.cpu):.1f}",
                f"{each.rss_mib:,.0f}",
                "–" if each is contestants[0] else told,
                f"{goal:g}×" if goal else "–",
            )
        )
    most = max(each.load for each in contestants)
    return [
        table(
            f"A list of {effort.pods:,} Pods and {effort.events:,} events, decoded",
            *("", "into", "events/s", "CPU s", "RSS MiB", "ours is", "goal"),
            rows=rows,
        ),
        f"What a list shows is written to {applied:,.0f} rows per second.",
        f"The server used {most:.0%} of a core at most, so it delayed no client.\n",
    ]
