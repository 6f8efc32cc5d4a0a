"""Applying deliveries: from the table to rows, in batches.

The receiver answers GitHub after one insert; everything a delivery means happens here. What cannot be
applied is set aside with its error and stands in nobody's way (I13). What needs something that cannot
be read now, its installation, is looked at again later. A crash between any two lines costs nothing:
a delivery is settled in the transaction that applies it, and applying it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec
import structlog
from prometheus_client import Counter

from paddock.dispatch.installations import Installations
from paddock.domain.deliveries import (
    Delivery,
    DeliveryState,
    Postponement,
    Settlement,
)
from paddock.domain.github_errors import GitHubError
from paddock.domain.ids import AppId, HostId
from paddock.domain.intake import Passed, Surroundings, judge
from paddock.domain.jobs import JobReport
from paddock.github.facts import Incomprehensible, facts_of_event, repository_of
from paddock.github.payloads import InstallationEvent, PayloadError, WorkflowJobEvent
from paddock.ports import Clock, Store, Subscription, Topic, Wakeups
from paddock.store.errors import Contended, DatabaseUnavailable, OutcomeUnknown, StoreError

_log = structlog.get_logger()

#: One transaction of some tens of milliseconds.
BATCH: Final = 200
#: How long a delivery can lie unnoticed if its wake-up was lost.
_LOOK_AGAIN: Final = 5.0
#: An installation that cannot be read is tried again after a second, then two, up to this.
_LONGEST_WAIT: Final = timedelta(minutes=5)
#: GitHub cancels a queued job after a day; a delivery that could not be placed by then is of no use.
_GIVE_UP: Final = timedelta(hours=24)

APPLIED = Counter(
    "paddock_deliveries_applied_total", "Deliveries settled, by outcome.", ["outcome"]
)
PASSED = Counter(
    "paddock_jobs_passed_over_total",
    "Jobs that were not taken in, each reason by itself.",
    ["reason"],
)

_workflow_job = msgspec.json.Decoder(WorkflowJobEvent)
_installation = msgspec.json.Decoder(InstallationEvent)


@dataclass(slots=True)
class _Batch:
    """What one round found out."""

    reports: list[tuple[Delivery, JobReport]] = field(default_factory=list)
    settled: list[Settlement] = field(default_factory=list)
    postponed: list[Postponement] = field(default_factory=list)
    #: Installations to read, with the deliveries that wait for it or ask for it.
    reads: dict[tuple[HostId, AppId, int], list[Delivery]] = field(default_factory=dict)

    def settle(self, delivery: Delivery, state: DeliveryState, note: str | None = None) -> None:
        self.settled.append(Settlement(number=delivery.number, state=state, note=note))

    def pass_over(self, delivery: Delivery, reason: Passed) -> None:
        PASSED.labels(reason).inc()
        self.settle(delivery, DeliveryState.IGNORED, reason)

    def bury(self, delivery: Delivery, error: object) -> None:
        self.settle(delivery, DeliveryState.DEAD, str(error))


class DeliveryApplier:
    def __init__(
        self, *, store: Store, installations: Installations, clock: Clock, wakeups: Wakeups
    ) -> None:
        self._store = store
        self._installations = installations
        self._clock = clock
        self._woken: Subscription = wakeups.subscribe(Topic.DELIVERIES)

    async def run(self) -> None:
        while True:
            if await self.round() < BATCH:
                await self._woken.wait(_LOOK_AGAIN)

    async def round(self) -> int:
        """Look at one batch; returns how many deliveries were looked at."""
        deliveries = await self._store.take_deliveries(BATCH)
        if not deliveries:
            return 0
        batch = await self._judge(deliveries)
        await self._apply(batch)
        # What can be applied has been; only now does anyone wait for GitHub.
        for (host, app, installation), waiting in batch.reads.items():
            await self._read_installation(host, app, installation, waiting)
        return len(deliveries)

    async def _judge(self, deliveries: Sequence[Delivery]) -> _Batch:
        batch = _Batch()
        jobs = [
            (delivery, event)
            for delivery in deliveries
            if (event := _decode(delivery, batch)) is not None
        ]
        around = await self._store.surroundings(
            (delivery.host, event.installation.id)
            for delivery, event in jobs
            if event.installation is not None
        )
        foreign = [
            (delivery, report)
            for delivery, event in jobs
            if (report := _take_in(delivery, event, around, batch)) is not None
        ]
        await self._keep_our_runners(foreign, batch)
        return batch

    async def _keep_our_runners(
        self, foreign: Sequence[tuple[Delivery, JobReport]], batch: _Batch
    ) -> None:
        """An event that names one of our runners is applied to it, whatever the job's labels."""
        named = [
            (report.account, report.facts.executor.name)
            for _, report in foreign
            if report.facts.executor is not None
        ]
        ours = await self._store.our_runners(named) if named else frozenset()
        for delivery, report in foreign:
            executor = report.facts.executor
            if executor is not None and (report.account, executor.name) in ours:
                batch.reports.append((delivery, report))
            else:
                batch.pass_over(delivery, Passed.NOT_OURS)

    async def _apply(self, batch: _Batch) -> None:
        try:
            await self._write(batch.reports, batch.settled, batch.postponed)
        except (DatabaseUnavailable, OutcomeUnknown, Contended):
            raise
        except Exception as error:
            _log.warning("a batch of deliveries failed; each is tried alone", error=str(error))
            await self._write([], batch.settled, batch.postponed)
            for delivery, report in batch.reports:
                await self._apply_alone(delivery, report)

    async def _apply_alone(self, delivery: Delivery, report: JobReport) -> None:
        try:
            await self._write([(delivery, report)], [], [])
        except StoreError:
            raise
        except Exception as error:
            _log.warning("delivery set aside", guid=delivery.guid, error=str(error))
            dead = Settlement(
                number=delivery.number,
                state=DeliveryState.DEAD,
                note=f"{type(error).__name__}: {error}",
            )
            await self._write([], [dead], [])

    async def _write(
        self,
        reports: Sequence[tuple[Delivery, JobReport]],
        settled: Sequence[Settlement],
        postponed: Sequence[Postponement],
    ) -> None:
        applied = [
            Settlement(number=delivery.number, state=DeliveryState.APPLIED)
            for delivery, _ in reports
        ]
        if not (applied or settled or postponed):
            return
        unplaced = await self._store.apply_deliveries(
            reports=[report for _, report in reports],
            settled=[*applied, *settled],
            postponed=postponed,
        )
        for settlement in (*applied, *settled):
            APPLIED.labels(settlement.state).inc()
        for each in unplaced:
            _log.warning(
                "an event names a runner that cannot follow it",
                runner=str(each.runner),
                state=each.state,
                job=each.job,
                job_state=each.job_state,
            )

    async def _read_installation(
        self, host: HostId, app: AppId, installation: int, waiting: Sequence[Delivery]
    ) -> None:
        """Events about an installation only say that it should be read; jobs of one that is not
        known wait until it is."""
        try:
            known = await self._installations.read(app, installation)
        except GitHubError as error:
            await self._put_off(waiting, error.failure.sentence)
            return
        batch, now = _Batch(), self._clock.now()
        for delivery in waiting:
            if delivery.event != "workflow_job":
                batch.settle(delivery, DeliveryState.APPLIED)
            elif not known:
                batch.pass_over(delivery, Passed.INSTALLATION_REMOVED)
            else:
                batch.postponed.append(
                    Postponement(
                        number=delivery.number, until=now, note="its installation was read"
                    )
                )
        await self._write([], batch.settled, batch.postponed)
        if known:
            # And those that were put off when it could not be read.
            await self._store.hurry_deliveries(host, installation)

    async def _put_off(self, waiting: Sequence[Delivery], why: str) -> None:
        now = self._clock.now()
        batch = _Batch()
        for delivery in waiting:
            if now - delivery.received_at > _GIVE_UP:
                batch.bury(delivery, f"its installation could not be read for a day: {why}")
                continue
            wait = min(timedelta(seconds=2 ** min(delivery.attempts, 16)), _LONGEST_WAIT)
            batch.postponed.append(Postponement(number=delivery.number, until=now + wait, note=why))
        await self._write([], batch.settled, batch.postponed)


