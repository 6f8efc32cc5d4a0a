"""Migrations: each applied once, in order, whole or not at all."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

import paddock
from paddock.ports.errors import Contended, StoreError
from paddock.store import migrate as migrate_module
from paddock.store import sessions
from paddock.store.database import Database
from paddock.store.errors import DatabaseMisconfigured, MigrationFailed, SchemaMismatch
from paddock.store.migrate import check_schema, migrate, read_migrations, statements
from tests.support.next_release import VERSION, write_next_migration
from tests.support.time import ManualClock

HEAD = "-- What it is for.\n-- oldest program: 0.1.0\n\n"


@pytest.fixture
async def database(empty_database_url: str) -> AsyncIterator[Database]:
    database = await Database.connect(empty_database_url)
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write(tmp_path, "0001_first.sql", "CREATE TABLE first (id integer);")
    write(tmp_path, "0002_second.sql", "CREATE TABLE second (id integer);")
    return tmp_path


def write(directory: Path, name: str, sql: str, *, oldest: str = "0.1.0") -> None:
    (directory / name).write_text(HEAD.replace("0.1.0", oldest) + sql)


async def fetch(database: Database, query: str) -> list[asyncpg.Record]:
    async with database.transaction() as connection:
        rows: list[asyncpg.Record] = await connection.fetch(query)
        return rows


async def tables(database: Database) -> list[str]:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
    return [row["tablename"] for row in await fetch(database, query)]


async def failure(database: Database, files: Path, **arguments: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await migrate(database, directory=files, **arguments)  # type: ignore[arg-type]
    return caught.value


async def check(database: Database, files: Path, version: str = "0.1.0") -> None:
    async with database.acquire() as connection:
        await check_schema(connection, directory=files, version=version)


# Applying


async def test_they_are_applied_in_order_and_remembered(database: Database, files: Path) -> None:
    clock = ManualClock()
    applied = await migrate(database, directory=files, clock=clock)
    assert [migration.name for migration in applied] == ["0001_first.sql", "0002_second.sql"]
    rows = await fetch(database, "SELECT * FROM schema_migrations ORDER BY number")
    assert [row["name"] for row in rows] == ["0001_first.sql", "0002_second.sql"]
    assert {row["applied_at"] for row in rows} == {clock.now()}
    assert await tables(database) == ["first", "schema_migrations", "second"]


async def test_only_new_ones_are_applied(database: Database, files: Path) -> None:
    await migrate(database, directory=files)
    assert await migrate(database, directory=files) == []
    write(files, "0003_third.sql", "CREATE TABLE third (id integer);")
    assert [new.name for new in await migrate(database, directory=files)] == ["0003_third.sql"]


async def test_a_dry_run_changes_nothing(database: Database, files: Path) -> None:
    pending = await migrate(database, directory=files, dry_run=True)
    assert len(pending) == 2
    assert await tables(database) == []


async def test_ten_replicas_at_once_apply_each_once(
    empty_database_url: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait outlast the time-outs of their sessions."""
    monkeypatch.setattr(
        sessions, "_SESSION", "SET lock_timeout = '50ms'; SET statement_timeout = '2s'"
    )
    write(files, "0003_slow.sql", "SELECT pg_sleep(2.5);")
    replicas = await asyncio.gather(
        *(Database.connect(empty_database_url, max_size=2) for _ in range(10))
    )
    applied = await asyncio.gather(*(migrate(replica, directory=files) for replica in replicas))
    assert sorted(len(migrations) for migrations in applied) == [0] * 9 + [3]
    for replica in replicas:
        await check(replica, files)
        await replica.close()


async def test_a_replica_that_waits_for_another_says_so(database: Database, files: Path) -> None:
    said: list[str] = []
    async with database.acquire() as other:
        await other.execute("SELECT pg_advisory_lock($1)", migrate_module._LOCK)
        waiting = asyncio.create_task(migrate(database, directory=files, say=said.append))
        while not said:
            await other.execute("SELECT 1")
    await waiting
    assert said[0] == "waiting for another paddock that is migrating this database"


