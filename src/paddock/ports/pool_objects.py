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
        """Tells that something has changed, at least once after it has. Without end."""
        ...

    async def set_finalizers(self, pool: PoolObject, finalizers: Sequence[str]) -> bool:
        """Whether it was still the object that was read."""
        ...

    async def set_status(self, pool: PoolObject, status: PoolStatus) -> None: ...


class PodTrial(Protocol):
    def template_refusal(self, order: PodOrder) -> str | None:
        """Why paddock itself would not make such a Pod; `None` if it would. Asks no other machine."""
        ...

    async def try_out(self, order: PodOrder) -> str | None:
        """What the fleet would say to such a Pod, without making it; `None` if nothing is wrong."""
        ...
