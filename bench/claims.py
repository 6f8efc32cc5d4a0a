"""Claims per second, within limits, compared with queues that have no limits.

Every engine claims from a queue of the same depth, spread over the same accounts, with as many runners
in flight. Its claims name their Pods and are durable. Only claims are timed. Engines take turns in
short rounds, so that noise hits all alike, and the median round counts. The report also shows the
processor time of a claim, the client's and the server's together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType

from bench.common import (
    Neighbours,
    Report,
    environment,
    median,
    percentile,
    postgres,
    say,
    session,
    table,
)
from bench.engines.base import SECTION, Cell, Claimed, Engine, Section
from bench.engines.ours import Ours
from bench.engines.procrastinate import Procrastinate
from bench.engines.skip_locked import AccountLock, SkipLocked, SkipLockedBatches
from bench.processors import Spending
from paddock.store.embedded import EmbeddedPostgres

HEADLINE = Cell("1,000 deep, 50 accounts", depth=1_000, accounts=50, in_flight=500)
DEEP = Cell("100,000 deep, 50 accounts", depth=100_000, accounts=50, in_flight=500)
WIDE = Cell("100,000 deep, 1,000 accounts", depth=100_000, accounts=1_000, in_flight=5_000)
CELLS = (HEADLINE, DEEP, WIDE)
ENGINES: tuple[type[Engine], ...] = (
    Ours,
    Procrastinate,
    SkipLocked,
    SkipLockedBatches,
    AccountLock,
)

#: GitHub's hourly bucket lets one App mint 10,000 JITs, and every claim needs one.
MINTS_PER_S = 10_000 / 3600
#: Minimal ratios of our rate: with 100,000 jobs to that with 1,000; with 1,000 accounts to that of one
#: lock per claim; with 1,000 accounts to our own with 50.
GOALS = {
    "depth_100k_over_1k": 0.5,
    "account_lock_1k_accounts": 1.0,
    "many_accounts_over_few": 0.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    rounds: int
    #: Of timed claims, per engine and round.
    seconds: float
    #: Whether to choose the best number of workers in every cell, or once in the first.
    try_everywhere: bool


FULL = Effort(rounds=7, seconds=0.8, try_everywhere=True)
QUICK = Effort(rounds=3, seconds=0.25, try_everywhere=False)
#: Timed sections for each number of workers. Noise only slows, so the fastest of them counts.
TRIES = 3


@dataclass(slots=True)
class Contestant:
    """An engine at work in a cell, and its measurements."""

    engine: Engine
    in_flight: deque[Claimed]
    workers: int = 0
    rates: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    claims: int = 0
    violations: int = 0
    #: Processor time of client and server; 0 where the system does not report it.
    cpu_seconds: float = 0.0
    #: Deviations from the work that was asked for; with any, its rate is compared with nothing.
    problems: list[str] = field(default_factory=list)

    async def choose_workers(self) -> None:
        """Tries the numbers of workers in turn, several times, so that noise does not decide."""
        best = dict.fromkeys(self.engine.workers, 0.0)
        for attempt in range(TRIES + 1):
            for workers in self.engine.workers:
                await self.engine.use(workers)
                rate = await self._rate()
                if attempt > 0:  # in the first, statements are prepared and caches filled
                    best[workers] = max(best[workers], rate)
        await self.work_with(max(best, key=lambda workers: best[workers]))

    async def work_with(self, workers: int) -> None:
        self.workers = workers
        await self.engine.use(workers)
        await self.section()
        self.claims = self.violations = 0
        self.cpu_seconds = 0.0

    async def _rate(self) -> float:
        section = await self.section()
        return len(section.claims) / section.seconds

    async def round(self, effort: Effort) -> None:
        seconds, claims = 0.0, 0
        while seconds < effort.seconds:
            section = await self.section()
            seconds += section.seconds
            claims += len(section.claims)
            self.waits += section.waits
        self.rates.append(claims / seconds)

    async def section(self) -> Section:
        """One timed section, the database's view of it, and the untimed work after it."""
        depth, before = await self.engine.depth(), await self.engine.used()
        with Spending() as spent:
            section = await self.engine.section()
        after, marked = await self.engine.used(), await self.engine.marked(section.claims)
        self._check(section, depth=depth, added=sum(after.values()) - sum(before.values()))
        if marked != SECTION:
            self.problems.append(f"{marked} of {SECTION} claims found with their Pod")
        self.claims += len(section.claims)
        self.cpu_seconds += spent.seconds
        self.violations += self._over_limits(before, after)
        await self._recycle(section)
        return section

    def _check(self, section: Section, *, depth: int, added: int) -> None:
        jobs = {claim.job for claim in section.claims}
        if not len(section.claims) == len(jobs) == added == SECTION:
            self.problems.append(
                f"{len(section.claims)} claims of {len(jobs)} jobs, {added} in the database, "
                f"where {SECTION} were asked for"
            )
        if depth != self.engine.cell.depth:
            self.problems.append(f"{depth} jobs in the queue instead of {self.engine.cell.depth}")

    def _over_limits(self, before: dict[int, int], after: dict[int, int]) -> int:
        """Claims that took an account above its limit, or further above."""
        over = 0
        for account, used in after.items():
            limit = self.engine.cell.limit_of(account)
            if limit is not None:
                over += max(0, used - max(limit, before.get(account, 0)))
        return over

    async def _recycle(self, section: Section) -> None:
        self.in_flight.extend(section.claims)
        ended = [self.in_flight.popleft() for _ in section.claims]
        await self.engine.recycle(started=section.claims, ended=ended)

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def cpu_us(self) -> float:
        """Per claim; 0 where the system does not report it."""
        return self.cpu_seconds / self.claims * 1e6

    @property
    def p50_ms(self) -> float:
        return percentile(self.waits, 50) * 1e3

    @property
    def p99_ms(self) -> float:
        return percentile(self.waits, 99) * 1e3

    def data(self) -> dict[str, object]:
        return {
            "claims_per_s": round(self.rate, 1),
            "claims_per_s_by_round": [round(rate, 1) for rate in self.rates],
            "p50_ms": round(self.p50_ms, 3),
            "p99_ms": round(self.p99_ms, 3),
            "cpu_us_per_claim": round(self.cpu_us, 1) or None,
            "cap_violations": self.violations,
            "claims": self.claims,
            "workers": self.workers,
            "same_work": not self.problems,
            "problems": sorted(set(self.problems)),
        }


