"""The cost of dispatch in a small fleet and in a large one, with the same twenty jobs per second.

The replicas are complete, each a process of its own. This process plays the rest: Pods that wait,
sidecars that report, kubelets, GitHub's webhooks. The report shows the cost of that too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType

from bench.common import (
    Neighbours,
    Report,
    Unusable,
    environment,
    percentile,
    postgres,
    say,
    table,
)
from bench.fleet_site import JOBS_PER_S, World, site
from paddock.store.embedded import EmbeddedPostgres

GOALS = {"ratio.p50": 2.0, "large.p99_ms": 200.0, "large.round_s": 1.0, "large.rss_mib": 600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    #: Until as many jobs end as begin.
    before: float
    #: For how long jobs are counted.
    seconds: float
    history: int


FULL = Effort(before=20.0, seconds=60.0, history=1_000_000)
QUICK = Effort(before=12.0, seconds=15.0, history=200_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    world: World
    #: From the webhook to the JIT in a Pod's hands, in seconds. A job without a JIT has waited from its
    #: webhook to the end of the measurement.
    waits: list[float]
    unserved: int
    late: float
    refused: int
    round_s: float
    rounds: int
    rss_mib: float
    #: Fractions of a core: the replicas' together, PostgreSQL's, GitHub's, this process'.
    used: dict[str, float]

    def ms(self, percent: float) -> float:
        return percentile(self.waits, percent) * 1e3

    def data(self) -> dict[str, object]:
        return {
            "p50_ms": round(self.ms(50), 2),
            "p99_ms": round(self.ms(99), 2),
            "max_ms": round(self.ms(100), 2),
            "round_s": round(self.round_s, 3),
            "rounds": self.rounds,
            "rss_mib": round(self.rss_mib, 1),
            "cpu_fraction": round(self.used["server"], 3),
            "postgres_cpu_fraction": round(self.used["postgres"], 3),
            "github_cpu_fraction": round(self.used["github"], 3),
            "load_cpu_fraction": round(self.used["load"], 3),
            "jobs": len(self.waits),
            "unserved_jobs": self.unserved,
            "refused_requests": self.refused,
            "sent_late_at_most_ms": round(self.late * 1e3, 2),
            "world": {
                name: getattr(self.world, name)
                for name in ("replicas", "pools", "accounts", "idle", "busy", "history")
            },
        }


async def run(*, quick: bool) -> Report:
    effort = QUICK if quick else FULL
    small = World(name="small", replicas=1, pools=1, accounts=50, idle=1_000, busy=0, history=0)
    large = World(
        name="large",
        replicas=2,
        pools=20,
        accounts=1_000,
        idle=10_000,
        busy=2_000,
        history=effort.history,
    )
    neighbours = Neighbours()
    async with postgres() as server:
        about = await environment(server.url)
        measured = [await _measure(server, world, effort) for world in (small, large)]
    about["neighbours"] = neighbours.share()
    return Report(environment=about, data=_data(*measured), show=lambda: _tables(*measured))


async def _measure(server: EmbeddedPostgres, world: World, effort: Effort) -> Measured:
    async with site(server, world) as place:
        place.begin(place.queue_jobs())
        say(f"{world.name}: {JOBS_PER_S} jobs per second")
        await asyncio.sleep(effort.before)
        rounds, processors, began = await place.rounds(), place.processors(), time.perf_counter()
        place.late, place.refused = 0.0, 0
        await asyncio.sleep(effort.seconds)
        ended, used = time.perf_counter(), place.processors()
        count, seconds = await place.rounds()
        # Time for the last jobs to be served.
        await asyncio.sleep(5.0)
        place.check()
        waits = [wait for sent, wait in place.waits if began <= sent < ended]
        # Without them a server that drops jobs would seem faster.
        unserved = [wait for sent, wait in place.unserved() if began <= sent < ended]
        expected = effort.seconds * JOBS_PER_S
        if len(waits) < 0.95 * expected:
            raise Unusable(f"{len(waits)} of {expected:.0f} jobs were served in time.")
        if count == rounds[0]:
            raise Unusable("recovery did not end a round.")
        return Measured(
            world=world,
            waits=waits + unserved,
            unserved=len(unserved),
            late=place.late,
            refused=place.refused,
            rounds=int(count - rounds[0]),
            round_s=(seconds - rounds[1]) / (count - rounds[0]),
            rss_mib=place.rss_mib(),
            used={
                name: (used[name] - before) / (ended - began) for name, before in processors.items()
            },
        )


def _data(small: Measured, large: Measured) -> dict[str, object]:
    return {
        "small": small.data(),
        "large": large.data(),
        "ratio": {"p50": round(large.ms(50) / small.ms(50), 2)},
        "jobs_per_s": JOBS_PER_S,
        "goals": GOALS,
    }


def _tables(small: Measured, large: Measured) -> Sequence[RenderableType]:
    def row(what: str, unit: str, values: tuple[float, float], goal: str = "") -> list[str]:
        return [what, unit, *(f"{value:,.2f}" for value in values), goal]

    def share(part: str) -> tuple[float, float]:
        return small.used[part], large.used[part]

    worlds = [
        f"{each.world.name}: {each.world.pools:,} pools, {each.world.accounts:,} accounts, "
        f"{each.world.idle:,} idle and {each.world.busy:,} busy Pods on {each.world.replicas} "
        f"replicas, {each.world.history:,} jobs of history"
        for each in (small, large)
    ]
    ratio = large.ms(50) / small.ms(50)
    found = table(
        f"{JOBS_PER_S} jobs per second",
        *("", "", "small", "large", "goal"),
        rows=[
            row("webhook to JIT", "p50 ms", (small.ms(50), large.ms(50)), "large ≤ 2 × small"),
            row("", "p99 ms", (small.ms(99), large.ms(99)), "≤ 200"),
            row("round of recovery", "s", (small.round_s, large.round_s), "≤ 1"),
            row("memory of a replica", "MiB", (small.rss_mib, large.rss_mib), "≤ 600"),
            row("replicas", "cores", share("server")),
            row("PostgreSQL", "cores", share("postgres")),
            row("GitHub (played)", "cores", share("github")),
            row("all else (played)", "cores", share("load")),
            row("jobs without a JIT", "", (small.unserved, large.unserved)),
            row("requests answered 503", "", (small.refused, large.refused)),
            row("webhooks sent late", "ms", (small.late * 1e3, large.late * 1e3)),
        ],
    )
    return (
        *worlds,
        found,
        f"p50, large over small: {ratio:.2f} (goal: at most {GOALS['ratio.p50']:g})",
    )
