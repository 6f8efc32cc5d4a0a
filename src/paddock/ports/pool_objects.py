"""Where RunnerPool objects are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from paddock.domain.pods import PodOrder
from paddock.domain.pool_objects import PoolObject, PoolObjects, PoolStatus


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
