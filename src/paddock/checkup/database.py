"""The database: whether it answers, how it is pooled, whether its schema is this program's."""

from __future__ import annotations

from collections.abc import AsyncIterator

from paddock.checkup.finding import Finding, failure, ok, warning
from paddock.store.clock import DatabaseClock
from paddock.store.database import Database
from paddock.store.errors import SchemaMismatch
from paddock.store.migrate import check_schema

_DATABASE = "database"
#: A replica has ten sessions for its work, some for the API and the dashboard, and one for each loop it
#: leads.
_OF_A_REPLICA = 20


#: A machine without NTP gains less than this in a day, and that does no harm.
_CLOCK_OFF = 10.0


def examine_clock(clock: DatabaseClock) -> Finding:
    """Compare this machine's clock with the database's."""
    off = clock.skew.total_seconds()
    if abs(off) <= _CLOCK_OFF:
        return ok("clock", f"this machine's is within {max(1.0, abs(off)):.0f} s of the database's")
    where = "ahead of" if off > 0 else "behind"
    return warning(
        "clock",
        f"this machine's clock is {abs(off):.0f} s {where} the database's",
        "synchronise both (NTP): paddock goes by the database's, but its log by this machine's",
    )


async def examine_database(database: Database) -> AsyncIterator[Finding]:
    """Connecting has looked at the version, the encoding and the pooling mode already."""
    async with database.transaction() as connection:
        version = await connection.fetchval("SHOW server_version")
        most = int(await connection.fetchval("SHOW max_connections"))
    yield ok(
        _DATABASE, f"PostgreSQL {version.split()[0]} at {database.shown}, with sessions of our own"
    )
    if most < 2 * _OF_A_REPLICA:
        yield warning(
            _DATABASE,
            f"the server allows {most} connections, and a replica uses up to {_OF_A_REPLICA}",
            "raise max_connections, so that two replicas fit during a rollout",
        )


async def examine_schema(database: Database) -> Finding:
    """Unless it is OK, no table of paddock's may be read."""
    try:
        async with database.acquire() as connection:
            await check_schema(connection)
    except SchemaMismatch as error:
        return failure("schema", error.message, "see docs/database.md")
    return ok("schema", "up to date")
