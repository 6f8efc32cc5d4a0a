"""A pool as dispatch needs to know it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from paddock.domain.ids import PoolId
from paddock.domain.limits import Resources
from paddock.domain.runners.dialects import RunnerProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """What counting and matching need of a pool. `spec` is the whole of its description, JSON.
    `spec_hash` identifies it: a runner with another hash is stale."""

    name: str
    labels: tuple[str, ...]
    shape: Literal["gated", "single"]
    cost: Resources
    max_runners: int | None
    spec: str
    spec_hash: str
    #: By name; `None` is the default group.
    runner_group: str | None = None
    #: Named by its description, or recognised by its command.
    runner: RunnerProgram = RunnerProgram.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSummary:
    """A pool as it is listed for people."""

    id: PoolId
    name: str
    state: Literal["active", "draining", "deleted"]
    #: The whole of its description, JSON.
    spec: str
    labels: tuple[str, ...]
    shape: Literal["gated", "single"]
    cost: Resources
    max_runners: int | None
    runner_group: str | None
    runner: RunnerProgram
    runners: int
    idle: int
    queued: int
    paused_at: datetime | None
    paused_by: str | None
    paused_why: str | None
