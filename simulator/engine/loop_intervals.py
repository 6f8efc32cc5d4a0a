"""How often paddock's loops look again without a wake-up.

Most of a run's time goes to loops that look and find nothing. In three of four worlds they look a few
times less often, as they would on a busy machine. In all worlds some do so once faults have stopped,
when no wake-up is lost any more. Every fourth world keeps the product's own intervals; only there is
the duration of recovery measured.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from paddock.dispatch import comparison, debts, deliveries, dispatcher, step_times
from paddock.pools import hosts, reconciler
from paddock.recovery import loop, observe
from paddock.store import clock, leadership

_OWN_TIME: Final = 0.25


@dataclass(frozen=True, slots=True)
class _Timer:
    module: ModuleType
    name: str
    #: How many times longer in a slow world; `calm` holds once faults have stopped.
    slow: float
    calm: float


_TIMERS: Final = (
    _Timer(dispatcher, "_LOOK_AGAIN", 1, 2),
    _Timer(deliveries, "_LOOK_AGAIN", 1, 10),
    _Timer(leadership, "_LOOK_AGAIN", 4, 10),
    _Timer(clock, "EVERY", 2, 4),
    _Timer(reconciler, "_LOOK_AGAIN", 3, 6),
    _Timer(reconciler, "_BREATH", 3, 3),
    _Timer(hosts, "_READ_EVERY", 3, 6),
    _Timer(loop, "_LOOK_AGAIN", 2, 4),
    _Timer(loop, "_BREATH", 3, 3),
    _Timer(loop, "_SLOWLY", 2, 4),
    _Timer(observe, "EVERY", 1.5, 2),
    _Timer(step_times, "_EVERY", 12, 12),
    _Timer(debts, "_EVERY", 2, 2),
    _Timer(comparison, "EVERY", 2, 2),
)
#: Useless once no wake-up is lost, also where the other loops keep the product's own intervals.
_SLOWER_IN_CALM: Final = (dispatcher, deliveries, leadership)


class LoopIntervals:
    """The intervals of one world, from its beginning to `end`."""

    def __init__(self, *, slow: bool) -> None:
        self.slow = slow
        self._own = {timer: getattr(timer.module, timer.name) for timer in _TIMERS}
        if slow:
            self._set({timer: timer.slow for timer in _TIMERS})

    @classmethod
    def draw(cls, rng: random.Random) -> LoopIntervals:
        return cls(slow=rng.random() >= _OWN_TIME)

    def calm(self) -> None:
        """Faults have stopped: only GitHub or recovery has work left."""
        self._set(
            {timer: timer.calm for timer in _TIMERS if self.slow or timer.module in _SLOWER_IN_CALM}
        )

    def end(self) -> None:
        self._set(dict.fromkeys(_TIMERS, 1.0))

    def _set(self, factors: Mapping[_Timer, float]) -> None:
        for timer, factor in factors.items():
            setattr(timer.module, timer.name, factor * self._own[timer])
