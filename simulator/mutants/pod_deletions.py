"""Deletions without their precondition, or with a wrong one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from paddock.domain.github.objects import Removal
from paddock.domain.pods.pod import Pod
from paddock.domain.recovery import evidence
from paddock.domain.runners.dialects import RunnerProgram
from paddock.domain.runners.runner import Runner
from paddock.forensics.conclusion import Conclusion
from paddock.pools.reconciler import Reconciler
from paddock.recovery.retire import Retirement
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import (
    mutant,
    statement,
    swapped,
)


class _AnyUid(str):
    """The UID of a deletion without a precondition."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return 0


@mutant(
    "delete-without-uid",
    "I36",
    "A Pod is deleted by its name alone.",
    "same-name",
    breaks=Promise.LIVE_JOB,
)
def _without_uid(undo: ExitStack, _session: Session) -> None:
    for owner, name in ((Retirement, "_ask_fleet"), (Conclusion, "reap")):
        undo.enter_context(swapped(owner, name, _deleting_any(vars(owner)[name])))


def _deleting_any(delete: Callable[[Any, Pod], Awaitable[Any]]) -> Any:
    async def any_of_its_name(self: Any, pod: Pod) -> Any:
        return await delete(self, replace(pod, uid=_AnyUid(pod.uid)))

    return any_of_its_name


@mutant(
    "delete-before-deregister",
    "I35",
    "A fenced runner's Pod is deleted without deleting its record first.",
    "job-at-the-last-moment",
    breaks=Promise.LIVE_JOB,
)
def _before_deregister(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(Retirement, "_may_have_a_record", lambda *_: False))


@mutant(
    "422-ignored",
    "I35",
    "That GitHub refuses to delete a busy runner is taken for a record that is gone.",
    "job-at-the-last-moment",
    breaks=Promise.LIVE_JOB,
    also="the runner's own proof that it shows no job",
)
def _422_ignored(undo: ExitStack, _session: Session) -> None:
    remove, needs_proof = vars(Retirement)["_remove"], vars(Retirement)["_needs_proof"]

    async def ignoring(self: Any, runner: Runner, *rest: Any) -> Removal:
        removal: Removal = await remove(self, runner, *rest)
        if removal is not Removal.BUSY:
            return removal
        self.refused = {*getattr(self, "refused", ()), runner.id}
        return Removal.ABSENT

    def unless_refused(self: Any, runner: Runner, pod: Pod) -> bool:
        return runner.id not in getattr(self, "refused", ()) and needs_proof(self, runner, pod)

    undo.enter_context(swapped(Retirement, "_remove", ignoring))
    undo.enter_context(swapped(Retirement, "_needs_proof", unless_refused))


@mutant(
    "204-trusted-alone",
    "I65",
    "What GitHub has deleted is deleted here too; the runner's own log is not read.",
    "deleted-while-busy",
    breaks=Promise.LIVE_JOB,
)
def _204_alone(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(Retirement, "_needs_proof", lambda *_: False))


@mutant(
    "pool-deletion-kills",
    "I42",
    "With a pool all its Pods are deleted.",
    "pool-deleted",
    breaks=Promise.LIVE_JOB,
)
def _pool_deletion_kills(undo: ExitStack, _session: Session) -> None:
    carry_out = Reconciler._carry_out  # noqa: SLF001

    async def cascading(self: Any, pool: Any, made: Any) -> Any:
        if pool.state != "active":
            for pod in self._pods().pods:
                if pod.pool == pool.name and not pod.phase.terminal:
                    await self._orders._fleet.delete_live_pod(pod.name, uid=pod.uid)  # noqa: SLF001
        return await carry_out(self, pool, made)

    undo.enter_context(swapped(Reconciler, "_carry_out", cascading))


@mutant(
    "sidecar-unheard",
    "I65",
    "Vitals are written; that they tell of a job is not.",
    "only-its-sidecar-tells",
    breaks=Promise.LIVE_JOB,
)
def _unmarked(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(statement("vitals", "mark", ("FOR NO KEY UPDATE SKIP LOCKED", "LIMIT 0")))


@mutant(
    "other-words-unheard",
    "I89",
    "Only actions/runner's line shows a job: a busy github-act-runner reads as idle.",
    "third-party-runner",
    breaks=Promise.LIVE_JOB,
)
def _other_words_unheard(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(evidence, "shows_a_job", lambda log: "Running job:" in log))


@mutant(
    "unknown-program-believed",
    "I89",
    "A log without any known line of a job speaks against a job, whatever program wrote it.",
    "unknown-runner-program",
    breaks=Promise.LIVE_JOB,
)
def _unknown_program_believed(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(evidence, "program_of_log", lambda _log: RunnerProgram.ACTIONS))
