"""Recovery that ignores one kind of trouble, and loops that rely on wake-ups alone."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from paddock.dispatch import deliveries, dispatcher
from paddock.dispatch.comparison import Comparison
from paddock.domain.github.errors import GitHubError
from paddock.domain.limits import UNLIMITED
from paddock.domain.recovery.evidence import Subject
from paddock.github.client import GitHubClient
from paddock.store import matching
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import mutant, swapped, table, without

#: Longer than a run takes.
_NEVER = 100_000.0


@mutant(
    "comparison-off",
    "I8",
    "The list of GitHub's queued jobs is not compared with the rows.",
    "queued-webhook-lost",
    breaks=Promise.SERVED,
)
def _comparison_off(undo: ExitStack, _session: Session) -> None:
    async def nothing(_self: Any) -> int:
        return 0

    undo.enter_context(swapped(Comparison, "round", nothing))


@mutant(
    "late-runners-not-replaced",
    "S2",
    "A runner that does not come online keeps its job waiting.",
    "never-started",
    breaks=Promise.SERVED,
)
def _late_not_replaced(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("suspect")))


@mutant(
    "surplus-kept",
    "I40",
    "A runner that is online without a job, and whose job was cancelled, is left online.",
    "cancelled-before-it-began",
    breaks=Promise.NO_LEAK,
    also="the rule `no-job-in-time`, which retires it much later",
)
def _surplus_kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("surplus")))
    undo.enter_context(table(Subject.RUNNER, without("no-job-in-time")))


@mutant(
    "unregistered-kept",
    "S2",
    "A runner that never comes online is left alone.",
    "macos-never-registers",
    breaks=Promise.NO_LEAK,
)
def _unregistered_kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("never-registered")))


@mutant(
    "waiting-container-kept",
    "S2",
    "A Pod whose runner container never starts is left alone.",
    "never-started",
    breaks=Promise.NO_LEAK,
)
def _waiting_container_kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("waiting-container")))


@mutant(
    "lingering-kept",
    "I46",
    "A runner that does not exit after its job is left alone.",
    "finished-lingers",
    breaks=Promise.NO_LEAK,
)
def _lingering_kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("lingering")))


@mutant(
    "vanished-kept",
    "I29",
    "A runner whose Pod is absent in every list keeps its place.",
    "vanished-pods",
    breaks=Promise.NO_LEAK,
)
def _vanished_kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("pod-gone")))


@mutant(
    "deleted-repository-asked-for-ever",
    "I66",
    "A runner of a deleted repository waits for an answer about its record.",
    "repository-deleted-under-a-runner",
    breaks=Promise.NO_LEAK,
)
def _deleted_repository_asked(undo: ExitStack, _session: Session) -> None:
    async def unproven(_self: Any, _who: Any, _scope: Any, error: GitHubError) -> Any:
        raise error

    undo.enter_context(swapped(GitHubClient, "_absent_if_deleted", unproven))


@mutant(
    "account-limit-unread",
    "I25",
    "A match does not look at the limits of accounts.",
    "described-cheaper",
    breaks=Promise.LIMIT,
)
def _account_limit_unread(undo: ExitStack, _session: Session) -> None:
    terms = vars(matching)["AccountTerms"]

    def unlimited(**facts: Any) -> Any:
        return terms(**(facts | {"limits": UNLIMITED}))

    undo.enter_context(swapped(matching, "AccountTerms", unlimited))


@mutant(
    "matcher-waits-for-wakeups",
    "I28",
    "The matcher looks only when it is woken.",
    "wakeups-lost",
    breaks=Promise.PROMPT,
)
def _matcher_waits(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(dispatcher, "_LOOK_AGAIN", _NEVER))


@mutant(
    "intake-waits-for-wakeups",
    "I28",
    "Deliveries are applied only when the intake is woken.",
    "wakeups-lost",
    breaks=Promise.PROMPT,
)
def _intake_waits(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(deliveries, "_LOOK_AGAIN", _NEVER))
