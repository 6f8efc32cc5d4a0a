"""What really happened, for checkers.

GitHub's answers and webhooks may be wrong, late or lost; this is not. The simulator's promises are
checked against it and never against paddock's rows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class Ending(StrEnum):
    COMPLETED = "completed"  # the runner reported a result
    DIED = "died"  # the harness reported that its process ended
    LOST = "lost"  # GitHub gave it up after the lease; the process may or may not live


@dataclass(slots=True)
class Execution:
    """One runner executing one job."""

    job_id: int
    runner_id: int
    runner_name: str
    began: datetime
    ended: datetime | None = None
    how: Ending | None = None
    conclusion: str | None = None


@dataclass(frozen=True, slots=True)
class Mint:
    at: datetime
    app_id: int
    scope: str
    name: str
    runner_id: int


@dataclass(frozen=True, slots=True)
class Deletion:
    at: datetime
    runner_id: int
    name: str
    #: The job it was really executing: the deletion should have been refused.
    executing: int | None


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call and its answer."""

    at: datetime
    method: str
    path: str
    status: int
    body: Any
    lost: bool


#: Far more than a simulation records; a demonstration runs for days. Answers are large.
_KEPT, _KEPT_ANSWERS = 100_000, 10_000


@dataclass(slots=True)
class Truth:
    executions: deque[Execution] = field(default_factory=lambda: deque(maxlen=_KEPT))
    mints: deque[Mint] = field(default_factory=lambda: deque(maxlen=_KEPT))
    deletions: deque[Deletion] = field(default_factory=lambda: deque(maxlen=_KEPT))
    #: Events whose webhook was never sent: (event, action, job id or 0).
    unsent: deque[tuple[str, str | None, int]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    #: Faults that occurred by chance, by name.
    happened: Counter[str] = field(default_factory=Counter)
    answers: deque[RecordedCall] = field(default_factory=lambda: deque(maxlen=_KEPT_ANSWERS))
    #: Called when a runner begins to execute a job.
    on_began: Callable[[Execution], None] = lambda _execution: None
    _open_by_runner: dict[int, Execution] = field(default_factory=dict)

    def began(self, execution: Execution) -> None:
        self.executions.append(execution)
        self._open_by_runner[execution.runner_id] = execution
        self.on_began(execution)

    def ended(
        self, runner_id: int, *, at: datetime, how: Ending, conclusion: str | None = None
    ) -> None:
        """The first ending counts: GitHub's later findings do not change what happened."""
        execution = self._open_by_runner.pop(runner_id, None)
        if execution is not None:
            execution.ended, execution.how, execution.conclusion = at, how, conclusion

    def executing(self, runner_id: int) -> int | None:
        """The id of the job that this runner executes at this moment."""
        execution = self._open_by_runner.get(runner_id)
        return execution.job_id if execution else None

    def executors(self) -> dict[int, int]:
        """All executions in progress: runner id to job id."""
        return {runner: execution.job_id for runner, execution in self._open_by_runner.items()}

    def executions_of(self, job_id: int) -> list[Execution]:
        return [execution for execution in self.executions if execution.job_id == job_id]
