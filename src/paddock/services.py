"""The services that run beside HTTP for as long as the process does.

If a service fails, it is started again, after a longer wait each time, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from paddock.domain.github.errors import GitHubError
from paddock.ports import Clock, FleetUnavailable
from paddock.ports.errors import StoreError

_log = structlog.get_logger()

FIRST_BACKOFF: Final = 1.0
#: The longest wait before a restart, so the longest delay after a network or GitHub is back.
LONGEST_BACKOFF: Final = 30.0
#: For failures of the database: all services wait for it, and trying again costs little.
STORE_BACKOFF: Final = 0.5
#: After this many failures a service has been down for some seconds, and its next start is seconds
#: away.
KEEPS_FAILING: Final = 4


@dataclass(frozen=True, slots=True)
class Service:
    """`run` returns when there is nothing left to do; that of most services never returns."""

    name: str
    run: Callable[[], Awaitable[None]]


class Troubles:
    """Which services keep failing. A single failure does not count: the next start mostly succeeds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By service: failures in a row, the last error, and when it counts as over unless the service
        #: fails again.
        self._last: dict[str, tuple[int, str, float]] = {}

    def failed(self, service: str, times: int, sentence: str, *, backoff: float) -> None:
        over = self._clock.monotonic() + 2 * backoff
        self._last[service] = (times, sentence, over)

    def of(self, *services: str) -> str | None:
        for service in services:
            times, sentence, over = self._last.get(service, (0, "", 0.0))
            if times >= KEEPS_FAILING and self._clock.monotonic() < over:
                return f"{service} failed {times} times in a row: {sentence}"
        return None


@asynccontextmanager
async def running(
    services: Sequence[Service], clock: Clock, troubles: Troubles | None = None
) -> AsyncIterator[None]:
    """Run all services until the end of the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(supervise(service, clock, troubles), name=service.name)
            for service in services
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def supervise(service: Service, clock: Clock, troubles: Troubles | None = None) -> None:
    backoff, times = FIRST_BACKOFF, 0
    told: str | None = None
    while True:
        began = clock.monotonic()
        try:
            return await service.run()
        except Exception as error:
            if clock.monotonic() - began > LONGEST_BACKOFF:
                # The service ran for a while, so this is a new failure, not a repeated one.
                backoff, told, times = FIRST_BACKOFF, None, 0
            times += 1
            pause = min(backoff, STORE_BACKOFF) if _is_store(error) else backoff
            if troubles is not None:
                troubles.failed(service.name, times, _sentence(error), backoff=pause)
            if told != (told := _sentence(error)):
                _log.warning(
                    "service.failed",
                    service=service.name,
                    error=told,
                    exc_info=not _is_known(error),
                )
        await clock.sleep(pause)
        backoff = min(backoff * 2, LONGEST_BACKOFF)


async def tolerating_outages(work: Callable[[], Awaitable[None]], *, loop: str) -> None:
    """An outage does not restart a loop; the loop's next pass finds the database back."""
    try:
        await work()
    except StoreError as error:
        _log.warning("store.unavailable", loop=loop, error=error.message)


def _is_known(error: Exception) -> bool:
    """Whether the error's sentence is enough. Any other error is a bug in paddock."""
    if isinstance(error, ExceptionGroup):
        return all(_is_known(one) for one in error.exceptions)
    return isinstance(error, StoreError | GitHubError | FleetUnavailable)


def _is_store(error: Exception) -> bool:
    """Whether the error is only about the database."""
    if isinstance(error, ExceptionGroup):
        return all(_is_store(one) for one in error.exceptions)
    return isinstance(error, StoreError)


def _sentence(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        return " ".join(dict.fromkeys(_sentence(one) for one in error.exceptions))
    return str(error) if _is_known(error) else f"{type(error).__name__}: {error}"
