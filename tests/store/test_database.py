"""Connections: what is checked when they open, and what happens when they break."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import pytest
import uvloop

from paddock.ports.errors import Contended, DatabaseUnavailable, OutcomeUnknown, StoreError
from paddock.store import database as database_module
from paddock.store import server_checks, sessions
from paddock.store.database import Database, retrying
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.errors import DatabaseMisconfigured, SessionEnded, redacted
from paddock.store.server_user import server_user
from tests.support.directories import open_directory
from tests.support.lines import CANCEL_REQUEST, Fate, line_to
from tests.support.servers import (
    OTHER_BINARIES,
    PASSWORD,
    PASSWORD_IN_URL,
    TcpServer,
    tcp_server,
    write_certificate,
)
from tools.ports import free_port


async def refusal(url: str, **arguments: float) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await Database.connect(url, **arguments)  # type: ignore[arg-type]
    assert "\n" not in caught.value.message
    assert PASSWORD not in caught.value.message
    assert PASSWORD_IN_URL not in caught.value.message
    return caught.value


async def kill_the_others(connection: asyncpg.Connection) -> None:
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


# What a transaction is


async def test_a_block_that_ends_well_is_committed(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    async with database.transaction() as connection:
        assert await connection.fetchval("SELECT answer FROM kept") == 42


async def test_a_block_that_raises_is_rolled_back(database: Database) -> None:
    async def work() -> None:
        async with database.transaction() as connection:
            await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    async with database.transaction() as connection:
        assert await connection.fetchval("SELECT to_regclass('kept')") is None


async def test_a_block_that_is_cancelled_is_rolled_back(database: Database) -> None:
    async def work() -> None:
        async with database.transaction() as connection:
            await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
            await connection.execute("SELECT pg_sleep(100)")

    task = asyncio.create_task(work())
    async with database.acquire() as connection:
        query = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        while not await connection.fetch(query):
            pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with database.transaction() as connection:
        assert await connection.fetchval("SELECT to_regclass('kept')") is None


async def test_every_session_is_bounded(database: Database) -> None:
    """I72"""
    names = ["lock_timeout", "idle_in_transaction_session_timeout", "statement_timeout"]
    names += ["timezone", "jit", "application_name"]
    async with database.transaction() as connection:
        found = [await connection.fetchval("SELECT current_setting($1)", name) for name in names]
    assert found == ["10s", "5s", "1min", "UTC", "off", "paddock-test"]


async def test_what_a_session_carried_is_gone_when_it_is_given_back(database_url: str) -> None:
    database = await Database.connect(database_url, max_size=2)
    for _ in range(2):
        async with database.acquire() as connection:
            await connection.execute("SET lock_timeout = 0")
            await connection.execute("SELECT pg_advisory_lock(1)")
            await connection.execute("LISTEN a_topic")
    for _ in range(2):
        async with database.transaction() as one, database.transaction() as other:
            for connection in (one, other):
                assert await connection.fetchval("SHOW lock_timeout") == "10s"
                assert await connection.fetch("SELECT pg_listening_channels()") == []
            query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            assert await one.fetchval(query) == 0
    await database.close()


# Stalled sessions


async def test_a_stalled_transaction_does_not_stop_the_others(database: Database) -> None:
    """I72: PostgreSQL ends the session that holds the lock before the waiting ones give up."""
    locked = asyncio.Event()
    served = asyncio.Event()

    async def stall() -> None:
        async with database.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(7)")
            locked.set()
            await served.wait()
            await connection.execute("SELECT 1")

    stalled = asyncio.create_task(stall())
    await locked.wait()
    async with database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(7)")
    served.set()
    with pytest.raises(DatabaseUnavailable):
        await stalled


async def test_a_lock_that_never_comes_is_given_up(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_SESSION", "SET lock_timeout = '100ms'")
    database = await Database.connect(database_url)
    async with database.transaction() as holder:
        await holder.execute("SELECT pg_advisory_xact_lock(7)")
        with pytest.raises(Contended):
            async with database.transaction() as connection:
                await connection.execute("SELECT pg_advisory_xact_lock(7)")
    await database.close()


async def test_a_pool_with_nothing_free_says_so(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "ACQUIRE_TIMEOUT", 0.1)
    database = await Database.connect(database_url, max_size=2)
    async with database.transaction(), database.transaction():
        with pytest.raises(DatabaseUnavailable, match="2 of 2 are open"):
            async with database.transaction():
                pass
    await database.close()


async def test_a_waiting_caller_gets_the_next_session_that_is_given_back(
    database_url: str,
) -> None:
    database = await Database.connect(database_url, max_size=2)
    async with database.transaction():
        async with database.transaction():
            waiting = asyncio.create_task(database.rows("SELECT 1"))
            await asyncio.sleep(0.1)
        assert await asyncio.wait_for(waiting, 10) == [(1,)]
    await database.close()


async def test_a_session_is_at_hand_until_it_is_distrusted(database: Database) -> None:
    mine = "SELECT pg_backend_pid()"
    first = await database.rows(mine)
    assert await database.rows(mine) == first
    await database._pool.distrust()
    assert await database.rows(mine) != first


async def test_sessions_at_hand_do_not_hold_up_the_close(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is in use meanwhile is not put at hand."""
    database = await Database.connect(database_url)
    monkeypatch.setattr(sessions, "CLOSE_TIMEOUT", 60.0)
    async with database.transaction() as connection, database.transaction():
        await connection.execute("SELECT 1")
        closing = asyncio.create_task(database.close())
        await asyncio.sleep(0.05)
    await asyncio.wait_for(closing, 10)


