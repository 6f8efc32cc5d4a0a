"""Apply stored deliveries to the rows they change, in batches.

The receiver answers GitHub after one insert; the applier does the rest. A delivery that cannot be
applied is set aside with its error and blocks no other (I13). A delivery of an unknown installation
stays pending until `installation_reads` has read the installation: the applier never waits for GitHub
(I83). A crash at any point loses nothing: a delivery is settled in the transaction that applies it, and
applying it twice has no further effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from paddock.dispatch.delivery_writer import Batch, DeliveryWriter
from paddock.dispatch.installation_reads import InstallationReads, InstallationToRead
from paddock.domain.github.deliveries import Delivery, DeliveryState
from paddock.domain.jobs.facts import JobReport
from paddock.domain.jobs.intake import IntakeContext, Passed, judge
from paddock.github.facts import UnusableFacts, facts_of_event, repository_of
from paddock.github.payloads import InstallationEvent, PayloadError, WorkflowJobEvent
from paddock.ports import Subscription, Topic, Wakeups
from paddock.ports.deliveries import DeliveryStore
from paddock.ports.errors import Contended, DatabaseUnavailable, OutcomeUnknown, StoreError

_log = structlog.get_logger()

#: One transaction with a batch of this size takes some tens of milliseconds.
BATCH: Final = 200
#: How long a delivery can stay unnoticed if its wake-up was lost.
_LOOK_AGAIN: Final = 5.0

_workflow_job = msgspec.json.Decoder(WorkflowJobEvent)
_installation = msgspec.json.Decoder(InstallationEvent)


@dataclass(slots=True)
class _Judged(Batch):
    """A batch, and the installations that its deliveries ask to read or wait for."""

    reads: dict[InstallationToRead, list[Delivery]] = field(default_factory=dict)


class DeliveryApplier:
    def __init__(
        self,
        *,
        store: DeliveryStore,
        reads: InstallationReads,
        writer: DeliveryWriter,
        wakeups: Wakeups,
    ) -> None:
        self._store = store
        self._reads = reads
        self._writer = writer
        self._woken: Subscription = wakeups.subscribe(Topic.DELIVERIES)
        #: Taken but not applied, because the database failed. They stay reserved for this replica for a
        #: while.
        self._unapplied: list[Delivery] = []

    async def run(self) -> None:
        while True:
            if await self.round() < BATCH:
                await self._woken.wait(_LOOK_AGAIN)

    async def round(self) -> int:
        """Apply one batch; return how many deliveries were in it."""
        deliveries, self._unapplied = self._unapplied, []
        deliveries = deliveries or await self._store.take_deliveries(BATCH)
        if not deliveries:
            return 0
        try:
            batch = await self._judge(deliveries)
            await self._apply(batch)
        except StoreError:
            self._unapplied = deliveries
            raise
        for installation, waiting in batch.reads.items():
            self._reads.request(installation, waiting)
        return len(deliveries)

    async def _judge(self, deliveries: Sequence[Delivery]) -> _Judged:
        batch = _Judged()
        jobs = [
            (delivery, event)
            for delivery in deliveries
            if (event := _decode(delivery, batch)) is not None
        ]
        around = await self._store.intake_context(
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
        self, foreign: Sequence[tuple[Delivery, JobReport]], batch: _Judged
    ) -> None:
        """An event that names one of our runners is applied, even if no pool takes the job's labels."""
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

    async def _apply(self, batch: Batch) -> None:
        try:
            await self._writer.write(batch)
        except (DatabaseUnavailable, OutcomeUnknown, Contended):
            raise
        except Exception as error:
            _log.warning("delivery.batch_failed", error=str(error))
            await self._writer.write(Batch(settled=batch.settled, postponed=batch.postponed))
            for delivery, report in batch.reports:
                await self._apply_alone(delivery, report)

    async def _apply_alone(self, delivery: Delivery, report: JobReport) -> None:
        try:
            await self._writer.write(Batch(reports=[(delivery, report)]))
        except StoreError:
            raise
        except Exception as error:
            _log.warning("delivery.set_aside", guid=delivery.guid, error=str(error))
            dead = Batch()
            dead.set_aside(delivery, f"{type(error).__name__}: {error}")
            await self._writer.write(dead)


def _decode(delivery: Delivery, batch: _Judged) -> WorkflowJobEvent | None:
    """The event, if it is about a job. Other events are settled here or ask for a read."""
    try:
        match delivery.event:
            case "workflow_job":
                return _workflow_job.decode(delivery.payload)
            case "installation" | "installation_repositories":
                installation = _installation.decode(delivery.payload).installation.id
                key = InstallationToRead(delivery.host, delivery.app, installation)
                batch.reads.setdefault(key, []).append(delivery)
            case _:
                batch.settle(delivery, DeliveryState.APPLIED)
    except PayloadError as error:
        batch.set_aside(
            delivery, f"the payload of {delivery.event} is not as GitHub describes it: {error}"
        )
    return None


def _take_in(
    delivery: Delivery, event: WorkflowJobEvent, around: IntakeContext, batch: _Judged
) -> JobReport | None:
    """Add the job's report to the batch, settle the delivery, or ask for a read. Return the report of a
    job whose labels are not for paddock: it is applied only if one of our runners executes the job."""
    if event.installation is None:
        batch.pass_over(delivery, Passed.NO_INSTALLATION)
        return None
    account = around.accounts.get((delivery.host, event.installation.id))
    if account is None:
        key = InstallationToRead(delivery.host, delivery.app, event.installation.id)
        batch.reads.setdefault(key, []).append(delivery)
        return None
    try:
        facts = facts_of_event(delivery.host, event, received_at=delivery.received_at)
    except UnusableFacts as error:
        batch.set_aside(delivery, error)
        return None
    report, could_be_ours = judge(facts, repository_of(event.repository), account, around)
    if could_be_ours:
        batch.reports.append((delivery, report))
        return None
    return report
