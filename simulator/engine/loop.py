"""Virtual time, and one thing at a time.

The loop has no sockets and no clock. A task that wants to act on the world waits for a turn. When no
other task can run, the scheduler grants one turn, chosen by a seeded generator. When no task waits for
a turn, time jumps to the next timer. So a run is a sequence of steps that the seed alone decides.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol


class Actor(Protocol):
    """Which task has the next turn."""

    @property
    def name(self) -> str: ...

    @property
    def stalled(self) -> bool:
        """It gets no turns for now."""
        ...


@dataclass(slots=True, eq=False)
class Turn:
    actor: Actor
    what: str
    granted: asyncio.Future[None]


#: Rounds of the loop without any act; there are some hundred tasks.
_MOST_AT_ONCE: Final = 100_000


class Stuck(Exception):
    """No task waits for a turn and no timer is set, or some task is always ready and no time
    passes: the simulated world has ended."""


class _NoSockets:
    """`BaseEventLoop` calls it when no task is ready: the scheduler acts here."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> Sequence[object]:
        if timeout == 0:
            self._loop.stand_still()
        else:
            self._loop.go_on()
        return ()

    def close(self) -> None: ...


class VirtualLoop(asyncio.BaseEventLoop):
    _scheduled: list[asyncio.TimerHandle]  # `BaseEventLoop`'s own heap

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._selector = _NoSockets(self)
        self._rng = rng
        self._virtual = 0.0
        self._standing = 0
        self._waiting: list[Turn] = []
        self.steps = 0
        #: Called with every turn before it is taken.
        self.on_turn: Callable[[Turn], None] = lambda _turn: None

    def time(self) -> float:
        return self._virtual

    async def turn(self, actor: Actor, what: str) -> None:
        """Waits for a turn."""
        turn = Turn(actor, what, self.create_future())
        self._waiting.append(turn)
        try:
            await turn.granted
        except BaseException:
            if turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def go_on(self) -> None:
        """No task is ready: grants a turn, or advances time."""
        self._standing = 0
        if not self._grant():
            if not self._scheduled:
                raise Stuck(f"nothing is left to happen at {self._virtual:.3f} s")
            self._virtual = max(self._virtual, self._scheduled[0].when())

    def stand_still(self) -> None:
        """A task is ready, so no turn is granted and no time passes."""
        self._standing += 1
        if self._standing > _MOST_AT_ONCE:
            raise Stuck(f"something never lets time pass at {self._virtual:.3f} s")

    def _grant(self) -> bool:
        free = [
            index
            for index, turn in enumerate(self._waiting)
            if not (turn.actor.stalled or turn.granted.done())
        ]
        if not free:
            return False
        turn = self._waiting.pop(free[self._rng.randrange(len(free))] if len(free) > 1 else free[0])
        self.steps += 1
        self.on_turn(turn)
        turn.granted.set_result(None)
        return True

    # What `BaseEventLoop` leaves to its subclasses.

    def _process_events(self, event_list: Sequence[object]) -> None: ...

    def _write_to_self(self) -> None: ...