Results = dict[Cell, dict[str, Contestant]]


async def run(*, quick: bool) -> Report:
    effort = QUICK if quick else FULL
    neighbours = Neighbours()
    results: Results = {}
    workers: dict[str, int] = {}
    async with postgres() as server:
        about = await environment(server.url)
        for cell in CELLS:
            results[cell] = await _measure(server, cell, effort, workers)
    about["neighbours"] = neighbours.share()
    return Report(environment=about, data=_data(results), show=lambda: _tables(results))


async def _measure(
    server: EmbeddedPostgres, cell: Cell, effort: Effort, workers: dict[str, int]
) -> dict[str, Contestant]:
    """`workers`: the best number of workers of each engine, as far as known."""
    async with AsyncExitStack() as stack:
        say(f"{cell.name}: filling the queues")
        engines = []
        for kind in ENGINES:
            engine = kind(await stack.enter_async_context(_database(server, kind.name)), cell)
            stack.push_async_callback(engine.close)
            engines.append(engine)
        in_flight = await asyncio.gather(*(engine.open() for engine in engines))
        contestants = [
            Contestant(engine, deque(claims))
            for engine, claims in zip(engines, in_flight, strict=True)
        ]
        for engine in engines:
            await engine.tidy()
        async with session(server.url) as connection:
            await connection.execute("CHECKPOINT")
        for one in contestants:
            known = None if effort.try_everywhere else workers.get(one.engine.name)
            if known is None:
                counts = ", ".join(map(str, one.engine.workers))
                say(f"{cell.name}: {one.engine.title}: trying {counts} at once")
                await one.choose_workers()
                workers[one.engine.name] = one.workers
            else:
                await one.work_with(known)
        for number in range(effort.rounds):
            say(f"{cell.name}: round {number + 1} of {effort.rounds}")
            for one in contestants:
                await one.engine.tidy()
            for position in range(len(contestants)):
                await contestants[(position + number) % len(contestants)].round(effort)
    return {one.engine.name: one for one in contestants}


@asynccontextmanager
async def _database(server: EmbeddedPostgres, name: str) -> AsyncIterator[str]:
    async with session(server.url_of("postgres")) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    try:
        yield server.url_of(name)
    finally:
        async with session(server.url_of("postgres")) as connection:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _ratio(one: Contestant, other: Contestant) -> float | None:
    """None if the two did not do the same work."""
    return None if one.problems or other.problems else one.rate / other.rate


