"""Whether this replica is alive, and whether it can do its work.

Both answers are public, so they say no more than that; the log has the reasons.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from paddock.ports import Clock
from paddock.ports.errors import StoreError
from paddock.services import Troubles
from paddock.store.database import Database
from paddock.store.migrate import check_schema

_log = structlog.get_logger()

#: A kubelet's probe gives up after one second by default.
CHECK_TIMEOUT: Final = 0.9
#: More frequent requests get the last answer: strangers must not keep the database busy.
REMEMBERED: Final = 1.0


#: Without these tasks a replica accepts webhooks without applying them, or Pods' requests without
#: answering them.
_NEEDED: Final = ("deliveries", "dispatch")


class Readiness:
    """A replica is ready if the database answers, its schema is one this program can use, the tasks
    that apply webhooks and match jobs do not keep failing, and the replica is not about to stop.

    Leadership and a fresh view of the fleet are not required: a replica without them answers webhooks
    and Pods as well as any other, and while the API server is away it must (S5).
    `paddock_fleet_read_timestamp_seconds` shows the age of the view."""

    def __init__(self, database: Database, clock: Clock, troubles: Troubles | None = None) -> None:
        self._database = database
        self._clock = clock
        self._troubles = troubles
        self._stopping = False
        self._lock = asyncio.Lock()
        self._checked_at = float("-inf")
        self._is_ready = False
        self._last_trouble: str | None = None

    def stop(self) -> None:
        """Report not ready, so that load balancers send requests to other replicas."""
        self._stopping = True

    async def check(self) -> bool:
        if self._stopping:
            return False
        async with self._lock:
            if self._clock.monotonic() - self._checked_at > REMEMBERED:
                trouble = await self._trouble()
                self._is_ready = trouble is None
                self._tell(trouble)
                self._checked_at = self._clock.monotonic()
            return self._is_ready

    async def _trouble(self) -> str | None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT), self._database.transaction() as connection:
                await check_schema(connection)
        except TimeoutError:
            return f"The database did not answer within {CHECK_TIMEOUT:g} s."
        except StoreError as error:
            return error.message
        return self._troubles.of(*_NEEDED) if self._troubles else None

    def _tell(self, trouble: str | None) -> None:
        """Log only changes: a probe asks every few seconds."""
        if trouble == self._last_trouble:
            return
        if trouble is None:
            _log.info("replica.ready")
        else:
            _log.warning("replica.not_ready", why=trouble)
        self._last_trouble = trouble
