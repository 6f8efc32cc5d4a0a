"""Durations measured with two clocks."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from typing import Any

from paddock.github.clock import HostClock
from paddock.recovery.gather import Gatherer
from paddock.store.clock import DatabaseClock
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import mutant, swapped


@mutant(
    "own-clock",
    "I82",
    "A replica writes and judges times by its own clock.",
    "replica-clock-ahead",
    breaks=Promise.SERVED,
)
def _own_clock(undo: ExitStack, _session: Session) -> None:
    def own(self: Any) -> datetime:
        now: datetime = self._own.now()
        return now

    undo.enter_context(swapped(DatabaseClock, "now", own))


@mutant(
    "jump-unnoticed",
    "I82",
    "Silence is counted across a jump of the clock.",
    "database-clock-jumps",
    breaks=Promise.SERVED,
)
def _jump_unnoticed(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(Gatherer, "_jumped", lambda *_: False))


@mutant(
    "jwt-by-our-clock",
    "I82",
    "JWTs are dated by our clock, even if GitHub's clock differs.",
    "database-clock-jumps",
    breaks=Promise.SERVED,
)
def _jwt_by_our_clock(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(HostClock, "note", lambda *_: None))
