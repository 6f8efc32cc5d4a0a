"""What GitHub says of jobs and accounts: taken for something else, or waited for in the wrong place."""

from __future__ import annotations

from contextlib import ExitStack

from paddock.github import facts
from paddock.sim.engine.checks import Promise
from paddock.sim.engine.database import Session
from paddock.sim.mutants.making import mutant, swapped


@mutant(
    "age-from-creation",
    "I76",
    "A job's age counts from its creation, however long it waited for an approval.",
    "approved-after-days",
    breaks=Promise.SERVED,
)
def _age_from_creation(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(facts, "_known_queued_at", lambda *_: None))
