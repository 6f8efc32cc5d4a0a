"""Read-only access for the HTTP API, the dashboard and the lists of the command line.

Apart from `Store`, because no decision uses it and it must not slow dispatch down: its statements end
after two seconds, on connections of their own where there is a server to protect.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from paddock.domain.overview import Overview, Trends
from paddock.domain.reading import (
    AccountLine,
    ActionFilter,
    ActionLine,
    DeliveryFilter,
    DeliveryLine,
    EndingCount,
    EventFilter,
    EventLine,
    JobFilter,
    JobLine,
    JobStory,
    Page,
    Paging,
    PoolLine,
    PoolStory,
    RuleCount,
    RunnerFilter,
    RunnerLine,
    RunnerStory,
    VerdictFilter,
    VerdictLine,
)


class Reading(Protocol):
    """Lists come newest first, page by page. A cursor of another list raises `BadCursor`; what took
    too long, or cannot be read now, a `StoreError`."""

    async def jobs(self, wanted: JobFilter, paging: Paging) -> Page[JobLine]: ...

    async def job(self, job: int, *, host: str | None = None) -> JobStory | None:
        """Without `host`, of the first host that knows the number; there is seldom more than one."""
        ...

    async def runners(self, wanted: RunnerFilter, paging: Paging) -> Page[RunnerLine]: ...

    async def runner(self, name: str | UUID) -> RunnerStory | None:
        """By its id, its Pod's name, or any name it was ever registered under."""
        ...

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

    async def pool(self, name: str) -> PoolStory | None: ...

    async def accounts(self) -> list[AccountLine]: ...

    async def overview(self) -> Overview:
        """What there is at this moment."""
        ...

    async def trends(self) -> Trends:
        """How the last hour went."""
        ...
