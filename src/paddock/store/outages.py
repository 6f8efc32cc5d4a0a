"""Loops that survive an outage of the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from paddock.store.errors import StoreError

_log = structlog.get_logger()


async def tolerating_outages(work: Callable[[], Awaitable[None]], *, loop: str) -> None:
    """An outage does not restart a loop; the loop's next pass finds the database back."""
    try:
        await work()
    except StoreError as error:
        _log.warning("store.unavailable", loop=loop, error=error.message)
