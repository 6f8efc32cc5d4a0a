"""Read-only access to the read model, for `why`, the dashboard, the API, lists and metrics.

Apart from `Store`, because no decision uses it and it must not slow dispatch down: its statements end
after two seconds, on connections of their own where there is a server to protect.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from paddock.domain.ids import JobId
from paddock.domain.reading.details import JobDetails, PassedOver, PoolDetails, RunnerDetails
from paddock.domain.reading.filters import (
    ActionFilter,
    DeliveryFilter,
    EventFilter,
    JobFilter,
    Page,
    Paging,
    RunnerFilter,
    VerdictFilter,
)
from paddock.domain.reading.overview import Levels, Overview, Trends
from paddock.domain.reading.rows import (
    AccountLine,
    ActionLine,
    DeliveryLine,
    EndingCount,
    EventLine,
    JobLine,
    PoolLine,
    RuleCount,
    RunnerLine,
    VerdictLine,
)


class Reading(Protocol):
    """Each method reads at one moment. Lists come newest first, page by page. A cursor of another list
    raises `BadCursor`; what took too long, or cannot be read now, a `StoreError`."""

    async def jobs(self, wanted: JobFilter, paging: Paging) -> Page[JobLine]: ...

    async def runners(self, wanted: RunnerFilter, paging: Paging) -> Page[RunnerLine]: ...

    async def verdicts(self, wanted: VerdictFilter, paging: Paging) -> Page[VerdictLine]: ...

    async def endings(
        self, wanted: VerdictFilter, *, since: datetime, step: timedelta
    ) -> list[EndingCount]:
        """How many runners ended in each class in each step of time. Of `wanted` only pool, node and
        image count."""
        ...

    async def events(self, wanted: EventFilter, paging: Paging) -> Page[EventLine]: ...

    async def actions(self, wanted: ActionFilter, paging: Paging) -> Page[ActionLine]: ...

    async def rule_counts(self, *, since: datetime) -> list[RuleCount]: ...

    async def deliveries(self, wanted: DeliveryFilter, paging: Paging) -> Page[DeliveryLine]: ...

    async def pools(self) -> list[PoolLine]: ...

    async def accounts(self) -> list[AccountLine]: ...

    async def job(self, job: int, *, host: str | None = None) -> JobDetails | None:
        """Without `host`, of the first host that knows the number; there is seldom more than one."""
        ...

    async def runner(self, name: str | UUID) -> RunnerDetails | None:
        """By its id, its Pod's name, or any name it was ever registered under."""
        ...

    async def pool(self, name: str) -> PoolDetails | None: ...

    async def find(self, name: str) -> Sequence[JobDetails | RunnerDetails]:
        """By a job's number, or as `runner`. Several if two hosts have a job of that number (I71)."""
        ...

    async def waiting_jobs(self, jobs: Collection[tuple[str, int]]) -> Sequence[JobDetails]:
        """The queued ones of these jobs (host's name, number), with what they wait for and without what
        happened to them. One read for all of them. `ahead` is exact for jobs that a runner is on its
        way to, and a lower bound for the others."""
        ...

    async def passed_over(self, job: JobId) -> PassedOver | None:
        """What a webhook said of a job for which paddock did nothing."""
        ...

    async def overview(self) -> Overview:
        """What there is at this moment."""
        ...

    async def trends(self) -> Trends:
        """How the last hour went."""
        ...

    async def levels(self) -> Levels: ...
