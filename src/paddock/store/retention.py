"""Delete old history in small batches, because old history slows queries down."""

from __future__ import annotations

from datetime import datetime

from paddock.domain.retention import BATCH, History
from paddock.store.base import StorePart
from paddock.store.sql import named

_SQL = named("retention")


class Retaining(StorePart):
    async def forget(self, history: History, *, before: datetime) -> int:
        async with self._database.transaction() as connection:
            tag = await connection.execute(*_SQL[history](before=before, limit=BATCH))
        return int(tag.split()[-1])
