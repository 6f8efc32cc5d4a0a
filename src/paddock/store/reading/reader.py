"""Read-only transactions for readers: two seconds at most, with plans made for the given values.

Reading must not slow dispatch. So the server itself ends a reader's statement that takes too long, and
a paddock server gives its readers a few connections of their own (`Database.beside`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import asyncpg

from paddock.domain.reading.filters import BadCursor, Page, Paging
from paddock.ports import Clock
from paddock.ports.errors import StoreError
from paddock.store.database import Connection, Database

#: Every page is read in some milliseconds. A query that takes this long has found no index, and the
#: reader should ask for less.
LONGEST_READ: Final = 2

#: All statements of one transaction read the same snapshot. Elsewhere a statement has one plan for all
#: values. Here it is planned for the given values, so that an unused filter costs nothing.
_BEGIN: Final = f"""
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL statement_timeout = '{LONGEST_READ}s';
SET LOCAL plan_cache_mode = force_custom_plan;
SET LOCAL enable_seqscan = on;
SET LOCAL enable_bitmapscan = on;
SET LOCAL max_parallel_workers_per_gather TO DEFAULT
"""

T = TypeVar("T")


class TooSlow(StoreError):
    """A reader's query took longer than `LONGEST_READ`."""


class Reader:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Connection]:
        try:
            async with self._database.transaction(begin=_BEGIN) as connection:
                yield connection
        except StoreError as error:
            if isinstance(error.__cause__, asyncpg.QueryCanceledError):
                raise TooSlow(
                    f"That took the database longer than {LONGEST_READ} s: ask for less, with a "
                    "filter or a smaller `limit`."
                ) from error
            raise


def page(
    rows: Sequence[asyncpg.Record],
    paging: Paging,
    read: Callable[[asyncpg.Record], T],
    cursor: Callable[[asyncpg.Record], object],
) -> Page[T]:
    """`rows` may hold one row more than the page. Its existence shows that there is a next page."""
    shown = rows[: paging.limit]
    more = len(rows) > paging.limit
    return Page(items=[read(row) for row in shown], next=str(cursor(shown[-1])) if more else None)


def number(cursor: str | None) -> int | None:
    """The cursor of a list that is ordered by number."""
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or int(cursor) >= 2**63:
        raise BadCursor(cursor)
    return int(cursor)
