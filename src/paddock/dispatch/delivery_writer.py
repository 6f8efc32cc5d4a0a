"""The outcome of deliveries, written together with the changes they cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog
from prometheus_client import Counter

from paddock.domain.github.deliveries import Delivery, DeliveryState, Postponement, Settlement
from paddock.domain.jobs.facts import JobReport
from paddock.domain.jobs.intake import Passed
from paddock.domain.states import JobState
from paddock.log_events import owner_of
from paddock.ports.deliveries import DeliveryStore

_log = structlog.get_logger()

APPLIED = Counter(
    "paddock_deliveries_applied_total", "Deliveries settled, by outcome.", ["outcome"]
)
PASSED = Counter(
    "paddock_jobs_passed_over_total",
    "Jobs that were not taken in, each reason by itself.",
    ["reason"],
)


@dataclass(slots=True)
class Batch:
    """The outcome of each delivery of a batch."""

    reports: list[tuple[Delivery, JobReport]] = field(default_factory=list)
    settled: list[Settlement] = field(default_factory=list)
    postponed: list[Postponement] = field(default_factory=list)

    def settle(self, delivery: Delivery, state: DeliveryState, note: str | None = None) -> None:
        self.settled.append(Settlement(number=delivery.number, state=state, note=note))

    def pass_over(self, delivery: Delivery, reason: Passed) -> None:
        PASSED.labels(reason).inc()
        self.settle(delivery, DeliveryState.IGNORED, reason)

    def set_aside(self, delivery: Delivery, error: object) -> None:
        self.settle(delivery, DeliveryState.DEAD, str(error))


_JOB_EVENTS: Final[Mapping[JobState, str]] = {
    JobState.WAITING: "job.waiting",
    JobState.QUEUED: "job.queued",
    JobState.IN_PROGRESS: "job.started",
    JobState.COMPLETED: "job.completed",
}


def log_job(report: JobReport) -> None:
    """One line for each report that was written, so that a job's life can be followed by its id."""
    facts = report.facts
    _log.info(
        _JOB_EVENTS[facts.state],
        job=facts.id,
        account=owner_of(report.repository.full_name),
        repository=report.repository.full_name,
        runner=facts.executor and facts.executor.name,
        conclusion=facts.conclusion,
    )


class DeliveryWriter:
    def __init__(self, store: DeliveryStore) -> None:
        self._store = store

    async def write(self, batch: Batch) -> None:
        """The jobs, the runners they move and the deliveries, in one transaction."""
        applied = [
            Settlement(number=delivery.number, state=DeliveryState.APPLIED)
            for delivery, _ in batch.reports
        ]
        settled = [*applied, *batch.settled]
        if not (settled or batch.postponed):
            return
        unplaced = await self._store.apply_deliveries(
            reports=[report for _, report in batch.reports],
            settled=settled,
            postponed=batch.postponed,
        )
        for settlement in settled:
            APPLIED.labels(settlement.state).inc()
        for _, report in batch.reports:
            log_job(report)
        for each in unplaced:
            _log.warning(
                "delivery.runner_conflict",
                job=each.job,
                runner=each.name,
                pod=each.pod_name,
                state=each.state,
                job_state=each.job_state,
            )
