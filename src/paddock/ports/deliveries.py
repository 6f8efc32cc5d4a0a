"""Webhook deliveries: stored, applied, and asked for again if one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from paddock.domain.github.deliveries import (
    Delivery,
    DeliveryNumber,
    NewDelivery,
    Postponement,
    Settlement,
)
from paddock.domain.ids import AppId, HostId
from paddock.domain.jobs.facts import JobReport, UnappliedEvent
from paddock.ports.jobs import IncomingJobStore


class InboxStore(Protocol):
    """For the webhook endpoint."""

    async def store_deliveries(self, deliveries: Sequence[NewDelivery]) -> frozenset[str]:
        """Returns the GUIDs that are new. When this returns, all deliveries are durable (I1). It may be
        repeated, also after `OutcomeUnknown`."""
        ...


class DeliveryStore(IncomingJobStore, Protocol):
    """For the services that apply stored deliveries."""

    async def take_deliveries(self, limit: int) -> list[Delivery]:
        """The oldest that wait, reserved for this replica for some seconds. Replicas work side by side;
        if one dies, another applies its deliveries."""
        ...

    async def apply_deliveries(
        self,
        *,
        reports: Sequence[JobReport],
        settled: Sequence[Settlement],
        postponed: Sequence[Postponement],
    ) -> list[UnappliedEvent]:
        """The jobs, the runners they move and the deliveries that told of them, in one
        transaction. Applying a delivery twice is harmless (the merge is a join), losing one is not."""
        ...

    async def expedite_deliveries(
        self, host: HostId, installation: int, also: Sequence[DeliveryNumber]
    ) -> None:
        """Deliveries that waited for this installation to be read, and those of `also`, wait no
        longer."""
        ...


class RedeliveryStore(Protocol):
    """For the search for deliveries that never arrived."""

    async def known_guids(self, host: HostId, guids: Sequence[str]) -> frozenset[str]: ...

    async def hook_cursor(self, app: AppId) -> datetime:
        """Every delivery of the App made before this has arrived or was given up. An App that is
        new here starts now."""
        ...

    async def move_hook_cursor(self, app: AppId, until: datetime) -> None: ...