def _decode(delivery: Delivery, batch: _Batch) -> WorkflowJobEvent | None:
    """The event, if it is about a job; all else is dealt with here."""
    try:
        match delivery.event:
            case "workflow_job":
                return _workflow_job.decode(delivery.payload)
            case "installation" | "installation_repositories":
                installation = _installation.decode(delivery.payload).installation.id
                key = (delivery.host, delivery.app, installation)
                batch.reads.setdefault(key, []).append(delivery)
            case _:
                batch.settle(delivery, DeliveryState.APPLIED)
    except PayloadError as error:
        batch.bury(
            delivery, f"the payload of {delivery.event} is not as GitHub describes it: {error}"
        )
    return None


def _take_in(
    delivery: Delivery, event: WorkflowJobEvent, around: Surroundings, batch: _Batch
) -> JobReport | None:
    """Put the job where it belongs; returns its report if it can only be ours by its executor."""
    if event.installation is None:
        batch.pass_over(delivery, Passed.NO_INSTALLATION)
        return None
    account = around.accounts.get((delivery.host, event.installation.id))
    if account is None:
        key = (delivery.host, delivery.app, event.installation.id)
        batch.reads.setdefault(key, []).append(delivery)
        return None
    try:
        facts = facts_of_event(delivery.host, event, received_at=delivery.received_at)
    except Incomprehensible as error:
        batch.bury(delivery, error)
        return None
    report, could_be_ours = judge(facts, repository_of(event.repository), account, around)
    if could_be_ours:
        batch.reports.append((delivery, report))
        return None
    return report