def _ratios(results: Results) -> dict[str, float | None]:
    headline = results[HEADLINE]
    return {
        "procrastinate": _ratio(headline["ours"], headline["procrastinate"]),
        "skip_locked": _ratio(headline["ours"], headline["skip_locked"]),
        "depth_100k_over_1k": _ratio(results[DEEP]["ours"], headline["ours"]),
        "account_lock_1k_accounts": _ratio(results[WIDE]["ours"], results[WIDE]["account_lock"]),
        "many_accounts_over_few": _ratio(results[WIDE]["ours"], results[DEEP]["ours"]),
    }


def _cpu_ratios(results: Results) -> dict[str, float | None]:
    """The ratio of another engine's processor time per claim to ours."""
    headline = results[HEADLINE]
    ours = headline["ours"]
    others = {name: headline[name] for name in ("procrastinate", "skip_locked")}
    return {
        name: other.cpu_us / ours.cpu_us if ours.cpu_us and _ratio(ours, other) else None
        for name, other in others.items()
    }


def _rounded(ratios: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if ratio is None else round(ratio, 2) for name, ratio in ratios.items()}


def _data(results: Results) -> dict[str, object]:
    ours = results[HEADLINE]["ours"]
    return {
        "ours": {
            "claims_per_s": round(ours.rate, 1),
            "p99_ms": round(ours.p99_ms, 3),
            "cap_violations": sum(engines["ours"].violations for engines in results.values()),
        },
        "ratio": _rounded(_ratios(results)),
        "cpu_ratio": _rounded(_cpu_ratios(results)),
        "goals": GOALS,
        "mint_budget_claims_per_s": round(MINTS_PER_S, 2),
        "cells": [
            {
                "name": cell.name,
                "depth": cell.depth,
                "accounts": cell.accounts,
                "in_flight": cell.in_flight,
                "engines": {name: one.data() for name, one in engines.items()},
            }
            for cell, engines in results.items()
        ],
    }


def _tables(results: Results) -> list[RenderableType]:
    shown: list[Any] = [_cell_table(cell, engines) for cell, engines in results.items()]
    shown += [
        f"{what}: {_shown(ratio)}" + (f" (goal: at least {GOALS[name]:g})" if name in GOALS else "")
        for (name, ratio), what in zip(
            _ratios(results).items(),
            (
                "ours over procrastinate",
                "ours over SKIP LOCKED, one by one",
                "ours at 100,000 deep over ours at 1,000",
                "ours with 1,000 accounts over a lock of the account per claim",
                "ours with 1,000 accounts over ours with 50, both 100,000 deep",
            ),
            strict=True,
        )
    ]
    shown.append(
        "In processor time a claim of procrastinate costs {procrastinate} times ours, one of "
        "SKIP LOCKED {skip_locked} times.".format_map(
            {name: _shown(ratio) for name, ratio in _cpu_ratios(results).items()}
        )
    )
    rate = results[HEADLINE]["ours"].rate
    shown.append(
        f"One App may mint {MINTS_PER_S * 60:.0f} JITs a minute ({MINTS_PER_S:.1f} a second): "
        f"its budget binds at 1/{rate / MINTS_PER_S:,.0f} of this rate.\n"
    )
    return shown


def _shown(ratio: float | None) -> str:
    return "not compared" if ratio is None else f"{ratio:.2f}"


def _cell_table(cell: Cell, engines: dict[str, Contestant]) -> RenderableType:
    ours = engines["ours"]
    rows = []
    for one in engines.values():
        ratio = _ratio(ours, one)
        rows.append(
            (
                one.engine.title,
                "; ".join(sorted(set(one.problems))) or f"{one.workers} at once",
                f"{one.rate:,.0f}",
                f"{min(one.rates):,.0f}–{max(one.rates):,.0f}",
                f"{one.p50_ms:.2f}",
                f"{one.p99_ms:.2f}",
                f"{one.cpu_us:.0f}" if one.cpu_us else "–",
                f"{one.violations:,} of {one.claims:,}",
                "–" if ratio is None or one is ours else f"{ratio:.2f}×",
            )
        )
    return table(
        f"{cell.name}, {cell.in_flight:,} runners in flight",
        "engine",
        "workers",
        "claims/s",
        "rounds",
        "p50 ms",
        "p99 ms",
        "CPU µs",
        "over a limit",
        "ours is",
        rows=rows,
    )
