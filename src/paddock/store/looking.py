"""How the store is looked at: read-only, for two seconds at most, and planned for what is asked.

Dispatch must not feel it. So whoever looks gets a transaction that the server itself ends when it takes
too long, and a server gives its readers a few connections of their own (`Database.beside`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import asyncpg
import msgspec

from paddock.domain.reading import BadCursor, Page, Paging
from paddock.ports import Clock
from paddock.store.database import Connection, Database
from paddock.store.errors import StoreError

#: Every page there is is read in some milliseconds. What takes this long has found no index, and
#: whoever waits for it would rather ask for less.
LONGEST_LOOK: Final = 2

#: Snapshots are consistent: a list and what stands beside it are of one moment. Statements of ours
#: otherwise share one plan for all values; here a filter that is not given should cost nothing.
_BEGIN: Final = f"""
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL statement_timeout = '{LONGEST_LOOK}s';
SET LOCAL plan_cache_mode = force_custom_plan;
SET LOCAL enable_seqscan = on;
SET LOCAL enable_bitmapscan = on
"""

T = TypeVar("T", bound=msgspec.Struct)


class TooSlow(StoreError):
    """Looking took longer than anybody may look."""


class Looking:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def _looking(self) -> AbstractAsyncContextManager[Connection]:
        return looking(self._database, _BEGIN)


@asynccontextmanager
async def looking(database: Database, begin: str) -> AsyncIterator[Connection]:
    """A transaction that `begin` limits to `LONGEST_LOOK`."""
    try:
        async with database.transaction(begin=begin) as connection:
            yield connection
    except StoreError as error:
        if isinstance(error.__cause__, asyncpg.QueryCanceledError):
            raise TooSlow(
                f"That took the database longer than {LONGEST_LOOK} s: ask for less, with a "
                "filter or a smaller `limit`."
            ) from error
        raise


def line(kind: type[T], row: Mapping[str, Any], **more: Any) -> T:
    """A row as the line it is, its enumerations checked."""
    return msgspec.convert({**row, **more}, kind)


def page(
    rows: Sequence[asyncpg.Record],
    paging: Paging,
    read: Callable[[asyncpg.Record], T],
    cursor: Callable[[asyncpg.Record], object],
) -> Page[T]:
    """One row more than the page has was asked for: whether there is one is all that it tells."""
    shown = rows[: paging.limit]
    more = len(rows) > paging.limit
    return Page(items=[read(row) for row in shown], next=str(cursor(shown[-1])) if more else None)


def number(cursor: str | None) -> int | None:
    """The cursor of a list in the order of numbers."""
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or int(cursor) >= 2**63:
        raise BadCursor(cursor)
    return int(cursor)
