"""Metrics of how long each step of dispatch takes.

Read from the rows of runners that got their job, because different replicas may do the steps.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from prometheus_client import Histogram

from paddock.domain.runners.handover import STEPS
from paddock.ports import Clock, Topic, Wakeups
from paddock.ports.history import StepStore

#: How long after a runner's step its row is read, so that the row is complete.
_EVERY: Final = 5.0
#: How long to wait if the wake-up was lost. A late read misses nothing: each read begins where the last
#: one ended.
_LOOK_AGAIN: Final = 60.0
#: A row with a time of a moment ago, written by another replica, may not be committed yet.
_SETTLED: Final = timedelta(seconds=5)

SECONDS = Histogram(
    "paddock_step_seconds",
    "How long runners took for each step of dispatch: "
    + "; ".join(f"`{step}` {meaning}" for step, meaning in STEPS.items())
    + ".",
    ["pool", "step"],
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
)


class StepTimes:
    def __init__(self, *, store: StepStore, clock: Clock, wakeups: Wakeups) -> None:
        self._store = store
        self._clock = clock
        self._woken = wakeups.subscribe(Topic.RUNNERS, Topic.DELIVERIES)

    async def run(self) -> None:
        after = self._clock.now() - _SETTLED
        while True:
            await self._woken.wait(_LOOK_AGAIN)
            await self._clock.sleep(_EVERY)
            until = self._clock.now() - _SETTLED
            for taken in await self._store.steps(after=after, until=until):
                for step in STEPS:
                    if (seconds := getattr(taken, step)) is not None:
                        SECONDS.labels(taken.pool, step).observe(max(0.0, seconds))
            after = until
