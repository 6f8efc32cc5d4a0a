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
#: What can mend itself (a network, GitHub) has done so by then; nobody waits longer for its return.
LONGEST_BACKOFF: Final = 30.0
#: Everything waits for the database, and to ask whether it is back costs little.
STORE_BACKOFF: Final = 0.5
#: By then it has been away for some seconds, and its next start is seconds away.
KEEPS_FAILING: Final = 4


@dataclass(frozen=True, slots=True)
class Service:
    """`run` returns when there is nothing left to do, which most never do."""

    name: str
    run: Callable[[], Awaitable[None]]


class Troubles:
    """Which services keep failing: one failure is mended by the next start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: How often in a row, with what, and when it is over unless it fails again.
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
    """All of them, until the end of the block."""
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
                # It worked; this is another trouble than the last.
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


def _is_known(error: Exception) -> bool:
    """Whether its sentence says all there is. Anything else is a bug of ours."""
    if isinstance(error, ExceptionGroup):
        return all(_is_known(one) for one in error.exceptions)
    return isinstance(error, StoreError | GitHubError | FleetUnavailable)


def _is_store(error: Exception) -> bool:
    """Whether it is about the database alone."""
    if isinstance(error, ExceptionGroup):
        return all(_is_store(one) for one in error.exceptions)
    return isinstance(error, StoreError)


def _sentence(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        return " ".join(dict.fromkeys(_sentence(one) for one in error.exceptions))
    return str(error) if _is_known(error) else f"{type(error).__name__}: {error}"