async def test_a_table_in_use_is_asked_for_again(
    database: Database, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I72: if a migration waited for its lock, all other queries would wait behind it."""
    monkeypatch.setattr(migrate_module, "_TABLE_LOCK_TIMEOUT", 0.05)
    await migrate(database, directory=files)
    write(files, "0003_third.sql", "ALTER TABLE first ADD COLUMN more integer;")
    async with database.acquire() as user:
        in_use = user.transaction()
        await in_use.start()
        await user.execute("SELECT * FROM first")
        pauses = 0

        class WatchfulClock(ManualClock):
            async def sleep(self, seconds: float) -> None:
                nonlocal pauses
                pauses += 1
                await fetch(database, "SELECT * FROM first")
                if pauses == 3:
                    await in_use.commit()

        applied = await migrate(database, directory=files, clock=WatchfulClock())
    assert (len(applied), pauses) == (1, 3)


async def test_a_table_that_stays_in_use_is_given_up(
    database: Database, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate_module, "_TABLE_LOCK_TIMEOUT", 0.01)
    await migrate(database, directory=files)
    write(files, "0003_third.sql", "ALTER TABLE first ADD COLUMN more integer;")
    async with database.transaction() as user:
        await user.execute("SELECT * FROM first")
        with pytest.raises(Contended, match=r"0003_third\.sql did not get its locks"):
            await migrate(database, directory=files, clock=ManualClock())


# Failing


async def test_one_that_fails_leaves_nothing_of_itself(database: Database, files: Path) -> None:
    write(files, "0003_bad.sql", "CREATE TABLE third (id integer);\n\nSELECT\n  1 / 0;")
    error = await failure(database, files)
    assert isinstance(error, MigrationFailed)
    assert (
        "0003_bad.sql failed at line 6 (division by zero): nothing of it was kept" in error.message
    )
    assert await tables(database) == ["first", "schema_migrations", "second"]
    write(files, "0003_bad.sql", "CREATE TABLE third (id integer);")
    assert len(await migrate(database, directory=files)) == 1


async def test_a_syntax_error_is_named_by_its_line(database: Database, files: Path) -> None:
    write(files, "0003_bad.sql", "CREATE TABLE third (\n  id integer,\n  id2 integr\n);")
    error = await failure(database, files)
    assert 'failed at line 6 (type "integr" does not exist)' in error.message


async def test_the_databases_detail_is_told(database: Database, files: Path) -> None:
    sql = "CREATE TABLE t (id integer PRIMARY KEY);\nINSERT INTO t VALUES (1), (1);"
    write(files, "0003_bad.sql", sql)
    error = await failure(database, files)
    assert "Key (id)=(1) already exists" in error.message


@pytest.mark.parametrize("word", ["COMMIT", "begin", "ROLLBACK", "START TRANSACTION"])
async def test_a_migration_does_not_end_its_transaction(
    database: Database, files: Path, word: str
) -> None:
    write(files, "0003_bad.sql", f"CREATE TABLE third (id integer);\n{word};\n")
    error = await failure(database, files)
    assert "line 5: a migration is one transaction" in error.message
    assert "third" not in await tables(database)


async def test_a_connection_lost_in_a_migration_is_not_called_its_failure(
    database: Database, files: Path
) -> None:
    write(files, "0003_bad.sql", "SELECT pg_terminate_backend(pg_backend_pid());")
    error = await failure(database, files)
    assert "was lost" in error.message
    assert len(await fetch(database, "SELECT FROM schema_migrations")) == 2


async def test_a_role_that_may_not_create_tables_is_told_what_it_lacks(
    database: Database, empty_database_url: str, files: Path
) -> None:
    async with database.transaction() as connection:
        await connection.execute("DROP ROLE IF EXISTS bob; CREATE ROLE bob LOGIN")
    poor = await Database.connect(empty_database_url.replace("paddock@", "bob@"))
    error = await failure(poor, files)
    await poor.close()
    assert isinstance(error, DatabaseMisconfigured)
    assert "permission denied for schema public" in error.message
    assert "make it the owner" in error.message


# What must fit together


async def test_a_file_changed_after_it_was_applied_is_refused(
    database: Database, files: Path
) -> None:
    await migrate(database, directory=files)
    write(files, "0001_first.sql", "CREATE TABLE first (id bigint);")
    error = await failure(database, files)
    assert isinstance(error, SchemaMismatch)
    assert "0001_first.sql is not what was applied" in error.message
    with pytest.raises(SchemaMismatch):
        await check(database, files)


async def test_missing_migrations_are_asked_for(database: Database, files: Path) -> None:
    with pytest.raises(SchemaMismatch, match="run `paddock migrate`"):
        await check(database, files)
    await migrate(database, directory=files)
    await check(database, files)
    write(files, "0003_third.sql", "CREATE TABLE third (id integer);")
    with pytest.raises(SchemaMismatch, match=r"the first is 0003_third\.sql"):
        await check(database, files)


async def test_a_program_one_release_behind_may_go_on(database: Database, files: Path) -> None:
    write(files, "0003_expand.sql", "ALTER TABLE first ADD COLUMN more integer;", oldest="0.1.0")
    await migrate(database, directory=files, version="0.2.0")
    (files / "0003_expand.sql").unlink()
    await check(database, files, version="0.1.0")
    assert await migrate(database, directory=files, version="0.1.0") == []


async def test_a_program_too_old_for_the_schema_is_refused(database: Database, files: Path) -> None:
    write(files, "0003_contract.sql", "DROP TABLE first;", oldest="0.10.0")
    await migrate(database, directory=files, version="0.10.0")
    (files / "0003_contract.sql").unlink()
    with pytest.raises(
        SchemaMismatch, match=r"is for paddock 0\.10\.0 and newer .*upgrade paddock"
    ):
        await check(database, files, version="0.9.1")
    assert isinstance(await failure(database, files, version="0.9.1"), SchemaMismatch)
    await check(database, files, version="0.10.0rc1")


async def test_a_history_with_a_hole_is_refused(database: Database, files: Path) -> None:
    await migrate(database, directory=files)
    async with database.transaction() as connection:
        await connection.execute("DELETE FROM schema_migrations WHERE number = 1")
    assert "lacks 0001_first.sql but has later ones" in (await failure(database, files)).message


# Our own


async def test_the_next_release_upgrades_this_schema_and_this_program_goes_on(
    database: Database, tmp_path: Path
) -> None:
    await migrate(database)
    async with database.transaction() as connection:
        await connection.execute("INSERT INTO hosts (name, api_url) VALUES ('a.example', 'url')")
    files = tmp_path / "migrations"
    shutil.copytree(Path(migrate_module.__file__).parent / "migrations", files)
    added = write_next_migration(files)
    with pytest.raises(
        SchemaMismatch, match=rf"1 migrations are missing, the first is {added.name}"
    ):
        await check(database, files, VERSION)
    applied = await migrate(database, directory=files, version=VERSION)
    assert [migration.name for migration in applied] == [added.name]
    [row] = await fetch(database, "SELECT name, next_release FROM hosts")
    assert tuple(row) == ("a.example", "expanded")
    async with database.acquire() as connection:
        await check_schema(connection)
    assert await migrate(database) == []


async def test_every_table_says_what_it_is_for(database: Database) -> None:
    await migrate(database)
    silent = await fetch(
        database,
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        " AND relname <> 'schema_migrations' AND obj_description(oid, 'pg_class') IS NULL",
    )
    assert silent == []


# Reading the files


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("0004_gap.sql", "Migration 0003 is missing before 0004_gap.sql"),
        ("0002_twice.sql", "Two migrations have the number 0002"),
        ("3_short.sql", "is no name for a migration"),
        ("0003-dash.sql", "is no name for a migration"),
    ],
)
def test_numbers_have_no_gaps_and_no_doubles(files: Path, name: str, message: str) -> None:
    write(files, name, "SELECT 1;")
    with pytest.raises(MigrationFailed, match=message):
        read_migrations(files)


def test_each_says_which_program_may_use_the_schema(files: Path) -> None:
    (files / "0003_silent.sql").write_text("SELECT 1; -- oldest program: 0.1.0\n")
    with pytest.raises(MigrationFailed, match="does not say which program"):
        read_migrations(files)


def test_ours_can_be_used_by_the_program_that_brings_them() -> None:
    ours = tuple(int(part) for part in paddock.__version__.split("."))
    for migration in read_migrations():
        assert tuple(int(part) for part in migration.oldest_program.split(".")) <= ours


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", []),
        ("-- only; a comment", []),
        ("SELECT 1; SELECT 2", [(1, "SELECT 1"), (1, "SELECT 2")]),
        ("-- a; b\nSELECT 1;\n\n/* c; */ SELECT 2;\n", [(2, "SELECT 1"), (4, "SELECT 2")]),
        ("SELECT 'a;''b'; SELECT 2;", [(1, "SELECT 'a;''b'"), (1, "SELECT 2")]),
        (r"SELECT E'\';'; SELECT 2;", [(1, r"SELECT E'\';'"), (1, "SELECT 2")]),
        ('SELECT ";"; SELECT 2;', [(1, 'SELECT ";"'), (1, "SELECT 2")]),
        ("DO $$ BEGIN; END $$; SELECT 2;", [(1, "DO $$ BEGIN; END $$"), (1, "SELECT 2")]),
        ("DO $a$ $$;$$ $a$; SELECT 2;", [(1, "DO $a$ $$;$$ $a$"), (1, "SELECT 2")]),
        ("SELECT $1; SELECT $2;", [(1, "SELECT $1"), (1, "SELECT $2")]),
        ("SELECT 1 -- it's;\n; SELECT 2;", [(1, "SELECT 1 -- it's;"), (2, "SELECT 2")]),
    ],
)
def test_a_file_is_taken_apart_at_its_semicolons(sql: str, expected: list[tuple[int, str]]) -> None:
    assert list(statements(sql)) == expected
