"""The schema's history: numbered SQL files, applied once each, in order, forwards only.

The head of each file names the oldest program that may use the schema after it
(`-- oldest program: 0.1.0`). So a release can expand the schema while the previous release still runs,
and can be rolled back by one: a program refuses a schema only if the schema names a newer oldest
program. A file that was applied never changes again; its checksum is stored with its number.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable

import asyncpg

import paddock
from paddock.ports import Clock
from paddock.ports.errors import Contended
from paddock.store.database import Database
from paddock.store.errors import MigrationFailed, SchemaMismatch
from paddock.store.sessions import RawSession, has_ended
from paddock.system import SystemClock

# Held by the session, so that it spans the migrations' transactions. The number is arbitrary.
_LOCK = int.from_bytes(b"paddock", "big")
# While a migration waits for a table lock, all other sessions queue behind it. So it waits briefly
# (I72), lets them through, and tries again, for a minute in all.
_TABLE_LOCK_TIMEOUT = 3
_TABLE_LOCK_ATTEMPTS = 15
_TABLE_LOCK_PAUSE = 1.0

_CREATE_HISTORY = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number          integer PRIMARY KEY,
    name            text NOT NULL,
    checksum        text NOT NULL,
    oldest_program  text NOT NULL,
    applied_at      timestamptz NOT NULL
)
"""
_READ_HISTORY = (
    "SELECT number, name, checksum, oldest_program FROM schema_migrations ORDER BY number"
)
_WRITE_HISTORY = """
INSERT INTO schema_migrations (number, name, checksum, oldest_program, applied_at)
VALUES ($1, $2, $3, $4, $5)
"""


@dataclass(frozen=True)
class Migration:
    number: int
    name: str  # the file's, e.g. 0001_schema.sql
    sql: str
    oldest_program: str

    @cached_property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    number: int
    name: str
    checksum: str
    oldest_program: str


def _say_nothing(_: str) -> None: ...


def read_migrations(directory: Traversable | None = None) -> Sequence[Migration]:
    """The migrations that this program contains, in order."""
    directory = directory or resources.files("paddock.store").joinpath("migrations")
    files = sorted(
        (file for file in directory.iterdir() if file.name.endswith(".sql")),
        key=lambda file: file.name,
    )
    migrations = [_read(file) for file in files]
    for expected, migration in enumerate(migrations, start=1):
        if migration.number < expected:
            raise MigrationFailed(
                f"Two migrations have the number {migration.number:04}, one of them "
                f"{migration.name}: give one the next free number."
            )
        if migration.number > expected:
            raise MigrationFailed(
                f"Migration {expected:04} is missing before {migration.name}: numbers have no gaps."
            )
    return migrations


def _read(file: Traversable) -> Migration:
    number = re.match(r"(\d{4})_[a-z0-9_]+\.sql$", file.name)
    if not number:
        raise MigrationFailed(f"{file.name} is no name for a migration: write NNNN_words.sql.")
    # Bytes, so that no platform's line endings change the checksum.
    sql = file.read_bytes().decode()
    oldest = re.match(r"(?:--[^\n]*\n|\s)*?-- oldest program: (\d+\.\d+\.\d+)\s*\n", sql)
    if not oldest:
        raise MigrationFailed(
            f"{file.name} does not say which program may use the schema after it: put a line like "
            "`-- oldest program: 0.1.0` in its head."
        )
    return Migration(int(number[1]), file.name, sql, oldest[1])


async def migrate(
    database: Database,
    *,
    dry_run: bool = False,
    directory: Traversable | None = None,
    clock: Clock | None = None,
    version: str = paddock.__version__,
    say: Callable[[str], None] = _say_nothing,
    applying: Callable[[Migration], None] = lambda _: None,
) -> Sequence[Migration]:
    """Bring the schema up to what this program knows; return what was (or would be) applied. `applying`
    is called before each.

    Any number of replicas may do this at once: one applies, the others wait and find it done.
    """
    migrations = read_migrations(directory)
    clock = clock or SystemClock()
    async with database.acquire() as connection:
        pending = _pending(migrations, await _history(connection), version)
        if dry_run or not pending:
            return pending
        await _lock(connection, say)
        # Another replica may have applied them in the meantime.
        await connection.execute(_CREATE_HISTORY)
        pending = _pending(migrations, await _history(connection), version)
        for migration in pending:
            applying(migration)
            await _apply(connection, migration, clock)
        return pending


async def check_schema(
    connection: RawSession,
    *,
    directory: Traversable | None = None,
    version: str = paddock.__version__,
) -> None:
    """Refuse to go on with a schema this program cannot use."""
    history = await _history(connection)
    pending = _pending(read_migrations(directory), history, version)
    if not history:
        raise SchemaMismatch("The database has no schema of paddock's yet: run `paddock migrate`.")
    if pending:
        raise SchemaMismatch(
            f"The database's schema is older than this paddock ({len(pending)} migrations are "
            f"missing, the first is {pending[0].name}): run `paddock migrate`."
        )


async def _history(connection: RawSession) -> Sequence[Applied]:
    if await connection.fetchval("SELECT to_regclass('schema_migrations') IS NULL"):
        return []
    return [Applied(*row) for row in await connection.fetch(_READ_HISTORY)]


