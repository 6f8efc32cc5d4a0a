"""Counts of jobs, runners and endings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from paddock.domain.endings import Ending
from paddock.domain.states import JobState, RunnerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`to_jit` is the median time in seconds from the first word of a job to its runner's stored JIT.
    `to_jit` and `endings` cover the period that was asked for."""

    jobs: Mapping[JobState, int]
    runners: Mapping[RunnerState, int]
    oldest_queued_at: datetime | None
    to_jit: float | None
    endings: Mapping[Ending, int]
