"""What is going on, in the terminal, while `paddock up` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from rich.live import Live
from rich.text import Text

from paddock.cli.output import console, show
from paddock.domain.states import JobState, RunnerState
from paddock.domain.summary import Summary
from paddock.ports import Clock, Store
from paddock.store.errors import StoreError

_EVERY: Final = 1.0
#: A log is not a screen: one line now and then will do.
_EVERY_LINE: Final = 5.0
_WINDOW: Final = timedelta(minutes=5)

_AT_WORK: Final = (
    RunnerState.BOOTING,
    RunnerState.IDLE,
    RunnerState.CLAIMED,
    RunnerState.ARMED,
    RunnerState.RUNNING,
    RunnerState.BUSY,
    RunnerState.DONE,
)


async def follow(store: Store, clock: Clock) -> None:
    """For ever: one line that changes on a terminal, a line now and then elsewhere."""
    if not console.is_terminal:
        while True:
            await _look(store, clock, show)
            await asyncio.sleep(_EVERY_LINE)
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            await _look(store, clock, lambda line: live.update(Text(line)))
            await asyncio.sleep(_EVERY)


async def _look(store: Store, clock: Clock, tell: Callable[[str], None]) -> None:
    now = clock.now()
    try:
        line = described(await store.summary(since=now - _WINDOW), now)
    except StoreError as error:
        line = error.message
    tell(line)


def described(summary: Summary, now: datetime) -> str:
    jobs = ", ".join(
        f"{summary.jobs.get(state, 0)} {state.replace('_', ' ')}"
        for state in (JobState.QUEUED, JobState.IN_PROGRESS, JobState.COMPLETED)
    )
    runners = ", ".join(
        f"{count} {state}" for state in _AT_WORK if (count := summary.runners.get(state, 0))
    )
    parts = [f"jobs: {jobs}", f"runners: {runners or 'none yet'}"]
    if summary.oldest_queued_at is not None:
        waited = max(0.0, (now - summary.oldest_queued_at).total_seconds())
        parts.append(f"oldest waits {waited:.0f} s")
    if summary.to_jit is not None:
        parts.append(f"queued to JIT {summary.to_jit * 1000:.0f} ms")
    abnormal = sum(count for ending, count in summary.endings.items() if ending.abnormal)
    if abnormal:
        parts.append(f"{abnormal} abnormal endings")
    return "  |  ".join(parts)
