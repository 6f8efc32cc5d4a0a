"""Versions of the runner program: GitHub's answers about them, and refusals that were seen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from paddock.domain.ids import AccountId, RunnerId
from paddock.domain.reading.overview import PoolVersionLine
from paddock.domain.runners.versions import (
    AcceptedRunner,
    RefusalTerms,
    RefusedRunner,
    RunnerVersion,
    VersionQuestion,
    VersionSchedule,
)
from paddock.ports.matching import BackOffStore


class VersionScheduleStore(Protocol):
    """For the service that asks GitHub about versions."""

    async def version_questions(self, *, limit: int) -> list[VersionQuestion]:
        """Versions of which GitHub is to be asked now."""
        ...

    async def answer_version(
        self,
        account: AccountId,
        schedule: VersionSchedule,
        *,
        ask_at: datetime,
    ) -> None:
        """GitHub's dates."""
        ...

    async def postpone_version(
        self, account: AccountId, version: RunnerVersion, *, ask_at: datetime
    ) -> None:
        """GitHub did not answer, or does not know the version. What it answered before still counts."""
        ...

    async def forget_versions(self, *, before: datetime) -> None:
        """Delete answers from before `before` about versions that are not used any more."""
        ...


class RefusedVersionStore(BackOffStore, Protocol):
    async def refuse_version(self, runner: RunnerId, terms: RefusalTerms) -> RefusedRunner | None:
        """GitHub refused the runner because of its version: Pods of that version get no JIT for its
        account for a while. If its version is not known, nothing is written. `None`: it had a job, so
        it was not refused."""
        ...

    async def accept_versions(self, accepted: Sequence[AcceptedRunner]) -> None:
        """Runners got jobs: refusals of their versions from before their claims are over."""
        ...


class PoolVersionStore(Protocol):
    async def pool_versions(self) -> list[PoolVersionLine]:
        """The version of each pool's newest Pods, where it is known."""
        ...
