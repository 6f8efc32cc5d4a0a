"""What operators do: pause all dispatch, and end sessions of the dashboard before they expire."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from paddock.domain.pauses import Pause
from paddock.store.base import StorePart
from paddock.store.row_parts import pause_of
from paddock.store.sql import named

_SQL = named("operators")


class Pausing(StorePart):
    async def pause_dispatch(self, *, why: str) -> bool:
        return await self._note_pause("pause_dispatch", why)

    async def resume_dispatch(self, *, why: str) -> bool:
        return await self._note_pause("resume_dispatch", why)

    async def dispatch_pause(self) -> Pause | None:
        row = await self._database.row(*_SQL["dispatch_pause"]())
        return None if row is None else pause_of(row)

    async def _note_pause(self, query: str, why: str) -> bool:
        """Under the matcher's lock, so a match that is under way ends before the pause begins."""
        async with self._matching() as connection:
            changed = await connection.fetchval(
                *_SQL[query](now=self._clock.now(), actor=self.actor, why=why)
            )
        return changed is not None


class Sessions(StorePart):
    async def end_session(self, session: UUID, *, ends_at: datetime) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["end_session"](session=session, ends_at=ends_at, now=self._clock.now())
            )

    async def is_session_ended(self, session: UUID) -> bool:
        row = await self._database.row(*_SQL["is_session_ended"](session=session))
        return row is None or bool(row["ended"])
