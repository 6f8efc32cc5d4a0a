"""Components that wait too long after the database is back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from paddock import services
from paddock.dispatch.deliveries import DeliveryApplier
from paddock.dispatch.dispatcher import Dispatcher
from paddock.dispatch.minting import Minter
from paddock.store import deliveries
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import mutant, swapped


@mutant(
    "store-backoff-doubles",
    "I72",
    "A service that lost the database waits twice as long each time, up to half a minute.",
    "database-failover",
    breaks=Promise.PROMPT,
)
def _store_backoff_doubles(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(services, "STORE_BACKOFF", services.LONGEST_BACKOFF))


@mutant(
    "jit-lost-with-the-database",
    "I72",
    "A JIT that could not be written at once is given up, and its claim with it.",
    "failover-during-mint",
    breaks=Promise.SERVED,
)
def _jit_lost(undo: ExitStack, _session: Session) -> None:
    async def once(_self: Any, _claim: Any, write: Callable[[], Awaitable[Any]]) -> Any:
        return await write()

    undo.enter_context(swapped(Minter, "_patiently", once))


@mutant(
    "claim-in-doubt-forgotten",
    "I72",
    "After a match whose outcome is unknown, no replica looks for claims that it may have written.",
    "match-unanswered",
    breaks=Promise.SERVED,
)
def _claim_forgotten(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(Dispatcher, "_doubt", lambda _self: None))


@mutant(
    "taken-deliveries-forgotten",
    "I72",
    "Deliveries that were taken when the database failed wait until another replica may take them.",
    "deliveries-taken-unapplied",
    breaks=Promise.PROMPT,
    also="the short time for which deliveries are taken",
)
def _taken_forgotten(undo: ExitStack, _session: Session) -> None:
    round_ = DeliveryApplier.round

    async def forgetful(self: DeliveryApplier) -> int:
        self._unapplied = []
        return await round_(self)

    undo.enter_context(swapped(DeliveryApplier, "round", forgetful))
    undo.enter_context(swapped(deliveries, "TAKEN_FOR", timedelta(seconds=10)))
