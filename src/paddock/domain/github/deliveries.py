"""Webhook deliveries: stored before they are answered, applied afterwards, never lost in between."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

from paddock.domain.ids import AppId, HostId

#: The order of arrival.
DeliveryNumber = NewType("DeliveryNumber", int)


class DeliveryState(StrEnum):
    PENDING = "pending"
    APPLIED = "applied"
    IGNORED = "ignored"  # understood; nothing to do
    DEAD = "dead"  # cannot be applied; kept with its error for an operator


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """A delivery whose signature is good. `guid` is GitHub's: the same for every attempt."""

    host: HostId
    #: The App whose secret signed it.
    app: AppId
    guid: str
    event: str
    action: str | None
    installation: int | None
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    number: DeliveryNumber
    host: HostId
    app: AppId
    guid: str
    event: str
    action: str | None
    installation: int | None
    received_at: datetime
    attempts: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What became of a delivery. `note` is the reason it was ignored, or the error that killed it."""

    number: DeliveryNumber
    state: DeliveryState
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponement:
    """Something a delivery needs could not be read; it is looked at again later."""

    number: DeliveryNumber
    until: datetime
    note: str
