"""Dashboard sessions that were ended before they expired."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from paddock.store.base import Part
from paddock.store.sql import named

_SQL = named("sessions")


class Sessions(Part):
    async def end_session(self, session: UUID, *, ends_at: datetime) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["end"](session=session, ends_at=ends_at, now=self._clock.now())
            )

    async def is_session_ended(self, session: UUID) -> bool:
        row = await self._database.row(*_SQL["ended"](session=session))
        return row is None or bool(row["ended"])
