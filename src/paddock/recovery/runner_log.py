"""A runner's own log: does it tell of a job?"""

from __future__ import annotations

import asyncio
from typing import Final

from paddock.domain.pods.pod import Pod
from paddock.domain.recovery.evidence import LogWord, log_word
from paddock.ports import Fleet, FleetUnavailable
from paddock.ports.fleet import LOG_IS_CUT

#: A waiting runner logs a dozen lines. With its diagnostics switched on it logs thousands, and the line
#: that matters must be among those that are read.
LINES: Final = 20_000
BYTES: Final = 4 * 1024 * 1024
#: A node that does not answer must not hold up the rest (I57).
TIMEOUT: Final = 5.0


class RunnerLog:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def of(self, pod: Pod) -> LogWord:
        try:
            async with asyncio.timeout(TIMEOUT):
                log = await self._fleet.log_tail(
                    pod.name, uid=pod.uid, lines=LINES, most_bytes=BYTES
                )
        except (TimeoutError, FleetUnavailable):
            return LogWord.UNREADABLE
        return log_word(log, whole=log is not None and not _is_cut(log))


def _is_cut(log: str) -> bool:
    """Whether there may be more of it before its first line."""
    too_long = log.count("\n") >= LINES - 1 or len(log.encode()) >= BYTES - 1024
    return too_long or log.startswith(LOG_IS_CUT)
