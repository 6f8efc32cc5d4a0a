"""Judge refused jobs again when pools change, so that a corrected pool serves the waiting jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from paddock.domain.jobs.intake import RefusedJob, judge
from paddock.ports import Topic, Wakeups
from paddock.ports.jobs import RefusedJobStore

_log = structlog.get_logger()

#: Jobs per batch. Reading and judging one takes some 100 ms; deliveries are applied between batches.
_BATCH: Final = 2000
_LOOK_AGAIN: Final = 300.0
#: After a wake-up refused jobs are judged once more: one that was judged by the pools as they were may
#: have been written after the first look.
_SETTLED: Final = 5.0


class RefusalReview:
    def __init__(self, *, store: RefusedJobStore, wakeups: Wakeups) -> None:
        self._store = store
        self._woken = wakeups.subscribe(Topic.POOLS)

    async def run(self) -> None:
        woken: object = True
        while True:
            await self.round()
            woken = await self._woken.wait(_SETTLED if woken else _LOOK_AGAIN)

    async def round(self) -> int:
        """Return how many jobs found a pool. All are judged, batch by batch, so that jobs that no pool
        will ever take do not delay others (I26)."""
        adopted = 0
        refused = await self._store.refused_jobs(_BATCH)
        while refused:
            adopted += await self._judge(refused)
            refused = await self._store.refused_jobs(_BATCH, after=refused[-1])
        if adopted:
            _log.info("refusal.lifted", jobs=adopted)
        return adopted

    async def _judge(self, refused: Sequence[RefusedJob]) -> int:
        around = await self._store.intake_context([])
        judged = [
            judge(job.facts, job.repository, job.account, around, trusted=job.trusted)
            for job in refused
        ]
        return await self._store.adopt_jobs([report for report, _ in judged])
