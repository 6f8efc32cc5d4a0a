"""The database: whether it answers, how it is pooled, whether its schema is this program's."""

from __future__ import annotations

from collections.abc import AsyncIterator

from paddock.checkup.finding import Finding, ill, poor, well
from paddock.store.database import Database
from paddock.store.errors import StoreError
from paddock.store.migrate import check_schema, migrate

_DATABASE = "database"
#: A replica has ten sessions for its work, some for whoever looks, and one for each loop it leads.
_OF_A_REPLICA = 20


async def examine_database(database: Database) -> AsyncIterator[Finding]:
    """Connecting has looked at the version, the encoding and the pooling mode already."""
    async with database.transaction() as connection:
        version = await connection.fetchval("SHOW server_version")
        most = int(await connection.fetchval("SHOW max_connections"))
    yield well(
        _DATABASE, f"PostgreSQL {version.split()[0]} at {database.shown}, with sessions of our own"
    )
    if most < 2 * _OF_A_REPLICA:
        yield poor(
            _DATABASE,
            f"the server allows {most} connections, and a replica uses up to {_OF_A_REPLICA}",
            "raise max_connections, so that two replicas fit during a rollout",
        )
    try:
        async with database.acquire() as connection:
            await check_schema(connection)
        pending = await migrate(database, dry_run=True)
    except StoreError as error:
        yield ill("schema", error.message, "run `paddock migrate` with this version")
        return
    if pending:
        names = ", ".join(each.name for each in pending)
        yield poor("schema", f"migrations are pending: {names}", "run `paddock migrate`")
    else:
        yield well("schema", "up to date")
