"""Bad input ends with one sentence that says what to do, a non-zero exit code, and no lost data."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.support.directories import open_directory
from tests.support.disks import fill, read_only_directory, small_disk
from tests.support.processes import Ended, paddock, paddock_up
from tests.support.servers import PASSWORD_IN_URL, TcpServer, tcp_server
from tools.ports import free_port

pytestmark = pytest.mark.slow


def sentence_of(ended: Ended, *, code: int = 1) -> str:
    assert ended.code == code, ended
    assert "Traceback" not in ended.out + ended.err
    *progress, last = ended.err.splitlines()
    assert last.startswith("error: ")
    assert not any(line.startswith("error:") for line in progress)
    return last.removeprefix("error: ")


@pytest.fixture(scope="module")
def tcp() -> Iterator[TcpServer]:
    with open_directory() as path, tcp_server(path) as server:
        yield server


async def test_an_unreachable_database() -> None:
    url = f"postgresql://alice:{PASSWORD_IN_URL}@127.0.0.1:{free_port()}/paddock"
    sentence = sentence_of(await paddock("migrate", PADDOCK_DATABASE_URL=url))
    assert "nothing listens there" in sentence
    assert PASSWORD_IN_URL not in sentence


#: Commands that read from a paddock, or change an existing one.
LOOKS = (
    ("jobs",),
    ("why", "1"),
    ("top",),
    ("pools", "list"),
    ("accounts", "pause", "acme"),
    ("pause",),
)


@pytest.mark.parametrize("words", LOOKS)
async def test_where_there_is_no_paddock_a_look_says_so_and_creates_nothing(
    directory: Path, words: tuple[str, ...]
) -> None:
    sentence = sentence_of(await paddock(*words, PADDOCK_DATA_DIR=str(directory / "data")))
    assert sentence.startswith("There is no paddock here: PADDOCK_DATABASE_URL is not set")
    assert str(directory / "data") in sentence
    assert "--data-dir" in sentence
    assert not (directory / "data").exists()


async def test_a_doctor_creates_nothing_either(directory: Path) -> None:
    ended = await paddock("doctor", "--data-dir", directory / "data")
    assert ended.code == 1
    assert "failed  database: There is no paddock here" in ended.out
    assert not (directory / "data").exists()


@pytest.mark.parametrize("words", LOOKS)
async def test_a_look_does_not_wait_for_a_database_that_does_not_answer(
    words: tuple[str, ...],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        port = silent.getsockname()[1]
        url = f"postgresql://alice:{PASSWORD_IN_URL}@127.0.0.1:{port}/paddock"
        ended = await paddock(*words, PADDOCK_DATABASE_URL=url, PADDOCK_DATABASE_WAIT="30")
    sentence = sentence_of(ended)
    assert f"127.0.0.1:{port}/paddock did not answer within 5 s: check the address" in sentence
    assert PASSWORD_IN_URL not in ended.err


async def test_a_look_waits_some_seconds_for_a_database_that_restarts_and_serve_longer() -> None:
    url = f"postgresql://alice@127.0.0.1:{free_port()}/paddock"
    looked = await paddock("jobs", PADDOCK_DATABASE_URL=url, PADDOCK_DATABASE_WAIT="30")
    assert "nothing listens there" in sentence_of(looked)
    assert looked.err.startswith("waiting up to 3 s: The database at ")
    app = {"PADDOCK_GITHUB_APP_ID": "1", "PADDOCK_GITHUB_PRIVATE_KEY_FILE": "/nonexistent"}
    served = await paddock(
        "serve",
        **app,
        PADDOCK_GITHUB_WEBHOOK_SECRET="s",
        PADDOCK_DATABASE_URL=url,
        PADDOCK_DATABASE_WAIT="4",
    )
    assert "waiting up to 4 s: The database at " in served.err


async def test_a_wrong_password(tcp: TcpServer) -> None:
    url = tcp.url(password="wrong-password")
    sentence = sentence_of(await paddock("migrate", PADDOCK_DATABASE_URL=url))
    assert "refused the password of alice: correct it in PADDOCK_DATABASE_URL" in sentence
    assert "wrong-password" not in sentence


async def test_a_read_only_data_directory(directory: Path) -> None:
    with read_only_directory(directory / "closed") as path:
        for command in ("up", "migrate"):
            sentence = sentence_of(await paddock(command, "--data-dir", path / "data"))
            assert f"{path / 'data'} cannot be written (" in sentence
            assert "choose another with --data-dir" in sentence


async def test_a_full_disk(directory: Path) -> None:
    with small_disk(directory / "disk", size="120m") as disk:
        assert (await paddock("migrate", "--data-dir", disk / "data")).code == 0
        ballast = fill(disk)
        sentence = sentence_of(await paddock("migrate", "--data-dir", disk / "data"))
        assert "is full: free some space" in sentence
        ballast.unlink()
        again = await paddock("migrate", "--data-dir", disk / "data")
        assert again.out == "The schema is up to date.\n"


async def test_a_disk_that_fills_up_while_paddock_runs(directory: Path) -> None:
    with small_disk(directory / "disk", size="120m") as disk:
        async with paddock_up(disk / "data") as up:
            ballast = fill(disk)
            connection = await asyncpg.connect(up.url)
            with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
                await connection.execute(
                    "CREATE TABLE big AS SELECT repeat('x', 1000) FROM generate_series(1, 100000)"
                )
            connection.terminate()
            up.press_ctrl_c()
            ended = await up.ended()
            assert "Traceback" not in ended.err
        ballast.unlink()
        again = await paddock("migrate", "--data-dir", disk / "data")
        assert again.out == "The schema is up to date.\n"


async def test_a_corrupt_migration(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE schema_migrations SET checksum = 'x' WHERE number = 1")
    await connection.close()
    for command in ("migrate", "up"):
        sentence = sentence_of(await paddock(command, PADDOCK_DATABASE_URL=database_url))
        assert "is not what was applied to this database" in sentence


async def test_a_server_that_dies_ends_paddock_with_a_sentence(directory: Path) -> None:
    async with paddock_up(directory / "data") as up:
        pid = int((directory / "data/postgres-18/postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        assert "PostgreSQL ended unexpectedly" in sentence_of(await up.ended())


async def test_a_second_up_names_the_first(directory: Path) -> None:
    async with paddock_up(directory / "data") as up:
        sentence = sentence_of(await paddock("up", "--data-dir", directory / "data"))
        assert f"(process {up.pid}): it can be opened at http://127.0.0.1:" in sentence


async def test_other_commands_use_the_server_that_up_runs(directory: Path) -> None:
    async with paddock_up(directory / "data"):
        ended = await paddock("migrate", "--json", "--data-dir", directory / "data")
    assert (ended.code, ended.out) == (0, '{"dry_run": false, "applied": []}\n')


async def test_a_dry_run_does_not_even_make_a_directory(directory: Path) -> None:
    ended = await paddock("migrate", "--dry-run", "--data-dir", directory / "data")
    assert ended.code == 0
    assert ended.out.startswith("would apply 0001_")
    assert not (directory / "data").exists()


async def test_mistakes_in_the_settings_are_a_line_each() -> None:
    ended = await paddock("up", PADDOCK_LISTEN="nowhere", PADDOCK_LOG_LEVEL="loud")
    assert ended.code == 1
    assert [line[:7] for line in ended.err.splitlines()] == ["error: ", "error: "]


async def test_wrong_usage_has_its_own_exit_code() -> None:
    ended = await paddock("migrate", "--no-such-option")
    assert ended.code == 2
    assert "No such option" in ended.err


async def test_a_bug_is_one_line_and_says_how_to_see_more(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import paddock.cli.migrate as m\ndef load(*a, **k): return {}['missing']\nm.load = load\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    sentence = sentence_of(await paddock("migrate", PYTHONPATH=path))
    assert sentence.startswith("unexpected KeyError: 'missing'")
    assert "PADDOCK_DEBUG=1" in sentence
    ended = await paddock("migrate", PYTHONPATH=path, PADDOCK_DEBUG="1")
    assert "Traceback" in ended.err


async def test_the_version_is_printed() -> None:
    assert (await paddock("version")).out == "paddock 0.1.0\n"


async def test_help_shows_examples() -> None:
    ended = await paddock("up", "--help")
    assert "paddock up --data-dir ~/paddock-trial" in ended.out
