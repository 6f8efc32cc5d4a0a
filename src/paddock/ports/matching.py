"""From a Pod that asks for work to a runner that has its JIT, and the debts of failed mints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from paddock.domain.github.backoffs import BackOffSubject, BackOffTerms
from paddock.domain.github.debts import Debt, MintOutcome
from paddock.domain.ids import GitHubRunnerId, RunnerId
from paddock.domain.runners.handover import Heard
from paddock.domain.runners.runner import Claim, Conflict, Match, Runner, WaitingPod
from paddock.domain.states import RunnerState
from paddock.ports.runners import FenceStore, RunnerStepStore


class MatchingStore(FenceStore, Protocol):
    """For the dispatcher, which answers Pods."""

    async def match(self, pods: Collection[WaitingPod]) -> Match:
        """Claim as many of the waiting Pods as demand, limits and budgets allow, fairly, and at most a
        batch. If `pods` is a `WaitingPods`, Pods that no key asks for cost nothing (I77)."""
        ...

    async def take_over_claim(
        self,
        runner: RunnerId,
        *,
        generation: int,
        name: str,
        mint_deadline: datetime,
        unanswered: bool = False,
    ) -> Claim | Conflict:
        """Continue the claim under a fresh name, if its mint's deadline has passed, or if the match
        that made it was `unanswered`; the old name stays a debt."""
        ...

    async def hear_pod(self, pod_name: str, *, pod_uid: str) -> Heard | None:
        """A Pod's poller asks; its first request makes the runner idle. `None`: no row knows this
        Pod."""
        ...

    async def hear_again(self, asked: Mapping[RunnerId, datetime]) -> frozenset[RunnerId]:
        """Note that the pollers of idle runners asked again, and when; returns those that are still
        idle."""
        ...

    async def has_demand(self) -> bool:
        """Whether a job is queued that a match could serve."""
        ...

    async def acknowledge_delivery(
        self, pod_name: str, *, pod_uid: str, delivery: UUID
    ) -> Runner | RunnerState | None:
        """armed → running, and the JIT is erased. Returns the runner; or its state, if the delivery was
        this Pod's and the runner is past that step; `None` if it never was this Pod's."""
        ...


class BackOffStore(Protocol):
    """Subjects for which nothing is claimed for a while."""

    async def back_off(self, subject: BackOffSubject, terms: BackOffTerms) -> datetime:
        """Count one more failure in a row; returns until when nothing is claimed for the subject."""
        ...

    async def recover_from_backoffs(self, subjects: Sequence[BackOffSubject]) -> None: ...


class MintStore(RunnerStepStore, BackOffStore, Protocol):
    """For the minter."""

    async def arm_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        github_id: GitHubRunnerId,
        delivery: UUID,
        sealed_jit: bytes,
        sealing_key: str,
    ) -> Runner | Conflict: ...


class DebtStore(Protocol):
    """Names chosen for mints whose outcome at GitHub is not settled."""

    async def debts(self, *, before: datetime, limit: int) -> list[Debt]:
        """Unsettled names, chosen before `before`, that no runner has any more."""
        ...

    async def settle_mint(self, name: str, *, outcome: MintOutcome) -> None: ...

    async def postpone_debt(self, name: str, *, until: datetime) -> None: ...
