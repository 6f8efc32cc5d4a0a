"""The runners that are not gone, read at the cost of those that changed.

Loops read all of them every few seconds, and of a thousand idle Pods nearly none has changed since the
last read. So a read fetches the marks of all runners, and the rows only of those whose mark changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg

from paddock.domain.dialects import RunnerProgram
from paddock.domain.endings import Retired
from paddock.domain.ids import (
    AccountId,
    GitHubRunnerId,
    JobId,
    KeyId,
    PoolId,
    RunnerId,
)
from paddock.domain.limits import Resources
from paddock.domain.runners import Runner
from paddock.domain.states import RunnerState
from paddock.store.sql import named

_SQL = named("living")

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
        marks = await fetch(*_SQL["marks"]())
        changed = [
            row["id"]
            for row in marks
            if (mine := known.get(row["id"])) is None
            or mine[0] != row["xmin"]
            or mine[1] != row["version"]
        ]
        if changed:
            rows = await fetch(*_SQL["these"](runners=changed))
            read = {row["id"]: (row["xmin"], row["version"], runner_of(row)) for row in rows}
        # A runner that is gone by the second read is left out.
        missing = set(changed) - read.keys()
        self._known = {
            id_: read.get(id_) or known[id_] for row in marks if (id_ := row["id"]) not in missing
        }
        return [runner for _, _, runner in self._known.values()]


def runner_of(row: asyncpg.Record) -> Runner:
    return Runner(
        id=RunnerId(row["id"]),
        pool=PoolId(row["pool_id"]),
        pod_name=row["pod_name"],
        pod_uid=row["pod_uid"],
        state=RunnerState(row["state"]),
        generation=row["generation"],
        since=row["since"],
        key=None if row["key_id"] is None else KeyId(row["key_id"]),
        account=None if row["account_id"] is None else AccountId(row["account_id"]),
        name=row["name"],
        mint_deadline=row["mint_deadline"],
        github_id=None if row["github_id"] is None else GitHubRunnerId(row["github_id"]),
        delivery=row["delivery_id"],
        job=None if row["job_id"] is None else JobId(row["job_id"]),
        shape=row["shape"],
        spec_hash=row["spec_hash"],
        node=row["node"],
        created_at=row["created_at"],
        heard_at=row["heard_at"],
        acknowledged_at=row["acknowledged_at"],
        job_marked_at=row["job_marked_at"],
        hint=None if row["hint_job_id"] is None else JobId(row["hint_job_id"]),
        suspect_at=row["suspect_at"],
        absent_reads=row["absent_reads"],
        absent_since=row["absent_since"],
        retire_reason=row["retire_reason"],
        deregistered_at=row["deregistered_at"],
        proved_at=row["proved_at"],
        claimed_at=row["claimed_at"],
        armed_at=row["armed_at"],
        done_at=row["done_at"],
        retiring_at=row["retiring_at"],
        retired=None if row["retired"] is None else Retired(row["retired"]),
        unregistered=row["unregistered"],
        forced_by=row["forced_by"],
        deletion_asked_at=row["deletion_asked_at"],
        started=row["started"],
        version=row["runner_version"],
        cost=Resources(vcpu_milli=row["vcpu_milli"], memory_mib=row["memory_mib"]),
        program=RunnerProgram(row.get("program") or RunnerProgram.UNKNOWN),
        login=row.get("login"),
        pool_name=row.get("pool_name"),
    )
