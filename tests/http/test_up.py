"""`paddock up`, as a new user runs it: jobs are queued, dispatched, run and completed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import asyncpg
import pytest

from paddock.store.data_directory import running_url
from tests.support.directories import open_directory
from tests.support.processes import paddock
from tools.ports import free_port

pytestmark = pytest.mark.slow


@asynccontextmanager
async def up(
    data_dir: Path,
    *options: str,
    port: int = 0,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[asyncio.subprocess.Process]:
    kept = {name: value for name, value in os.environ.items() if "PADDOCK" not in name}
    with (data_dir.parent / "up.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "paddock", "up", "--data-dir", str(data_dir), *options),
            env={**kept, "PADDOCK_LISTEN": f"127.0.0.1:{port}", **environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                await process.wait()


async def ask(data_dir: Path, query: str) -> list[tuple[object, ...]]:
    url = running_url(data_dir)
    if url is None:
        return []
    try:
        connection = await asyncpg.connect(url)
    except (OSError, asyncpg.PostgresError):
        return []
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    except asyncpg.UndefinedTableError:
        return []
    finally:
        await connection.close()


async def until(data_dir: Path, query: str, wanted: int) -> None:
    async with asyncio.timeout(90):
        while True:
            found = await ask(data_dir, query)
            if found and isinstance(found[0][0], int) and found[0][0] >= wanted:
                return
            await asyncio.sleep(0.2)


def processes_of(data_dir: Path) -> list[tuple[int, str]]:
    """Their ids and command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(data_dir) in command:
            found.append((int(entry.parent.name), command))
    return found


IDLE = "SELECT pod_name FROM runners WHERE state = 'idle'"
DONE = """
SELECT count(*) FROM jobs j JOIN runners r ON r.id = j.runner_id
 WHERE j.state = 'completed' AND j.conclusion = 'success' AND r.state = 'gone'
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc")
async def test_jobs_are_run_by_real_processes_and_nothing_is_left_behind() -> None:
    """From the webhook to the verdict: fake GitHub, receiver, applier, matcher, mint, real agent
    processes, fake runners, completed, done, gone."""
    with open_directory() as parent:
        data_dir = parent / "data"
        async with up(data_dir):
            await until(data_dir, DONE, 3)
            endings = await ask(data_dir, "SELECT DISTINCT ending FROM verdicts")
            assert endings == [("completed",)]
            [(debts,)] = await ask(
                data_dir,
                "SELECT count(*) FROM mints m JOIN runners r ON r.id = m.runner_id"
                " WHERE m.state <> 'settled' AND r.state = 'gone'",
            )
            assert debts == 0
        assert processes_of(data_dir) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc")
async def test_a_server_killed_at_work_goes_on_at_the_next_start() -> None:
    with open_directory() as parent:
        data_dir = parent / "data"
        async with up(data_dir, port=free_port()) as process:
            await until(data_dir, DONE, 1)
            # At times all of them are at work.
            while not (waiting := await ask(data_dir, IDLE)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            process.kill()
            await process.wait()
        async with up(data_dir, port=free_port()):
            await until(data_dir, DONE, 4)
            # Waiting Pods outlived the server, found the next one at its new port, and got work.
            names = ", ".join(f"'{name}'" for (name,) in waiting)
            await until(data_dir, f"{DONE} AND r.pod_name IN ({names})", 1)
            [(stuck,)] = await ask(
                data_dir,
                "SELECT count(*) FROM runners WHERE state IN ('claimed', 'armed')"
                " AND since < (SELECT max(at) FROM events) - interval '60 s'",
            )
            assert stuck == 0
        assert processes_of(data_dir) == []


async def test_a_second_one_is_told_where_the_first_is() -> None:
    with open_directory() as parent:
        data_dir, port = parent / "data", free_port()
        async with up(data_dir, "--demo", "quiet", port=port):
            await until(data_dir, "SELECT count(*) FROM pools", 1)
            async with asyncio.timeout(60):
                while f":{port}" not in (data_dir / "up.address").read_text():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            second = await paddock("up", "--data-dir", data_dir)
    assert second.code == 1
    assert "paddock already runs on" in second.err
    assert f"it can be opened at http://127.0.0.1:{port}" in second.err


async def test_an_app_without_a_runner_for_its_jobs_is_refused_in_a_sentence(
    directory: Path,
) -> None:
    app = {
        "PADDOCK_GITHUB_APP_ID": "12",
        "PADDOCK_GITHUB_PRIVATE_KEY_FILE": "/nonexistent",
        "PADDOCK_GITHUB_WEBHOOK_SECRET": "secret",
    }
    refused = await paddock("up", "--data-dir", directory / "data", **app)
    assert refused.code == 1
    assert "set PADDOCK_LOCAL_RUNNER" in refused.err
    refused = await paddock("up", "--demo", "chaos", "--data-dir", directory / "data", **app)
    assert "--demo is for a GitHub of our own" in refused.err
    assert not (directory / "data").exists()


async def test_chaos_is_refused_with_runners_that_do_not_die_on_demand(directory: Path) -> None:
    program = directory / "github-act-runner"
    program.touch(mode=0o755)
    chosen = {"PADDOCK_LOCAL_RUNNER": str(directory)}
    refused = await paddock("up", "--demo", "chaos", "--data-dir", directory / "data", **chosen)
    assert refused.code == 1
    assert "unset PADDOCK_LOCAL_RUNNER" in refused.err
    assert not (directory / "data").exists()
