"""What runs beside HTTP for as long as the process does.

One service's trouble is its own: it is started again, later each time, and the others carry on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from paddock.domain.github_errors import GitHubError
from paddock.ports import Clock, FleetUnavailable
from paddock.store.errors import StoreError

_log = structlog.get_logger()

FIRST_BACKOFF: Final = 1.0
#: What can mend itself (a database, a network) has done so by then; nobody waits longer for its return.
LONGEST_BACKOFF: Final = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    """`run` returns when there is nothing left to do, which most never do."""

    name: str
    run: Callable[[], Awaitable[None]]


@asynccontextmanager
async def running(services: Sequence[Service], clock: Clock) -> AsyncIterator[None]:
    """All of them, until the end of the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(supervise(service, clock), name=service.name) for service in services
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def supervise(service: Service, clock: Clock) -> None:
    backoff = FIRST_BACKOFF
    told: str | None = None
    while True:
        began = clock.monotonic()
        try:
            return await service.run()
        except Exception as error:
            if clock.monotonic() - began > LONGEST_BACKOFF:
                # It worked; this is another trouble than the last.
                backoff, told = FIRST_BACKOFF, None
            if told != (told := _sentence(error)):
                _log.warning(
                    "a service failed and is started again",
                    service=service.name,
                    error=told,
                    exc_info=not _is_known(error),
                )
        await clock.sleep(backoff)
        backoff = min(backoff * 2, LONGEST_BACKOFF)


def _is_known(error: Exception) -> bool:
    """Whether its sentence says all there is. Anything else is a bug of ours."""
    if isinstance(error, ExceptionGroup):
        return all(_is_known(one) for one in error.exceptions)
    return isinstance(error, StoreError | GitHubError | FleetUnavailable)


def _sentence(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        return " ".join(dict.fromkeys(_sentence(one) for one in error.exceptions))
    return str(error) if _is_known(error) else f"{type(error).__name__}: {error}"
