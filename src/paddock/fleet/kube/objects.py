"""Kubernetes' objects, with the fields that are needed here.

A Pod of the API has some five hundred fields. These structs hold the fields that decisions depend on.
The decoder skips the rest, so a list of 5,000 Pods takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

import msgspec

from paddock.domain.pods.fingerprints import ContainerStatus

POOL_LABEL: Final = "paddock.dev/pool"
OWNER_LABEL: Final = "paddock.dev/owner"
#: The pool's rule for jobs from forks, for policies and for the template's own containers.
FORKS_LABEL: Final = "paddock.dev/forks"
RUNNER_ANNOTATION: Final = "paddock.dev/runner"
#: On each Pod, so that its end is recorded before the Pod is gone.
VERDICT_FINALIZER: Final = "paddock.dev/verdict"

T = TypeVar("T")


class _Slim(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Notes(msgspec.Struct, frozen=True):
    """Our labels and annotations."""

    pool: str | None = msgspec.field(name=POOL_LABEL, default=None)
    owner: str | None = msgspec.field(name=OWNER_LABEL, default=None)
    runner: str | None = msgspec.field(name=RUNNER_ANNOTATION, default=None)


class Metadata(_Slim, frozen=True):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Notes = Notes()
    annotations: Notes = Notes()
    finalizers: list[str] = []
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class Condition(_Slim, frozen=True):
    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""


class PodSpec(_Slim, frozen=True):
    node_name: str = ""


class PodStatus(_Slim, frozen=True):
    #: The generation that the kubelet had seen when it wrote this.
    observed_generation: int = 0
    phase: str = ""
    reason: str = ""
    conditions: list[Condition] = []
    init_container_statuses: list[ContainerStatus] = []
    container_statuses: list[ContainerStatus] = []


class PodObject(_Slim, frozen=True):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(_Slim, frozen=True):
    key: str
    value: str = ""
    effect: str = ""


class NodeMetadata(_Slim, frozen=True):
    """The labels decide which Pods the node is for."""

    name: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: datetime | None = None


class NodeSpec(_Slim, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(_Slim, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: list[Condition] = []


class NodeObject(_Slim, frozen=True):
    metadata: NodeMetadata = NodeMetadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class EventSeries(_Slim, frozen=True):
    count: int = 0
    last_observed_time: datetime | None = None


class EventObject(_Slim, frozen=True):
    """An event of either API: older components fill in `last_timestamp` and `count`, newer ones
    `event_time` and `series`."""

    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None


class ListMetadata(_Slim, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Listed(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    metadata: ListMetadata = ListMetadata()


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """A line of a watch."""

    type: str
    object: T


_NEVER: Final = datetime.fromtimestamp(0, UTC)
#: A message may quote a whole configuration.
_LONGEST: Final = 300
#: The last events are kept: they describe the end.
_MOST: Final = 20


def event_lines(events: Iterable[EventObject]) -> list[str]:
    """Events of a Pod as text, one line each, in the order in which they happened."""
    ordered = sorted(events, key=lambda event: (_last(event), event.reason, event.message))
    return [_line(event) for event in ordered[-_MOST:]]


def _last(event: EventObject) -> datetime:
    series = event.series.last_observed_time if event.series else None
    return series or event.last_timestamp or event.event_time or event.first_timestamp or _NEVER


def _line(event: EventObject) -> str:
    count = (event.series.count if event.series else event.count) or 1
    times = f", {count} times" if count > 1 else ""
    words = " ".join(event.message.split())
    words = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
    return f"{_last(event).isoformat(timespec='seconds')} {event.reason}{times}: {words}"
