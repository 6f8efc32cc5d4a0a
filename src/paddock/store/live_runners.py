"""The runners that are not gone, read at the cost of those that changed.

Loops read all of them every few seconds, and of a thousand idle Pods nearly none has changed since the
last read. So a read fetches the marks of all runners, and the rows only of those whose mark changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg
import msgspec

from paddock.domain.ids import RunnerId
from paddock.domain.runners.dialects import RunnerProgram
from paddock.domain.runners.runner import Runner
from paddock.store.row_parts import cost_of
from paddock.store.sql import named

_SQL = named("runners")

#: Fetches rows, inside a transaction or outside of one.
Fetch = Callable[..., Awaitable[list[asyncpg.Record]]]

#: A runner with its mark: the transaction that wrote the row, and the row's version. The transaction
#: alone is not enough after a restored backup: a new server may have written rows under transaction
#: numbers that the old one used.
_Marked = tuple[int, int, Runner]


class LiveRunners:
    """What the last read found. It is replaced as a whole: concurrent readers at worst fetch a row once
    more."""

    def __init__(self) -> None:
        self._known: dict[RunnerId, _Marked] = {}

    async def read(self, fetch: Fetch) -> list[Runner]:
        """All of them, oldest first; each as it was at some moment since the call began."""
        known = self._known
        read: dict[RunnerId, _Marked] = {}
        # Ten thousand rows pass here several times a second and block the event loop: no object is
        # made and no function called for an unchanged row.
        marks = await fetch(*_SQL["live_marks"]())
        changed = [
            row["id"]
            for row in marks
            if (mine := known.get(row["id"])) is None
            or mine[0] != row["xmin"]
            or mine[1] != row["version"]
        ]
        if changed:
            rows = await fetch(*_SQL["live"](runners=changed))
            read = {row["id"]: (row["xmin"], row["version"], runner_of(row)) for row in rows}
        # A runner that is gone by the second read is left out.
        missing = set(changed) - read.keys()
        self._known = {
            id_: read.get(id_) or known[id_] for row in marks if (id_ := row["id"]) not in missing
        }
        return [runner for _, _, runner in self._known.values()]


#: Where a column is not named like its field. `version` of the row counts its writes.
_RENAMED: Final = {
    "pool_id": "pool",
    "key_id": "key",
    "account_id": "account",
    "delivery_id": "delivery",
    "job_id": "job",
    "hint_job_id": "hint",
    "version": "row_version",
    "runner_version": "version",
}


def runner_of(row: asyncpg.Record) -> Runner:
    fields = {_RENAMED.get(column, column): value for column, value in row.items()}
    fields["cost"] = cost_of(row)
    fields["program"] = fields.get("program") or RunnerProgram.UNKNOWN
    return msgspec.convert(fields, Runner)