def _pending(
    migrations: Sequence[Migration], history: Sequence[Applied], version: str
) -> Sequence[Migration]:
    _refuse_a_schema_too_new(history, version)
    known = {migration.number: migration for migration in migrations}
    for applied in history:
        ours = known.pop(applied.number, None)
        if ours is not None and ours.checksum != applied.checksum:
            raise SchemaMismatch(
                f"Migration {ours.name} is not what was applied to this database under its number "
                f"({applied.name}, {applied.checksum[:12]}; the file has {ours.checksum[:12]}): "
                "install paddock again, or restore the database this program belongs to."
            )
    pending = [known[number] for number in sorted(known)]
    newest = max((applied.number for applied in history), default=0)
    if pending and pending[0].number < newest:
        raise SchemaMismatch(
            f"The database lacks {pending[0].name} but has later ones (up to {newest:04}): restore "
            "it from a backup."
        )
    return pending


def _refuse_a_schema_too_new(history: Sequence[Applied], version: str) -> None:
    strictest = max(history, key=lambda applied: _release(applied.oldest_program), default=None)
    if strictest and _release(strictest.oldest_program) > _release(version):
        raise SchemaMismatch(
            f"The database's schema is for paddock {strictest.oldest_program} and newer (since "
            f"{strictest.name}), and this is {version}: upgrade paddock, or restore the database "
            "from a backup of before."
        )


def _release(version: str) -> tuple[int, ...]:
    """0.2.0rc1 counts as 0.2.0: it brings 0.2.0's migrations."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


async def _lock(connection: RawSession, say: Callable[[str], None]) -> None:
    """Held until the session ends. The other replicas wait without a limit, because the first one's
    migrations may take any time."""
    if await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
        return
    say("waiting for another paddock that is migrating this database")
    await connection.execute("SET lock_timeout = 0; SET statement_timeout = 0")
    await connection.fetchval("SELECT pg_advisory_lock($1)", _LOCK)


async def _apply(connection: RawSession, migration: Migration, clock: Clock) -> None:
    for attempt in range(1, _TABLE_LOCK_ATTEMPTS + 1):
        try:
            async with connection.transaction():
                await connection.execute(
                    f"SET LOCAL lock_timeout = '{_TABLE_LOCK_TIMEOUT}s';"
                    "SET LOCAL statement_timeout = 0;"
                    "SET LOCAL idle_in_transaction_session_timeout = 0"
                )
                await _execute(connection, migration)
                await connection.execute(
                    _WRITE_HISTORY,
                    migration.number,
                    migration.name,
                    migration.checksum,
                    migration.oldest_program,
                    clock.now(),
                )
        except asyncpg.LockNotAvailableError as error:
            if attempt == _TABLE_LOCK_ATTEMPTS:
                raise Contended(
                    f"Migration {migration.name} did not get its locks: other sessions hold them "
                    "(see pg_stat_activity); run `paddock migrate` again when they are gone."
                ) from error
            await clock.sleep(_TABLE_LOCK_PAUSE)
        else:
            return


async def _execute(connection: RawSession, migration: Migration) -> None:
    """Execute statement by statement: PostgreSQL reports the position of a syntax error, but for other
    errors not which of many statements failed."""
    for line, statement in statements(migration.sql):
        if re.match(r"(?i)(begin|commit|end|rollback|start\s+transaction|abort)\b", statement):
            raise MigrationFailed(
                f"Migration {migration.name}, line {line}: a migration is one transaction and may "
                "not begin or end one."
            )
        try:
            await connection.execute(statement)
        except (asyncpg.LockNotAvailableError, asyncpg.DiskFullError):
            raise
        except asyncpg.PostgresError as error:
            if not has_ended(connection):
                raise _failure(migration, line, statement, error) from error
            raise


def _failure(
    migration: Migration, line: int, statement: str, error: asyncpg.PostgresError
) -> MigrationFailed:
    position = getattr(error, "position", None)
    if position:
        line += statement.count("\n", 0, int(position) - 1)
    detail = getattr(error, "detail", None)
    said = f"{error.args[0]}; {detail.rstrip('.')}" if detail else error.args[0]
    return MigrationFailed(
        f"Migration {migration.name} failed at line {line} ({said}): nothing of it was kept; mend the "
        "cause, then run `paddock migrate` again."
    )


_BOUNDARY = re.compile(
    r"""
      (?P<skip> --[^\n]*
              | /\*.*?\*/
              | \b[eE]'(?:[^'\\]|\\.|'')*'
              | '(?:[^']|'')*'
              | "(?:[^"]|"")*"
              | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
    | ;
    """,
    re.VERBOSE | re.DOTALL,
)


def statements(sql: str) -> Iterator[tuple[int, str]]:
    """The statements of a file, each with the number of its first line. Function bodies are
    dollar-quoted; BEGIN ATOMIC bodies are not understood."""
    start = 0
    ends = [found.span() for found in _BOUNDARY.finditer(sql) if not found["skip"]]
    for end, next_start in [*ends, (len(sql), len(sql))]:
        # Comments before a statement are not part of it: an error names the statement's first line.
        before = re.match(r"(?:\s+|--[^\n]*\n?|/\*.*?\*/)*", sql[start:end], re.DOTALL)
        start += before.end() if before else 0
        if statement := sql[start:end].rstrip():
            yield sql.count("\n", 0, start) + 1, statement
        start = next_start
