"""Vitals of many Pods share one transaction.

A report waits up to a quarter of a second for others, and is answered when it is written. So the answer
tells the sidecar from the row whether its runner has ended, and a replica that crashes loses nothing
that it has acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog
from prometheus_client import Histogram

from paddock.domain.runners.vitals import VitalsOutcome, VitalsReport
from paddock.ports import Clock
from paddock.ports.errors import Contended, StoreError
from paddock.ports.runners import VitalsStore

_log = structlog.get_logger()

#: How long a report waits for others. Two thousand busy Pods send a hundred reports in this time.
GATHER: Final = 0.25
BATCH: Final = 500
#: Further reports are refused: the sidecars keep their samples and send them later.
MOST_WAITING: Final = 5_000
#: A sidecar gives up after five seconds.
MAX_WAIT: Final = 4.0

BATCHES = Histogram(
    "paddock_vitals_reports",
    "Reports of vitals per transaction.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
)


@dataclass(slots=True, eq=False)
class _Request:
    report: VitalsReport
    since: float
    answer: asyncio.Future[bool]

    def tell(self, *, kept: bool) -> None:
        if not self.answer.done():
            self.answer.set_result(kept)

    def refuse(self, error: StoreError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class VitalsBatches:
    def __init__(self, store: VitalsStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: deque[_Request] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def add(self, report: VitalsReport) -> bool:
        """Whether the report was kept; false if its Pod is unknown, or its runner has ended. Raises
        `StoreError`."""
        if len(self._waiting) >= MOST_WAITING:
            raise Contended(f"{MOST_WAITING} reports of vitals wait to be written.")
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(report, self._clock.monotonic(), answer))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all(), name="vitals")
        return await answer

    async def _write_all(self) -> None:
        while self._waiting:
            await self._clock.sleep(GATHER)
            taken = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            if batch := [each for each in taken if not each.answer.done()]:
                await self._write(batch)

    async def _write(self, batch: Sequence[_Request]) -> None:
        try:
            kept = await self._store.add_vitals([each.report for each in batch])
        except StoreError as error:
            for request in batch:
                request.refuse(error)
        except Exception as error:
            await self._write_alone(batch, error)
        else:
            BATCHES.observe(len(batch))
            for request, outcome in zip(batch, kept, strict=True):
                self._answer(request, outcome)

    async def _write_alone(self, batch: Sequence[_Request], error: Exception) -> None:
        """One report cannot be written. The others must still be written (I13)."""
        if len(batch) > 1:
            for request in batch:
                await self._write([request])
            return
        [request] = batch
        _log.warning("vitals.unwritable", pod=request.report.pod_name, error=repr(error))
        request.tell(kept=True)  # a repeated report would fail the same way

    def _answer(self, request: _Request, outcome: VitalsOutcome) -> None:
        match outcome:
            case VitalsOutcome.KEPT | VitalsOutcome.UNWANTED:
                request.tell(kept=outcome is VitalsOutcome.KEPT)
            case VitalsOutcome.NOT_MARKED if self._clock.monotonic() - request.since > MAX_WAIT:
                request.refuse(Contended("Another transaction holds the runner's row."))
            case VitalsOutcome.NOT_MARKED:
                request.report = replace(request.report, samples=())
                self._waiting.append(request)
