"""Runs a command until it is done or a signal stops it.

Ctrl-C and SIGTERM cancel the command, and it cleans up. A second signal cancels the cleanup: the
embedded PostgreSQL then ends at once, without its checkpoint, and recovers at the next start.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from paddock.cli.logs import configure_logs
from paddock.settings import Settings

T = TypeVar("T")

_CUT_SHORT_INTERVAL = 0.05


def run(
    command: Coroutine[Any, Any, T], settings: Settings, *, untold: frozenset[str] = frozenset()
) -> T:
    configure_logs(settings, untold=untold)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_until_signalled(command))


async def _until_signalled(command: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    is_first = True

    def stop() -> None:
        nonlocal is_first
        if is_first:
            task.cancel()
        else:
            cut_short()
        is_first = False

    def cut_short() -> None:
        # Repeated: one cancellation ends only one step of the cleanup.
        task.cancel()
        loop.call_later(_CUT_SHORT_INTERVAL, cut_short)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return await command
