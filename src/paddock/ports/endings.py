"""Ends of runners: their verdicts, and the logs that are added to them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from paddock.domain.github.backoffs import UnassignedTerms
from paddock.domain.ids import KeyId, RepositoryId, RunnerId
from paddock.domain.recovery.records import LateNews, OpenVerdict, RunnerEnd, WantedLog
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Runner
from paddock.ports.pools import PoolListStore
from paddock.ports.runner_versions import RefusedVersionStore


class VerdictStore(Protocol):
    """Verdicts that later news may refine."""

    async def open_verdicts(
        self,
        *,
        after: datetime,
        until: datetime,
        unreadable: Sequence[RepositoryId] = (),
        but: Sequence[RunnerId] = (),
        limit: int,
    ) -> list[OpenVerdict]:
        """Verdicts of runners that ended in that time and of which GitHub has not said whether they had
        a job. None of `unreadable` repositories, and not of the runners in `but`. Each account in turn
        (I26)."""
        ...

    async def late_news(self, *, since: datetime, limit: int) -> list[LateNews]:
        """Verdicts of runners ended since then whose job has changed since the verdict was written."""
        ...

    async def refine_verdict(
        self, runner: RunnerId, *, ending: Ending, why: str, evidence: str
    ) -> None:
        """If it had a job, a refusal of its version that was read from its own end was none."""
        ...


class ConclusionStore(VerdictStore, PoolListStore, RefusedVersionStore, Protocol):
    """For the service that records ends."""

    async def conclude_runners(self, ends: Sequence[RunnerEnd]) -> list[Runner]:
        """The ends of many runners, each with its verdict; their capacity is free when this returns
        (I80). Returns the runners that ended by this call: a row that had moved on is left out."""
        ...

    async def withhold_unassigned(self, key: KeyId, terms: UnassignedTerms) -> int:
        """Jobs of the key that GitHub was found not to assign are no demand for a while; returns how
        many."""
        ...


class WantedLogStore(Protocol):
    async def logs_wanted(self) -> list[WantedLog]:
        """Ended runners whose log or circumstances are still asked for (I79)."""
        ...


class PostMortemStore(WantedLogStore, RefusedVersionStore, Protocol):
    """Logs and circumstances of ended runners, added to their verdicts (I79)."""

    async def keep_log(self, runner: RunnerId, log_tail: str) -> bool:
        """Add the log to the verdict; false if it has one already, or none is wanted any more."""
        ...

    async def end_post_mortem(self, runner: RunnerId, *, circumstances: Sequence[str]) -> bool:
        """Stop asking for the runner's log and circumstances; false if that was so already."""
        ...
