"""Pools as operators describe them, where their objects are kept, and the runners they should have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from paddock.domain.ids import PoolId, RunnerId
from paddock.domain.pods.placement import StartFailures
from paddock.domain.pods.pod import PodOrder
from paddock.domain.pools.objects import PoolObject, PoolObjects, PoolStatus
from paddock.domain.pools.pool import PoolFacts, PoolSummary
from paddock.domain.pools.sizing import Decision
from paddock.domain.pools.surveys import Survey
from paddock.domain.reading.overview import UnfitHost
from paddock.domain.runners.runner import Runner
from paddock.ports.errors import StoreError
from paddock.ports.runner_versions import PoolVersionStore
from paddock.ports.runners import FenceStore


class PoolRefused(StoreError):
    """The pool's description conflicts with another pool."""


class PoolListStore(Protocol):
    async def list_pools(self) -> list[PoolSummary]: ...


class PoolMirrorStore(PoolListStore, PoolVersionStore, Protocol):
    """For the mirror of RunnerPool objects. Raises `PoolRefused`."""

    async def apply_pool(self, pool: PoolFacts) -> PoolId: ...

    async def delete_pool(self, pool: PoolId, *, why: str) -> bool:
        """The pool takes no more jobs, its waiting jobs may go to another pool, and it is gone when its
        last runner is (I42). False if it is being deleted already."""
        ...


class PoolStore(PoolMirrorStore, Protocol):
    """For operators. Raises `PoolRefused`."""

    async def apply_pools(self, pools: Sequence[PoolFacts]) -> list[PoolId]:
        """All of them, or none."""
        ...

    async def find_pool(self, name: str) -> PoolId | None: ...

    async def pause_pool(self, pool: PoolId, *, why: str) -> bool: ...

    async def resume_pool(self, pool: PoolId, *, why: str) -> bool: ...


class HostStore(Protocol):
    """Hosts that are not fit for runners."""

    async def failed_starts(self, *, since: datetime) -> list[StartFailures]: ...

    async def note_host_faults(self, faults: Mapping[str, str]) -> None:
        """All faults there are: why each host is not fit for runners. A host that had a fault before
        keeps its time."""
        ...

    async def host_faults(self) -> list[UnfitHost]: ...


class PoolSizeStore(HostStore, FenceStore, Protocol):
    """For the reconciler, which decides how many runners each pool has."""

    async def survey_pools(
        self, *, ended: Sequence[str], since: datetime, after: int | None = None
    ) -> Survey:
        """The input for the sizes of pools, at one moment. `ended` names Pods that are known to have
        ended. Decisions: those after `since` and the ones in force then, or those `after` a number."""
        ...

    async def record_decisions(self, decisions: Sequence[Decision]) -> None: ...

    async def plan_runners(
        self, pool: PoolId, pods: Sequence[tuple[RunnerId, str]], *, why: str
    ) -> list[Runner]:
        """Rows for Pods that are about to be created, under the names they will have. None for a pool
        that is being deleted."""
        ...

    async def refuse_jobs_of(self, pools: Sequence[PoolId]) -> int:
        """Refuse the jobs that wait for these pools, which are no longer active; returns how many."""
        ...

    async def delete_drained_pools(self) -> list[str]:
        """Mark draining pools as deleted whose last runner is gone; returns their names."""
        ...


class PoolApi(Protocol):
    """Every method may raise `FleetUnavailable`."""

    async def list(self) -> PoolObjects: ...

    def changes(self) -> AsyncIterator[None]:
        """Yields at least once after each change, without end."""
        ...

    async def set_finalizers(self, pool: PoolObject, finalizers: Sequence[str]) -> bool:
        """False if it was no longer the object that was read."""
        ...

    async def set_status(self, pool: PoolObject, status: PoolStatus) -> None: ...


class PodTrial(Protocol):
    def template_refusal(self, order: PodOrder) -> str | None:
        """Why paddock itself would not make such a Pod; `None` if it would. Asks no other machine."""
        ...

    async def try_out(self, order: PodOrder) -> str | None:
        """Why the fleet would refuse such a Pod, without making it; `None` if it would not."""
        ...
