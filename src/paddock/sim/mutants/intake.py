"""What GitHub says of jobs and accounts: taken for something else, or waited for in the wrong place."""

from __future__ import annotations

from contextlib import ExitStack

from paddock.dispatch.deliveries import DeliveryApplier
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


@mutant(
    "installations-read-while-applying",
    "I83",
    "The loop that applies deliveries waits until the installations they name were read.",
    "slow-installations",
    breaks=Promise.PROMPT,
)
def _read_while_applying(undo: ExitStack, _session: Session) -> None:
    apply = DeliveryApplier.round

    async def wait(self: DeliveryApplier) -> int:
        applied = await apply(self)
        while await self._reads.read_next():
            pass
        return applied

    undo.enter_context(swapped(DeliveryApplier, "round", wait))
