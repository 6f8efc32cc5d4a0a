"""A runner's Pod as any fleet shows it: a Pod of a cluster, or a supervised process of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from paddock.domain.ids import RunnerId
from paddock.domain.limits import Resources
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import ContainerStatus
from paddock.domain.runners.versions import RunnerVersion
from paddock.domain.states import RunnerState


class Phase(StrEnum):
    """Kubernetes' words. A healthy idle Pod of the gated shape is `Pending`: its poller is an init
    container (I55)."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    #: An attribute, not a property: loops read it of ten thousand Pods at a time.
    terminal: bool

    def __init__(self, value: str) -> None:
        self.terminal = value in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """`containers` are the runner's own; `poller` is the one that asks for work (the same container
    in the single shape)."""

    name: PodName
    uid: str
    pool: str
    phase: Phase
    reason: str | None = None
    node: str | None = None
    created_at: datetime
    deletion_requested_at: datetime | None = None
    owner: str | None = None
    poller: ContainerStatus | None = None
    containers: tuple[ContainerStatus, ...] = ()
    #: Why no node takes it, in the scheduler's words; `None` if one did, or it was not yet tried.
    unschedulable: str | None = None
    #: The version of its runner program, reported before it asks for work; `None`: unknown.
    runner_version: RunnerVersion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOrder:
    """A Pod to be created for a row that exists. `spec` is the pool's own description, JSON."""

    runner: RunnerId
    name: PodName
    pool: str
    spec: str
    #: The owner's label; the stamp sets it, never the create (I56).
    labels: dict[str, str] = field(default_factory=dict)
    #: Its resources, for a fleet that cannot read them from the template but can enforce them.
    cost: Resources = field(default_factory=Resources)
    #: Hosts that keep failing to start Pods: taken only if there is no other (I51).
    avoid: tuple[str, ...] = ()
    #: Hosts with a fault: never taken.
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps Pods that do not tolerate it off a host."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where Pods run: a node of a cluster, or this machine. `capacity` is what runner Pods may take of
    it; `None` where the fleet cannot tell."""

    name: str
    cordoned: bool = False
    deleting: bool = False
    ready: bool = True
    #: Why runners must not be there, as the host itself reports; `None` if there is no reason.
    fault: str | None = None
    capacity: Resources | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    @property
    def leaving(self) -> bool:
        """No idle runner is kept on it; runners at work stay."""
        return self.cordoned or self.deleting or self.fault is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodList:
    """All Pods of a fleet at one moment. A list that is not complete proves no absence (I29)."""

    pods: tuple[Pod, ...]
    complete: bool


class Audience(StrEnum):
    """What a token is for. The one for vitals is kept next to the job, and permits nothing else."""

    DISPATCH = "dispatch"
    VITALS = "vitals"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """The Pod that asks: its token, as the issuer reads it."""

    pod_name: PodName
    pod_uid: str
    expires_at: datetime
    audience: Audience = Audience.DISPATCH


_CLAIMED: Final = frozenset(
    {RunnerState.ARMED, RunnerState.RUNNING, RunnerState.BUSY, RunnerState.DONE}
)
_AT_WORK: Final = frozenset({RunnerState.BUSY, RunnerState.DONE})


def may_stamp(*, shape: str, state: RunnerState, poller: ContainerStatus | None) -> bool:
    """Whether the Pod may get its owner's label. The label can take it out of the network policy that
    lets it reach dispatch. So it must not be set before the Pod holds its JIT: a poller that is cut off
    asks for ever, and its claim waits with it (I56).

    A claimed Pod whose poller has ended holds its JIT. Where one container polls and runs, only a job
    proves that."""
    if shape == "single":
        return state in _AT_WORK
    return state in _CLAIMED and poller is not None and poller.state.terminated is not None
