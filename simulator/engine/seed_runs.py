"""Where seeds are run: a PostgreSQL without durability, and one process per core.

The two runs of a seed are two tasks, mostly in two processes. The processes share neither memory nor
the order of a set's elements, and must produce the same trace all the same.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NoReturn

import asyncpg

from paddock.fakes.github.keys import make_private_key
from paddock.store.database import Database
from paddock.store.embedded import DATABASE, EmbeddedPostgres
from paddock.store.migrate import migrate
from simulator.engine.checks import Promise, Violation
from simulator.engine.database import Session
from simulator.engine.simulation import Key, Result, SeedPlan, simulate

#: Nothing is durable, and nothing runs in the background.
_SETTINGS: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "jit": "off",
    "max_wal_size": "256MB",
}
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory of our own is made in it
_ENOUGH: Final = 2 * 2**30


class SeedRuns:
    """`with laboratory() as lab: for plan, results in lab.run(plans): …`"""

    def __init__(self, url: str, key: Path) -> None:
        self._url = url
        self._key = key

    @contextmanager
    def session(self) -> Iterator[tuple[Session, Key]]:
        """A session for a run in this process."""
        worker = _Worker(self._url, self._key)
        try:
            yield worker.session, worker.key
        finally:
            worker.close()

    def run(
        self, plans: Sequence[SeedPlan], *, times: int = 2, workers: int | None = None
    ) -> Iterator[tuple[SeedPlan, list[Result]]]:
        """All runs of each plan, in the order in which they are done."""
        with self.workers(min(workers or os.cpu_count() or 1, len(plans) * times)) as pool:
            tasks: dict[Future[Result], SeedPlan] = {
                pool.submit(_run, plan): plan for plan in plans for _ in range(times)
            }
            done: dict[SeedPlan, list[Result]] = {}
            for task in as_completed(tasks):
                plan = tasks.pop(task)
                results = done.setdefault(plan, [])
                results.append(task.result())
                if len(results) == times:
                    yield plan, done.pop(plan)

    @contextmanager
    def workers(self, count: int) -> Iterator[ProcessPoolExecutor]:
        """Processes with a database each. They end with this process, however it ends, and at once if
        the caller fails."""
        context = get_context("spawn")
        wanted, want = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(
            count, mp_context=context, initializer=_begin, initargs=(self._url, self._key, wanted)
        )
        try:
            yield pool
        except BaseException:
            want.close()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            want.close()
            wanted.close()


def differing(results: Sequence[Result]) -> Violation | None:
    """A seed that does not replay proves nothing."""
    if len({result.digest for result in results}) <= 1:
        return None
    told = ", ".join(f"{result.steps} steps" for result in results)
    return Violation(Promise.REPLAYS, f"its runs differ: {told}", results[0].steps, 0.0)


@contextmanager
def laboratory() -> Iterator[SeedRuns]:
    with _terminable(), _directory() as directory, asyncio.Runner() as runner:
        key = directory / "app.pem"
        key.write_text(make_private_key())
        server = EmbeddedPostgres(directory / "data", settings=_SETTINGS)
        runner.run(server.__aenter__())
        try:
            runner.run(_prepare(server.url))
            yield SeedRuns(server.url, key)
        finally:
            runner.run(server.__aexit__(None, None, None))


@contextmanager
def _terminable() -> Iterator[None]:
    """On SIGTERM this process cleans up as after Ctrl-C: no other process would remove its server and
    directory."""

    def leave(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _directory() -> Iterator[Path]:
    free = shutil.disk_usage(_IN_MEMORY).free if os.access(_IN_MEMORY, os.W_OK) else 0
    path = Path(tempfile.mkdtemp(prefix="paddock-sim-", dir=_IN_MEMORY if free > _ENOUGH else None))
    path.chmod(0o711 if os.geteuid() == 0 else 0o700)  # PostgreSQL's user may differ from ours
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def _prepare(url: str) -> None:
    database = await Database.connect(url)
    try:
        await migrate(database)
    finally:
        await database.close()


class _Worker:
    """A process of its own with a database of its own."""

    def __init__(self, url: str, key: Path) -> None:
        name = f"sim_{os.getpid()}"
        asyncio.run(_make_database(url, name))
        self.session = Session.open(url.replace(f"/{DATABASE}?", f"/{name}?"))
        self.key = Key(key)

    def close(self) -> None:
        self.session.close()


async def _make_database(url: str, name: str) -> None:
    connection = await asyncpg.connect(url.replace(f"/{DATABASE}?", "/postgres?"))
    try:
        # Workers start at the same time, and a template can be copied by one at a time.
        await connection.execute("SELECT pg_advisory_lock(1)")
        await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {DATABASE} STRATEGY FILE_COPY")
    finally:
        await connection.close()


_worker: _Worker | None = None


def _begin(url: str, key: Path, wanted: Connection) -> None:
    global _worker  # noqa: PLW0603 - a worker process is one worker
    threading.Thread(target=_end_when_unwanted, args=(wanted,), daemon=True).start()
    _worker = _Worker(url, key)


def _end_when_unwanted(wanted: Connection) -> None:
    """The parent never sends anything: this worker ends when the parent's end of the pipe closes."""
    wanted.poll(None)
    os._exit(1)


def _run(plan: SeedPlan) -> Result:
    assert _worker is not None
    return simulate(plan, session=_worker.session, key=_worker.key)
