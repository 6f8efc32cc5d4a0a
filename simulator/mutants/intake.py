"""GitHub's reports of jobs and accounts: misread, or waited for in the wrong place."""

from __future__ import annotations

from contextlib import ExitStack

from paddock.dispatch.comparison import Comparison
from paddock.dispatch.deliveries import DeliveryApplier
from paddock.dispatch.pauses import Place
from paddock.domain.github.errors import BackOff
from paddock.domain.recovery.evidence import Subject
from paddock.github import facts
from paddock.recovery.github_lookups import GitHubLookups
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import mutant, swapped, table, without


@mutant(
    "age-from-creation",
    "I76",
    "A job's age counts from its creation, however long it waited for an approval.",
    "approved-after-days",
    breaks=Promise.PROMPT,
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


@mutant(
    "deleted-repository-unended",
    "I66",
    "Jobs in progress in a deleted repository are never ended.",
    "repository-deleted",
    breaks=Promise.KNOWN,
)
def _deleted_unended(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.JOB, without("repository-deleted")))


@mutant(
    "deleted-repository-undoubted",
    "I66",
    "What cannot be compared with GitHub is compared later; recovery is not told of its jobs.",
    "repository-deleted-in-the-queue",
    breaks=Promise.KNOWN,
)
def _undoubted(undo: ExitStack, _session: Session) -> None:
    async def no_doubt(*_: object) -> None:
        return None

    undo.enter_context(swapped(Comparison, "_doubt", no_doubt))


@mutant(
    "repository-gone-unproven",
    "I66",
    "A repository that answers 404 is taken for deleted; its account's repositories are not read.",
    "repository-404-given-back",
    breaks=Promise.SERVED,
)
def _gone_unproven(undo: ExitStack, _session: Session) -> None:
    async def gone(*_: object) -> bool:
        return True

    undo.enter_context(swapped(GitHubLookups, "_is_gone", gone))


@mutant(
    "back-off-widened",
    "I17",
    "What GitHub does not answer for one repository keeps recovery from asking for all others of the"
    " account.",
    "repository-404",
    breaks=Promise.SERVED,
)
def _back_off_widened(undo: ExitStack, _session: Session) -> None:
    within = Place.within

    def wider(self: Place, scope: BackOff) -> Place:
        return within(self, BackOff.ACCOUNT if scope is BackOff.REPOSITORY else scope)

    undo.enter_context(swapped(Place, "within", wider))