# Lost connections


async def test_a_connection_lost_in_the_middle_is_reported_and_the_next_works(
    database: Database,
) -> None:
    async def work() -> None:
        async with database.transaction() as connection:
            async with database.transaction() as other:
                await kill_the_others(other)
            await connection.execute("SELECT 1")

    with pytest.raises(DatabaseUnavailable):
        await work()
    async with database.transaction() as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_sessions_that_died_while_idle_are_replaced_unnoticed(
    database: Database, postgres: EmbeddedPostgres
) -> None:
    async with database.transaction(), database.transaction(), database.transaction():
        pass
    async with database.acquire() as connection:
        await kill_the_others(connection)
    async with database.transaction() as one, database.transaction() as other:
        assert await one.fetchval("SELECT 1") + await other.fetchval("SELECT 1") == 2


async def test_a_server_that_comes_back_is_used_again(directory: Path) -> None:
    settings = {"fsync": "off"}
    async with EmbeddedPostgres(directory / "data", settings=settings) as server:
        database = await Database.connect(server.url)
    with pytest.raises(DatabaseUnavailable):
        async with database.transaction():
            pass
    async with EmbeddedPostgres(directory / "data", settings=settings):
        async with database.transaction() as connection:
            assert await connection.fetchval("SELECT 1") == 1
        await database.close()


async def test_a_closed_database_says_so(database_url: str) -> None:
    database = await Database.connect(database_url)
    await database.close()
    with pytest.raises(DatabaseUnavailable, match="was closed"):
        async with database.transaction():
            pass


def unanswered(word: bytes) -> Callable[[bytes], Fate]:
    return lambda data: Fate.IS_NOT_ANSWERED if word in data else Fate.ARRIVES


async def test_a_commit_without_an_answer_is_not_repeated(
    database_url: str, directory: Path, database: Database
) -> None:
    async with database.transaction() as connection:
        await connection.execute("CREATE TABLE done (number integer)")
    attempts = 0
    async with line_to(database_url, directory, unanswered(b"COMMIT")) as url:
        fragile = await Database.connect(url)

        @retrying
        async def write() -> None:
            nonlocal attempts
            attempts += 1
            async with fragile.transaction() as connection:
                await connection.execute("INSERT INTO done VALUES (1)")

        with pytest.raises(OutcomeUnknown):
            await write()
        await fragile.close()
    async with database.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM done") == 1
    assert attempts == 1


async def test_a_begin_without_an_answer_is_tried_once_more(
    database_url: str, directory: Path
) -> None:
    seen = 0

    def first_one_is_lost(data: bytes) -> Fate:
        nonlocal seen
        seen += b"BEGIN" in data
        return Fate.IS_NOT_ANSWERED if b"BEGIN" in data and seen == 1 else Fate.ARRIVES

    async with line_to(database_url, directory, first_one_is_lost) as url:
        database = await Database.connect(url)
        async with database.transaction() as connection:
            assert await connection.fetchval("SELECT 1") == 1
        await database.close()
    assert seen == 2


async def test_a_line_that_stays_broken_is_reported(database_url: str, directory: Path) -> None:
    async with line_to(database_url, directory, unanswered(b"BEGIN")) as url:
        database = await Database.connect(url)
        with pytest.raises(DatabaseUnavailable):
            async with database.transaction():
                pass
        await database.close()


