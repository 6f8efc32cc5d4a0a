"""Forced retirements, and the cleanup after an account removes the App: with one guard less."""

from __future__ import annotations

from contextlib import ExitStack

from paddock.domain.recovery.evidence import Subject
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import mutant, statement, table, without


@mutant(
    "forced-retirement-undone",
    "I36",
    "A rule takes a runner that was ended by force for one that executes a job.",
    "ended-by-force",
    breaks=Promise.NO_LEAK,
)
def _forced_undone(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("forced")))


@mutant(
    "removed-account-keeps-its-pods",
    "I81",
    "No rule ends a stopped runner of an account that has removed the App.",
    "uninstalled-stopped",
    breaks=Promise.NO_LEAK,
)
def _kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("account-removed")))


@mutant(
    "deleted-repository-keeps-its-pods",
    "I66",
    "No rule ends a stopped runner that is registered at a deleted repository.",
    "repository-deleted-stopped",
    breaks=Promise.NO_LEAK,
)
def _kept_by_a_repository(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("record-removed")))


@mutant(
    "suspended-is-removed",
    "I66",
    "A suspended installation is taken for a removed one.",
    "suspended-long-job",
    breaks=Promise.LIVE_JOB,
)
def _suspended(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        statement(
            "recovery",
            "removed_accounts",
            ("bool_and(i.state = 'removed')", "bool_and(i.state <> 'active')"),
            ("coalesce(min(r.confirmations), 0)", "coalesce(min(r.confirmations), 3)"),
        )
    )


@mutant(
    "removal-confirmed-once",
    "I29",
    "An installation that GitHub did not know once is removed for good.",
    "removed-for-a-moment",
    breaks=Promise.LIVE_JOB,
)
def _once(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        statement(
            "recovery",
            "removed_accounts",
            ("coalesce(min(r.confirmations), 0)", "3 * coalesce(min(r.confirmations), 0)"),
        )
    )
