"""What there is, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from paddock.domain.endings import Ending
from paddock.domain.states import JobState, RunnerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`to_jit` is the median of the time from the first word of a job to its runner's JIT being
    there, in seconds; it and `endings` are of the time asked about."""

    jobs: Mapping[JobState, int]
    runners: Mapping[RunnerState, int]
    oldest_queued_at: datetime | None
    to_jit: float | None
    endings: Mapping[Ending, int]