async def test_a_query_that_cannot_be_cancelled_does_not_hold_up_its_caller(
    database_url: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL forgets a request to cancel that overtakes its query."""
    monkeypatch.setattr(database_module, "ROLLBACK_TIMEOUT", 0.2)
    asleep = asyncio.Event()

    def no_cancelling(data: bytes) -> Fate:
        if b"pg_sleep" in data:
            asleep.set()
        return Fate.IS_LOST if CANCEL_REQUEST in data else Fate.ARRIVES

    async with line_to(database_url, directory, no_cancelling) as url:
        database = await Database.connect(url)

        async def work() -> None:
            async with database.transaction() as connection:
                await connection.execute("SELECT pg_sleep(100)")

        task = asyncio.create_task(work())
        await asleep.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with database.transaction() as connection:
            assert await connection.fetchval("SELECT 1") == 1
        await database.close()


# Conflicts


async def make_rows(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute("CREATE TABLE counted (id integer PRIMARY KEY, n integer)")
        await connection.execute("INSERT INTO counted VALUES (1, 0), (2, 0)")


async def test_the_loser_of_a_deadlock_tries_again(database: Database) -> None:
    await make_rows(database)
    both_hold_one = asyncio.Barrier(2)
    attempts = 0

    @retrying
    async def add(first: int, second: int) -> None:
        nonlocal attempts
        attempts += 1
        async with database.transaction() as connection:
            await connection.execute("SET LOCAL deadlock_timeout = '20ms'")
            await connection.execute("UPDATE counted SET n = n + 1 WHERE id = $1", first)
            if attempts <= 2:
                await both_hold_one.wait()
            await connection.execute("UPDATE counted SET n = n + 1 WHERE id = $1", second)

    await asyncio.gather(add(1, 2), add(2, 1))
    async with database.transaction() as connection:
        assert await connection.fetchval("SELECT array_agg(n) FROM counted") == [2, 2]
    assert attempts > 2


async def test_a_caller_that_loses_every_time_gives_up(database: Database) -> None:
    attempts = 0

    @retrying
    async def lose() -> None:
        nonlocal attempts
        attempts += 1
        async with database.transaction() as connection:
            await connection.execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")

    with pytest.raises(Contended, match="5 times in a row"):
        await lose()
    assert attempts == 5


async def test_a_plan_that_a_migration_made_invalid_is_made_anew(database: Database) -> None:
    await make_rows(database)

    @retrying
    async def read() -> int:
        async with database.transaction() as connection:
            return len(await connection.fetchrow("SELECT * FROM counted WHERE id = 1"))

    assert await read() == 2
    async with database.acquire() as connection:
        await connection.execute("ALTER TABLE counted ADD COLUMN more integer")
    assert await read() == 3


async def test_a_mistake_in_a_query_is_not_repeated(database: Database) -> None:
    attempts = 0

    @retrying
    async def wrong() -> None:
        nonlocal attempts
        attempts += 1
        async with database.transaction() as connection:
            await connection.execute("SELECT nothing FROM nowhere")

    with pytest.raises(asyncpg.UndefinedTableError):
        await wrong()
    assert attempts == 1


# Connecting: what is refused, and with which message


@pytest.fixture(scope="module")
def tcp() -> Iterator[TcpServer]:
    with open_directory() as path, tcp_server(path, max_connections="10") as server:
        yield server


@pytest.fixture(scope="module")
def tls() -> Iterator[tuple[TcpServer, Path]]:
    """Another PostgreSQL than ours, which only has a socket and is built without TLS."""
    if not OTHER_BINARIES:
        pytest.skip("there is no PostgreSQL with TLS on this machine")
    with open_directory() as path:
        certificate, key = write_certificate(path)
        settings = {"ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key)}
        with tcp_server(path, OTHER_BINARIES[-1], **settings) as server:
            yield server, certificate


async def test_the_right_password_is_let_in(tcp: TcpServer) -> None:
    database = await Database.connect(tcp.url())
    assert database.shown == f"postgresql://alice:***@localhost:{tcp.port}/paddock"
    await database.close()


async def test_a_wrong_password_is_refused_at_once(tcp: TcpServer) -> None:
    error = await refusal(tcp.url(password="wrong"), wait=60)
    assert isinstance(error, DatabaseMisconfigured)
    assert "refused the password of alice" in error.message
    assert "wrong" not in error.message


async def test_an_unknown_role(tcp: TcpServer) -> None:
    error = await refusal(tcp.url().replace("alice", "mallory"))
    assert isinstance(error, DatabaseMisconfigured)
    assert "pg_hba.conf" in error.message


async def test_an_unknown_database(tcp: TcpServer) -> None:
    error = await refusal(tcp.url(database="nothing"))
    assert isinstance(error, DatabaseMisconfigured)
    assert "has no such database: create it" in error.message


async def test_a_port_without_a_listener() -> None:
    error = await refusal(f"postgresql://alice:{PASSWORD_IN_URL}@127.0.0.1:{free_port()}/paddock")
    assert isinstance(error, DatabaseUnavailable)
    assert "nothing listens there" in error.message
    assert "***@127.0.0.1" in error.message


async def test_an_unknown_host() -> None:
    error = await refusal("postgresql://paddock@no-such-host.invalid/paddock")
    assert isinstance(error, DatabaseUnavailable)
    assert "host name is not known" in error.message


async def test_a_socket_that_is_not_there(tmp_path: Path) -> None:
    error = await refusal(f"postgresql://paddock@/paddock?host={tmp_path}")
    assert isinstance(error, DatabaseUnavailable)
    assert "there is no such socket" in error.message


async def test_a_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CONNECT_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        error = await refusal(f"postgresql://paddock@127.0.0.1:{port}/paddock")
    assert isinstance(error, DatabaseUnavailable)
    assert "no answer in time" in error.message


async def test_a_server_without_a_connection_left(tcp: TcpServer) -> None:
    taken = []
    try:
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                taken.append(await asyncpg.connect(tcp.url()))
        error = await refusal(tcp.url())
    finally:
        for connection in taken:
            await connection.close()
    assert isinstance(error, DatabaseUnavailable)
    assert "no connection left" in error.message


async def test_an_old_server_is_refused_by_name(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_checks, "OLDEST_SERVER", 99)
    error = await refusal(database_url)
    assert isinstance(error, DatabaseMisconfigured)
    assert "needs 99 or newer" in error.message


async def test_a_read_only_server_is_refused(database_url: str) -> None:
    error = await refusal(database_url + "&default_transaction_read_only=on")
    assert isinstance(error, DatabaseUnavailable)
    assert "is read-only" in error.message


async def test_a_database_that_cannot_hold_every_text_is_refused(
    postgres: EmbeddedPostgres,
) -> None:
    admin = await asyncpg.connect(postgres.url)
    try:
        await admin.execute("CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' TEMPLATE template0")
        error = await refusal(postgres.url_of("latin"))
        await admin.execute("DROP DATABASE latin WITH (FORCE)")
    finally:
        await admin.close()
    assert isinstance(error, DatabaseMisconfigured)
    assert "is encoded in LATIN1" in error.message


async def test_a_server_that_starts_late_is_waited_for(directory: Path) -> None:
    said: list[str] = []
    settings = {"fsync": "off"}
    async with EmbeddedPostgres(directory / "data", settings=settings) as server:
        url = server.url
    waiting = asyncio.create_task(Database.connect(url, wait=60, say=said.append))
    await asyncio.sleep(0.3)
    async with EmbeddedPostgres(directory / "data", settings=settings):
        database = await waiting
        await database.close()
    assert said[0].startswith("waiting up to 60 s: The database at ")


async def test_it_is_said_again_that_a_server_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database_module, "SAY_AGAIN", 0.0)
    said: list[str] = []
    url = f"postgresql://paddock@127.0.0.1:{free_port()}/paddock"
    with pytest.raises(DatabaseUnavailable):
        await Database.connect(url, wait=0.5, say=said.append)
    assert len(said) > 1
    assert all("nothing listens there" in each for each in said)


async def test_a_server_that_never_comes_is_given_up() -> None:
    url = f"postgresql://paddock@127.0.0.1:{free_port()}/paddock"
    assert isinstance(await refusal(url, wait=0.3), DatabaseUnavailable)


# TLS


async def test_a_server_without_tls_is_refused_if_tls_is_demanded(tcp: TcpServer) -> None:
    error = await refusal(tcp.url("?sslmode=require"))
    assert isinstance(error, DatabaseMisconfigured)
    assert "does not offer TLS" in error.message


async def test_a_certificate_that_is_known_is_trusted(tls: tuple[TcpServer, Path]) -> None:
    server, certificate = tls
    database = await Database.connect(server.url(f"?sslmode=verify-full&sslrootcert={certificate}"))
    async with database.transaction() as connection:
        query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert await connection.fetchval(query) is True
    await database.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("how", ["plain", "tls"])
def test_a_session_that_ended_in_silence_is_sent_nothing(
    request: pytest.FixtureRequest,
    how: str,
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Over TCP and over TLS. The loop was not told, because this process itself stood still."""
    if how == "tls":
        server, certificate = request.getfixturevalue("tls")
        url = server.url(f"?sslmode=verify-full&sslrootcert={certificate}")
    else:
        url = request.getfixturevalue("tcp").url()

    async def stall() -> None:
        database = await Database.connect(url)
        async with database.hold() as hold:
            await hold.take("SELECT 1")
            assert await hold.let_go("SELECT 2") == 2
        async with database.hold() as hold:
            await hold.take("SELECT set_config('idle_session_timeout', '10ms', false)")
            time.sleep(1)  # noqa: ASYNC251 - that is what a stall is
            with pytest.raises(SessionEnded):
                await hold.let_go("SELECT 2")
        await database.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(stall())


async def test_a_certificate_of_a_stranger_is_refused(
    tls: tuple[TcpServer, Path], tmp_path: Path
) -> None:
    server, _ = tls
    stranger, _ = write_certificate(tmp_path)
    error = await refusal(server.url(f"?sslmode=verify-full&sslrootcert={stranger}"))
    assert isinstance(error, DatabaseMisconfigured)
    assert "is not trusted" in error.message
    assert "sslrootcert" in error.message


async def test_a_root_certificate_that_is_not_there(tcp: TcpServer) -> None:
    error = await refusal(tcp.url("?sslmode=verify-full&sslrootcert=/nowhere.crt"))
    assert isinstance(error, DatabaseMisconfigured)
    assert "/nowhere.crt" in error.message


# Poolers


@asynccontextmanager
async def pgbouncer(server: EmbeddedPostgres, directory: Path, mode: str) -> AsyncIterator[str]:
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("pgbouncer is not installed here")
    user = server_user(None)
    sockets = directory / "pgbouncer"
    sockets.mkdir()
    user.give(sockets)
    host = Path(server.url.partition("host=")[2].partition("&")[0])
    configuration = directory / "pgbouncer.ini"
    configuration.write_text(
        f"""
        [databases]
        * = host={host} port=5432 user=paddock
        [pgbouncer]
        listen_port = 6432
        unix_socket_dir = {sockets}
        auth_type = any
        pool_mode = {mode}
        """
    )
    configuration.chmod(0o644)
    process = await asyncio.create_subprocess_exec(
        *(program, "--quiet", configuration),
        stderr=subprocess.DEVNULL,
        **user.subprocess_arguments(),
    )
    try:
        url = f"postgresql://paddock@/postgres?host={sockets}&port=6432"
        while not await answers(url):
            assert process.returncode is None
            await asyncio.sleep(0.02)
        yield url
    finally:
        process.terminate()
        await process.wait()


async def answers(url: str) -> bool:
    try:
        await (await asyncpg.connect(url)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_transaction_pooler_is_refused(
    postgres: EmbeddedPostgres, directory: Path, mode: str
) -> None:
    async with pgbouncer(postgres, directory, mode) as url:
        error = await refusal(url)
    assert isinstance(error, DatabaseMisconfigured)
    assert "transaction pooler" in error.message
    assert "pool_mode = session" in error.message


async def test_a_session_pooler_will_do(postgres: EmbeddedPostgres, directory: Path) -> None:
    async with pgbouncer(postgres, directory, "session") as url:
        database = await Database.connect(url)
        async with database.transaction() as connection:
            assert await connection.fetchval("SHOW lock_timeout") == "10s"
        await database.close()


# URLs


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:sec@ret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h1:1,h2:2/d", "postgresql://u@h1:1,h2:2/d"),
        (
            "postgresql://h/d?password=secret&sslmode=require",
            "postgresql://h/d?password=***&sslmode=require",
        ),
        ("postgresql://u:1/secret@h/d", "the database URL"),
        ("postgresql://u:1?secret@h/d", "the database URL"),
        ("postgresql://u:1#secret@h/d", "the database URL"),
        ("postgresql://[u:secret@h/d", "the database URL"),
        ("mysql://u:secret@h/d", "the database URL"),
        ("host=h password=secret", "the database URL"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mysql://u:secret@h/d",
        "host=h password=secret",
        "postgresql://u:1/secret@h/d",
        "postgresql://u:secret@h:port/d",
        "postgresql://[u:secret@h/d",
        "postgresql://u:secret@h/d?sslmode=perhaps",
    ],
)
async def test_a_url_that_makes_no_sense(url: str) -> None:
    error = await refusal(url)
    assert isinstance(error, DatabaseMisconfigured)
    assert "secret" not in error.message
