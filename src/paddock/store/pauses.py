"""The pause of all dispatch, and how any pause is read from a row."""

from __future__ import annotations

import asyncpg

from paddock.domain.pauses import Pause
from paddock.store.base import Part
from paddock.store.sql import named

_SQL = named("pauses")


class Pausing(Part):
    async def pause_dispatch(self, *, why: str) -> bool:
        return await self._note_pause("pause", why)

    async def resume_dispatch(self, *, why: str) -> bool:
        return await self._note_pause("resume", why)

    async def dispatch_pause(self) -> Pause | None:
        row = await self._database.row(*_SQL["current"]())
        return None if row is None else pause_of(row)

    async def _note_pause(self, query: str, why: str) -> bool:
        """Under the matcher's lock, so a match that is under way ends before the pause begins."""
        async with self._matching() as connection:
            changed = await connection.fetchval(
                *_SQL[query](now=self._clock.now(), actor=self.actor, why=why)
            )
        return changed is not None


def pause_of(row: asyncpg.Record, prefix: str = "") -> Pause | None:
    """The pause in the columns `paused_at`, `paused_by` and `paused_why`, if there is one."""
    at, by, why = (row[f"{prefix}paused_{column}"] for column in ("at", "by", "why"))
    return None if at is None else Pause(at=at, by=by, why=why)
