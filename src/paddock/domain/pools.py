"""A pool as dispatch needs to know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paddock.domain.limits import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """What of a pool is counted with and matched by. `spec` is the whole of its description, JSON,
    and `spec_hash` names it: a runner of another hash is stale."""

    name: str
    labels: tuple[str, ...]
    shape: Literal["gated", "single"]
    cost: Resources
    max_runners: int | None
    spec: str
    spec_hash: str
    runner_group: int = 1
