"""Mutants written when the simulator seemed complete for worlds of fleet size. They name no
scenario."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from paddock.domain.pods import PodList
from paddock.domain.recovery.evidence import Subject
from paddock.recovery.observe import PodView
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import mutant, routine, statement, swapped, table, without


@mutant(
    "partial-list-believed",
    "I29",
    "A list of Pods that says that it is incomplete is taken for complete.",
    breaks=Promise.VERDICT,
)
def _partial_list(undo: ExitStack, _session: Session) -> None:
    read = vars(PodView)["refresh"]

    class Believed:
        """The fleet, with every list marked complete."""

        def __init__(self, fleet: Any) -> None:
            self._fleet = fleet

        async def list(self) -> PodList:
            found: PodList = await self._fleet.list()
            return replace(found, complete=True)

    async def believing(self: Any) -> bool:
        own, self._fleet = self._fleet, Believed(self._fleet)
        try:
            return bool(await read(self))
        finally:
            self._fleet = own

    undo.enter_context(swapped(PodView, "refresh", believing))


@mutant(
    "late-mint-arms",
    "I16",
    "A mint that answers after its claim was taken over arms the runner with its own JIT.",
    breaks=Promise.NO_LEAK,
)
def _late_mint_arms(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        statement(
            "runners",
            "arm",
            ("AND generation = :generation AND", "AND :generation::int IS NOT NULL AND"),
        )
    )


@mutant(
    "zombie-kept",
    "I40",
    "A runner whose record is gone, and that executes nothing, is left running.",
    breaks=Promise.NO_LEAK,
)
def _zombie_kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("zombie")))


@mutant(
    "undelivered-kept",
    "I20",
    "A runner whose Pod never fetches its JIT is left waiting.",
    breaks=Promise.NO_LEAK,
)
def _undelivered_kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("undelivered")))


@mutant(
    "fenced-pods-claimed",
    "I16",
    "A match claims a Pod that was fenced while it waited.",
    breaks=Promise.LEGAL,
)
def _fenced_claimed(undo: ExitStack, session: Session) -> None:
    undo.enter_context(routine(session, "claim", ("AND r.state = 'idle' AND", "AND")))
