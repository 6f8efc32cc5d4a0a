"""RunnerPool objects of a cluster, as far as they are not the pool's own description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import msgspec

GROUP: Final = "paddock.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "RunnerPool"
PLURAL: Final = "runnerpools"
#: On each pool until its last runner is gone.
DRAIN_FINALIZER: Final = "paddock.dev/drain"


class PoolCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    last_transition_time: datetime
    observed_generation: int = 0


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    #: The generation of the description that this status is about.
    observed_generation: int | None = None
    #: Runners there are, at work or not.
    runners: int | None = None
    #: Runners that wait for work.
    idle: int | None = None
    #: Jobs that wait for a runner of this pool.
    queued: int | None = None
    conditions: list[PoolCondition] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolObject:
    name: str
    uid: str
    version: str
    generation: int
    #: Its description, JSON.
    spec: bytes
    status: PoolStatus
    finalizers: tuple[str, ...] = ()
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolObjects:
    """All there are. A list that is not complete proves no absence (I29)."""

    pools: Sequence[PoolObject]
    complete: bool
