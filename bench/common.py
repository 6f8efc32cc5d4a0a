"""Shared by all benchmarks: a PostgreSQL that really syncs, progress, and one form of report.

Progress goes to stderr, results to stdout, so that `--json` can be piped.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from rich.console import Console, Group, RenderableType
from rich.table import Table

from paddock.store.embedded import EmbeddedPostgres

#: Durable as in production. Vacuums and checkpoints run only where a benchmark asks for them, between
#: timed sections: otherwise they would hit the engine that happens to be running.
SERVER: Mapping[str, str] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "max_wal_size": "16GB",
    "shared_buffers": "512MB",
    "max_connections": "200",
}

_SHOWN = (*SERVER, "commit_delay")

#: Up to this share of the machine, other processes are the usual background load.
QUIET = 0.1

_began = time.monotonic()


class Unusable(Exception):
    """A benchmark that cannot give usable numbers; its message says why in one sentence."""


def say(text: str) -> None:
    print(f"[{time.monotonic() - _began:6.1f} s] {text}", file=sys.stderr, flush=True)


@asynccontextmanager
async def postgres(*, commit_ms: float = 0.0) -> AsyncIterator[EmbeddedPostgres]:
    """`commit_ms`: by how much every commit is longer, as on a slower disk."""
    slower = (
        {"commit_delay": f"{commit_ms * 1000:.0f}", "commit_siblings": "0"} if commit_ms else {}
    )
    with _open_directory() as path:
        async with EmbeddedPostgres(
            path / "data", settings={**SERVER, **slower}, say=say
        ) as server:
            yield server


@contextmanager
def _open_directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="paddock-bench-"))
    # PostgreSQL does not run as root; its user must be able to enter.
    path.chmod(0o711 if os.geteuid() == 0 else 0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def session(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def environment(url: str) -> dict[str, object]:
    async with session(url) as connection:
        version = await connection.fetchval("SHOW server_version")
        settings = {name: await connection.fetchval(f"SHOW {name}") for name in _SHOWN}
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "postgresql": version,
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "settings": settings,
    }


class Neighbours:
    """What else ran on the machine meanwhile: with little to spare, a rate shows that load more than
    the measured program."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy, self._ours = _busy_seconds(), sum(os.times()[:4])

    def share(self) -> float | None:
        """The share of all cores' time that was neither idle nor ours; None where the system does not
        report it. Call it when our processes have ended: their time is known only then."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        others = busy - self._busy - (sum(os.times()[:4]) - self._ours)
        seconds = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return round(max(0.0, others / seconds), 2)


def _busy_seconds() -> float | None:
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, fields)
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile by nearest rank: a value that was measured."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def table(title: str, *columns: str, rows: Sequence[Sequence[str]]) -> Table:
    """The first two columns are text, the others numbers."""
    drawn = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        drawn.add_column(column, justify="left" if number < 2 else "right")
    for row in rows:
        drawn.add_row(*row)
    return drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a benchmark, as data and as text."""

    environment: Mapping[str, object]
    data: Mapping[str, object]
    show: Callable[[], Sequence[RenderableType]]

    def print_json(self) -> None:
        print(json.dumps({**self.data, "environment": self.environment}, indent=2))

    def print(self) -> None:
        about = self.environment
        settings = about["settings"]
        assert isinstance(settings, dict)
        line = (
            f"{about['cores']} cores ({about['machine']}), PostgreSQL {about['postgresql']} with "
            f"fsync {settings['fsync']} and synchronous_commit {settings['synchronous_commit']}, "
            f"Python {about['python']}, load {about['load_before']} before"
        )
        share = about.get("neighbours")
        if isinstance(share, float) and share > QUIET:
            line += (
                f"\nOther processes used {share:.0%} of the machine meanwhile: these numbers are not "
                "to be quoted. Measure again when it is quiet."
            )
        # Wide enough for the tables when the output goes to a file.
        console = Console() if sys.stdout.isatty() else Console(width=120)
        console.print(Group(*self.show(), line), highlight=False)
