"""Actions of operators, from the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, Self
from uuid import UUID

from paddock.domain.github.deliveries import DeliveryNumber
from paddock.ports.accounts import AccountStore
from paddock.ports.pools import PoolStore
from paddock.ports.runners import RetireByHandStore


class OperatorStore(RetireByHandStore, AccountStore, PoolStore, Protocol):
    def acting_as(self, actor: str) -> Self:
        """The same store, with `actor` as the author of its events."""
        ...

    async def pause_dispatch(self, *, why: str) -> bool:
        """Stop all claims; runners at work go on. False if dispatch is paused already."""
        ...

    async def resume_dispatch(self, *, why: str) -> bool: ...

    async def retry_deliveries(self, numbers: Sequence[DeliveryNumber] | None) -> int:
        """Dead deliveries are pending again: these, or all of them. Returns how many."""
        ...


class SessionStore(Protocol):
    """Sessions of the dashboard."""

    async def end_session(self, session: UUID, *, ends_at: datetime) -> None:
        """End it at every replica. It would have lasted until `ends_at`."""
        ...

    async def is_session_ended(self, session: UUID) -> bool: ...
