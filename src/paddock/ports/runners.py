"""The steps of a runner's life that several services take.

Each step returns the runner as it is now, or the conflict that was found instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paddock.domain.ids import JobId, RunnerId
from paddock.domain.runners.endings import Retired
from paddock.domain.runners.runner import Conflict, Runner, RunnerSummary
from paddock.domain.runners.vitals import VitalsOutcome, VitalsReport
from paddock.domain.states import RunnerState


class FenceStore(Protocol):
    async def fence_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        state: RunnerState,
        why: str,
        evidence: str | None = None,
        retired: Retired = Retired.GIVEN_UP,
        unregistered: bool = False,
    ) -> Runner | Conflict:
        """The runner is never dispatched again. Its ending is judged by `retired` (why) and
        `unregistered` (GitHub never saw it online)."""
        ...


class RunnerStepStore(FenceStore, Protocol):
    async def force_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        state: RunnerState,
        why: str,
        evidence: str | None = None,
    ) -> Runner | Conflict:
        """Retire for good, in the actor's name: nothing brings the runner back, and its Pod is deleted
        whether a job is on it or not."""
        ...

    async def occupy_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        job: JobId | None,
        why: str,
        evidence: str | None = None,
    ) -> Runner | Conflict:
        """The runner executes a job. `job` is `None` where the evidence does not say which."""
        ...

    async def release_runner(
        self, runner: RunnerId, *, generation: int, why: str, no_record_because: str | None
    ) -> Runner | Conflict:
        """Undo a claim whose mint failed. `no_record_because` says how it is known that GitHub made
        no runner record under the chosen name; `None` leaves the name a debt."""
        ...


class RetireByHandStore(RunnerStepStore, Protocol):
    """For operators, who name a runner."""

    async def find_runner(self, name: str) -> Runner | None:
        """By its Pod's name, or by any name it was ever registered under."""
        ...

    async def list_runners(self, *, pool: str | None = None) -> list[RunnerSummary]: ...


class VitalsStore(Protocol):
    async def add_vitals(self, reports: Sequence[VitalsReport]) -> list[VitalsOutcome]:
        """Extend the series of the Pods' runners; what became of each report, in their order. This
        waits for no row that another transaction has locked."""
        ...
