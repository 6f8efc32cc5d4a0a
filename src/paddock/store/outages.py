"""Loops that survive a store that is away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from paddock.store.errors import StoreError

_log = structlog.get_logger()


async def tolerating_outages(work: Callable[[], Awaitable[None]], *, loop: str) -> None:
    """An outage is no reason to start a loop over; the loop's next look finds the store back."""
    try:
        await work()
    except StoreError as error:
        _log.warning("store.unavailable", loop=loop, error=error.message)
