"""Webhooks: signed `workflow_job` deliveries per second to a durable row, beside a receiver of the
usual Python shape.

Both check the signature, read the same fields and write the same row into the same table of the same
PostgreSQL, which syncs. Both get the same bursts from the same separate process, over open
connections, and take turns. The peer is Flask on gunicorn, with its best number of threads, psycopg
with its pool, and one transaction per request. Its table lacks the trigger that wakes our loops: such
a receiver does not use it, and NOTIFY would serialise its commits.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType

from bench.common import (
    Report,
    Unusable,
    environment,
    median,
    percentile,
    postgres,
    say,
    session,
    table,
)
from paddock.domain.accounts import MintBudget
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.migrate import migrate
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds

#: One App's deliveries when some twenty matrices start together.
BURST = 5_000
CONNECTIONS = 128
SECRET = "secret"
APP_ID = 12
GOALS = {"flask": 5.0, "non_2xx": 0}
#: A fraction of a core. Above this the sender is about to be the bottleneck.
MOST_LOAD = 0.8
#: Above this load before the start, the numbers say little.
BUSY = 1.0
#: Until a program that was just started on a busy machine answers.
PATIENCE = 30.0

_ROW = "SELECT guid, event, action, installation_id, payload, state FROM deliveries ORDER BY guid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    rounds: int
    #: Flask's numbers of threads, of which the best is kept.
    threads: Sequence[int]
    processes: Sequence[int]


FULL = Effort(rounds=7, threads=(4, 8, 16, 32), processes=(1, 2))
QUICK = Effort(rounds=3, threads=(8, 16), processes=(1,))


@dataclass(slots=True)
class Contestant:
    name: str
    title: str
    url: str
    processes: int
    threads: int = 0
    ports: list[int] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    #: The most of a core that the sender needed.
    load: float = 0.0

    async def burst(self, seed: int) -> float:
        """Sends one burst, verifies what was stored, and returns the rate."""
        async with session(self.url) as connection:
            await connection.execute("TRUNCATE deliveries")
            await connection.execute("CHECKPOINT")
        sent = await _send(self.ports, seed)
        accepted = 0
        for status, count in sent["statuses"].items():
            self.statuses[status] = self.statuses.get(status, 0) + count
            accepted += count if status.startswith("2") else 0
        async with session(self.url) as connection:
            stored = await connection.fetchval("SELECT count(*) FROM deliveries")
        if stored != accepted:
            raise Unusable(f"{self.title} acknowledged {accepted} deliveries and stored {stored}.")
        self.waits += sent["waits"]
        self.load = max(self.load, sent["cpu_share"])
        if self.load > MOST_LOAD:
            raise Unusable(
                f"The sender used {self.load:.0%} of a core: it, and not the receiver, was measured."
            )
        rate: float = BURST / sent["seconds"]
        return rate

    async def rows(self) -> list[tuple[object, ...]]:
        async with session(self.url) as connection:
            return [tuple(row) for row in await connection.fetch(_ROW)]

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def non_2xx(self) -> int:
        return sum(count for status, count in self.statuses.items() if status[0] != "2")

    def data(self) -> dict[str, object]:
        return {
            "per_s": round(self.rate, 1),
            "per_s_by_round": [round(rate, 1) for rate in self.rates],
            "p50_ms": round(percentile(self.waits, 50) * 1e3, 2),
            "p99_ms": round(percentile(self.waits, 99) * 1e3, 2),
            "non_2xx": self.non_2xx,
            "processes": self.processes,
            **({"threads": self.threads} if self.threads else {}),
            "sender_cores": round(self.load, 2),
        }


async def _send(ports: Sequence[int], seed: int) -> dict[str, Any]:
    options = {"connections": CONNECTIONS, "count": BURST, "seed": seed, "secret": SECRET}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.receivers.load", "--ports", *map(str, ports)),
        *(part for name, value in options.items() for part in (f"--{name}", str(value))),
        stdout=subprocess.PIPE,
    )
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise Unusable("The sender failed; what it said is above.")
    sent: dict[str, Any] = json.loads(out)
    return sent


async def run(*, quick: bool) -> Report:
    effort = QUICK if quick else FULL
    async with postgres() as server:
        about = await environment(server.url)
        cells = [await _measure(server, processes, effort) for processes in effort.processes]
    return Report(environment=about, data=_data(cells), show=lambda: _tables(cells, about))


async def _measure(
    server: EmbeddedPostgres, processes: int, effort: Effort
) -> dict[str, Contestant]:
    async with AsyncExitStack() as stack:
        ours_url = await stack.enter_async_context(_database(server, "ours"))
        flask_url = await stack.enter_async_context(_database(server, "flask"))
        async with session(flask_url) as connection:
            await connection.execute("DROP TRIGGER deliveries_inserted ON deliveries")
        flask = Contestant("flask", "Flask, gunicorn, psycopg", flask_url, processes)
        flask.threads = await _best_threads(flask, effort)
        ours = Contestant("ours", "paddock", ours_url, processes)
        await stack.enter_async_context(_paddock(ours))
        await stack.enter_async_context(_gunicorn(flask))
        contestants = [ours, flask]
        for one in contestants:
            await one.burst(seed=0)
        if await ours.rows() != await flask.rows():
            raise Unusable("The two do not write the same rows.")
        for one in contestants:
            one.waits.clear()
        for number in range(effort.rounds):
            say(f"{_plural(processes)}: round {number + 1} of {effort.rounds}")
            for one in contestants if number % 2 else reversed(contestants):
                one.rates.append(await one.burst(seed=number + 1))
    return {one.name: one for one in contestants}


async def _best_threads(flask: Contestant, effort: Effort) -> int:
    best = {}
    for threads in effort.threads:
        tried = Contestant("flask", flask.title, flask.url, flask.processes, threads)
        say(f"{_plural(flask.processes)}: {flask.title}: trying {threads} threads")
        async with _gunicorn(tried):
            await tried.burst(seed=0)
            best[threads] = max([await tried.burst(seed=seed) for seed in (1, 2)])
    return max(best, key=lambda threads: best[threads])


@asynccontextmanager
async def _database(server: EmbeddedPostgres, name: str) -> AsyncIterator[str]:
    async with session(server.url_of("postgres")) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    try:
        database = await Database.connect(server.url_of(name))
        try:
            await migrate(database)
            store = PgStore(database, clock=SystemClock(), ids=SystemIds(), actor="bench")
            host = await store.ensure_host("github.com", api_url="https://api.github.com")
            await store.ensure_app(host, APP_ID, mints=MintBudget())
        finally:
            await database.close()
        yield server.url_of(name)
    finally:
        async with session(server.url_of("postgres")) as connection:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def _paddock(contestant: Contestant) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for _ in range(contestant.processes):
            process = await stack.enter_async_context(
                _program(
                    *("-m", "bench.receivers.ours"),
                    PADDOCK_DATABASE_URL=contestant.url,
                    PADDOCK_LISTEN="127.0.0.1:0",
                    PADDOCK_GITHUB_APP_ID=str(APP_ID),
                    PADDOCK_GITHUB_PRIVATE_KEY_FILE="none-is-needed",
                    PADDOCK_GITHUB_WEBHOOK_SECRET=SECRET,
                )
            )
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().strip()
            contestant.ports.append(int(url.rpartition(":")[2]))
        yield


@asynccontextmanager
async def _gunicorn(contestant: Contestant) -> AsyncIterator[None]:
    async with session(contestant.url) as connection:
        [row] = await connection.fetch("SELECT id, host_id FROM apps")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    async with _program(
        *("-m", "gunicorn", "--worker-class", "gthread", "--log-level", "error"),
        *("--workers", str(contestant.processes), "--threads", str(contestant.threads)),
        *("--bind", f"127.0.0.1:{port}", "bench.receivers.flask_app:create_app()"),
        DATABASE_URL=contestant.url,
        WEBHOOK_SECRET=SECRET,
        HOST_ID=str(row["host_id"]),
        APP_ID=str(row["id"]),
        THREADS=str(contestant.threads),
    ):
        await _answering(port)
        contestant.ports = [port]
        yield


@asynccontextmanager
async def _program(*arguments: str, **variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=subprocess.PIPE, env={**kept, **variables}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _answering(port: int) -> None:
    request = b"POST /webhooks/github HTTP/1.0\r\nContent-Length: 0\r\n\r\n"
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(request)
                    answer = await reader.read()
                    writer.close()
                except OSError:
                    answer = b""
                if b" 401 " in answer:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise Unusable(f"gunicorn did not answer within {PATIENCE:g} s.") from None


def _plural(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"


def _ratio(cell: dict[str, Contestant]) -> float:
    return cell["ours"].rate / cell["flask"].rate


def _data(cells: Sequence[dict[str, Contestant]]) -> dict[str, object]:
    headline = cells[0]
    ours = headline["ours"].data()
    return {
        "ours": {name: ours[name] for name in ("per_s", "p99_ms")}
        | {"non_2xx": sum(cell["ours"].non_2xx for cell in cells)},
        "ratio": {"flask": round(_ratio(headline), 2)},
        "goals": GOALS,
        "burst": BURST,
        "connections": CONNECTIONS,
        "cells": [
            {
                "processes": cell["ours"].processes,
                "ratio": {"flask": round(_ratio(cell), 2)},
                "receivers": {name: one.data() for name, one in cell.items()},
            }
            for cell in cells
        ],
    }


def _tables(
    cells: Sequence[dict[str, Contestant]], about: Mapping[str, object]
) -> list[RenderableType]:
    shown: list[RenderableType] = [_cell_table(cell) for cell in cells]
    most = max(one.load for cell in cells for one in cell.values())
    shown += [
        f"ours over Flask, 1 process each: {_ratio(cells[0]):.2f} (goal: at least {GOALS['flask']:g})",
        f"answers of ours that were not 2xx: {sum(cell['ours'].non_2xx for cell in cells)} (goal: 0)",
        f"The sender used {most:.0%} of a core at most, so it delayed no client.\n",
    ]
    if float(str(about["load_before"])) > BUSY:
        shown.append(
            "This machine was busy with other things. A peer of many threads then gets a larger share "
            "of it than a single one does: measure again when it is quiet.\n"
        )
    return shown


def _cell_table(cell: dict[str, Contestant]) -> RenderableType:
    ours = cell["ours"]
    rows = [
        (
            one.title,
            f"{one.threads} threads" if one.threads else "1 thread",
            f"{one.rate:,.0f}",
            f"{min(one.rates):,.0f}–{max(one.rates):,.0f}",
            f"{percentile(one.waits, 50) * 1e3:.1f}",
            f"{percentile(one.waits, 99) * 1e3:.1f}",
            f"{one.non_2xx:,}",
            "–" if one is ours else f"{_ratio(cell):.2f}×",
        )
        for one in cell.values()
    ]
    return table(
        f"Bursts of {BURST:,} on {CONNECTIONS} connections, {_plural(ours.processes)} each",
        "receiver",
        "each with",
        "deliveries/s",
        "rounds",
        "p50 ms",
        "p99 ms",
        "not 2xx",
        "ours is",
        rows=rows,
    )
