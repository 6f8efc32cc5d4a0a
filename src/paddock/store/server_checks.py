"""What paddock requires of a PostgreSQL server.

Without these checks a wrong server would show much later and elsewhere: an old server by a syntax error
in the middle of a migration, a transaction pooler by two leaders that hold one advisory lock.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from paddock.ports.errors import DatabaseUnavailable
from paddock.store.errors import DatabaseMisconfigured

OLDEST_SERVER = 15


async def check_server(one: Any, other: Any, *, shown: str) -> None:
    """Check a server through two connections that are open at the same time."""
    found = one.get_server_version()
    if found.major < OLDEST_SERVER:
        raise DatabaseMisconfigured(
            f"The server at {shown} is PostgreSQL {found.major}, and paddock needs "
            f"{OLDEST_SERVER} or newer: upgrade it, or use another."
        )
    if await _is_pooled_by_transaction(one, other):
        raise DatabaseMisconfigured(
            f"There is a transaction pooler at {shown}, and paddock needs sessions of its own "
            "(advisory locks, LISTEN): set pool_mode = session there, or connect to PostgreSQL "
            "directly."
        )
    if (encoding := await one.fetchval("SHOW server_encoding")) != "UTF8":
        raise DatabaseMisconfigured(
            f"The database at {shown} is encoded in {encoding}, which cannot hold every job's name: "
            "create it with ENCODING 'UTF8'."
        )
    if await one.fetchval("SHOW transaction_read_only") == "on":
        raise DatabaseUnavailable(
            f"The database at {shown} is read-only: connect to the primary (with several hosts in "
            "the URL, target_session_attrs=primary finds it)."
        )


async def _is_pooled_by_transaction(one: Any, other: Any) -> bool:
    """Two open sessions have two server processes and keep them. A pooler that gives each transaction
    any free process shows the same process in both sessions, or two processes in one session."""
    rounds = (one, other) * 3
    try:
        seen = [await session.fetchval("SELECT pg_backend_pid()") for session in rounds]
    except (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError):
        return True  # a prepared statement clashed with another client's, or was lost
    return seen[0] == seen[1] or seen != [seen[0], seen[1]] * 3
