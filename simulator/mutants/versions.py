"""Mutants of the guard against refused runner versions."""

from __future__ import annotations

from contextlib import ExitStack

from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import mutant, routine, statement


@mutant(
    "refused-version-claimed",
    "runner#4305",
    "The matcher claims Pods although GitHub has told that it refuses their version.",
    "version-refused",
    breaks=Promise.ACCEPTED,
)
def _refused_version_claimed(undo: ExitStack, session: Session) -> None:
    undo.enter_context(routine(session, "demand", ("AND is_refused(v, moment)", "AND false")))


@mutant(
    "refused-runner-stops-nothing",
    "runner#3366",
    "A runner that exits because GitHub refused its version does not stop the version.",
    "version-refused-unannounced",
    breaks=Promise.ACCEPTED,
)
def _refused_runner_stops_nothing(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        statement("versions", "refuse", ("WHERE runner_version IS NOT NULL", "WHERE false"))
    )
