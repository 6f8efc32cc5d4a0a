"""Refused jobs, judged again when pools change: a corrected pool serves the jobs that wait."""

from __future__ import annotations

from typing import Final

import structlog

from paddock.domain.intake import judge
from paddock.ports import Store, Topic, Wakeups

_log = structlog.get_logger()

#: Enough for everything one mistake in a pool can leave waiting before someone sees it.
_BATCH: Final = 2000
_LOOK_AGAIN: Final = 300.0


class RefusalReview:
    def __init__(self, *, store: Store, wakeups: Wakeups) -> None:
        self._store = store
        self._woken = wakeups.subscribe(Topic.POOLS)

    async def run(self) -> None:
        while True:
            await self.round()
            await self._woken.wait(_LOOK_AGAIN)

    async def round(self) -> int:
        """How many jobs found a pool."""
        refused = await self._store.refused_jobs(_BATCH)
        if not refused:
            return 0
        around = await self._store.surroundings([])
        judged = [
            judge(job.facts, job.repository, job.account, around, trusted=job.trusted)
            for job in refused
        ]
        adopted = await self._store.adopt_jobs([report for report, _ in judged])
        if adopted:
            _log.info("refused jobs found a pool", jobs=adopted)
        return adopted
