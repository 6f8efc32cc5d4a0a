"""Delete old history in small batches."""

from __future__ import annotations

from typing import Final

import structlog

from paddock.domain.retention import BATCH, RETENTION, History, Retention
from paddock.ports import Clock
from paddock.ports.history import HistoryStore

_log = structlog.get_logger()

#: Between two rounds. History is kept for days, so its deletion need not be exact to the minute.
_EVERY: Final = 600.0
#: Between two batches of one round, so that the disk is free for other work most of the time.
_PAUSE: Final = 0.2


class Housekeeping:
    def __init__(
        self, *, store: HistoryStore, clock: Clock, retention: Retention = RETENTION
    ) -> None:
        self._store = store
        self._clock = clock
        self._retention = retention

    async def run(self) -> None:
        while True:
            await self.round()
            await self._clock.sleep(_EVERY)

    async def round(self) -> dict[History, int]:
        """Delete everything that is due; return how many rows were deleted, by kind."""
        gone = {history: await self._forget(history) for history in self._retention}
        if any(gone.values()):
            _log.info("history.purged", **{str(kind): rows for kind, rows in gone.items() if rows})
        return gone

    async def _forget(self, history: History) -> int:
        before = self._clock.now() - self._retention[history]
        gone = 0
        while True:
            batch = await self._store.forget(history, before=before)
            gone += batch
            if batch < BATCH:
                return gone
            await self._clock.sleep(_PAUSE)
