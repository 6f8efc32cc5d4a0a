"""What paddock knows of jobs, webhooks and ends."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from paddock.domain.github import redelivery
from paddock.domain.pods.pod import Pod
from paddock.domain.recovery.evidence import Subject
from paddock.domain.runners import endings
from paddock.domain.runners.runner import Runner
from paddock.forensics.conclusion import Concluded, Conclusion
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import (
    changed_schema,
    mutant,
    statement,
    swapped,
    table,
    without,
)


@mutant(
    "completed-not-final",
    "I2",
    "The last webhook to arrive decides what a job is.",
    "late-queued",
    breaks=Promise.LEGAL,
    also="the trigger that refuses a lower rank",
)
def _not_final(undo: ExitStack, session: Session) -> None:
    undo.enter_context(
        changed_schema(
            session,
            ["ALTER TABLE jobs DISABLE TRIGGER jobs_demoted"],
            ["ALTER TABLE jobs ENABLE TRIGGER jobs_demoted"],
        )
    )
    undo.enter_context(
        statement(
            "jobs",
            "merge",
            ("state = greatest(j.state, excluded.state)", "state = excluded.state"),
            (
                "completed_at = least(j.completed_at, excluded.completed_at)",
                "completed_at = excluded.completed_at",
            ),
            (
                "ELSE coalesce(j.conclusion, excluded.conclusion) END",
                "ELSE excluded.conclusion END",
            ),
        )
    )


@mutant(
    "redelivery-of-failed-attempts",
    "I7",
    "A webhook is asked for again as long as there is an attempt of it that failed.",
    "failed-webhook",
    breaks=Promise.ASKED_ONCE,
)
def _failed_attempts(undo: ExitStack, _session: Session) -> None:
    fate = redelivery._fate  # noqa: SLF001

    def of_failures(group: list[Any], **known: Any) -> Any:
        failed = [attempt for attempt in group if not attempt.succeeded]
        if not failed:
            return redelivery.Fate.SETTLED
        return fate(failed, **(known | {"arrived": False}))

    undo.enter_context(swapped(redelivery, "_fate", of_failures))


@mutant(
    "exit-0-is-success",
    "I39",
    "A runner that exits with 0 has completed, whether it had a job or not.",
    "leaves",
    breaks=Promise.VERDICT,
    also="recovery's rule of the same name, which asks GitHub later",
)
def _exit_0(undo: ExitStack, _session: Session) -> None:
    kept = tuple(rule for rule in endings.RULES if rule.name != "exit-without-job")
    undo.enter_context(swapped(endings, "RULES", kept))
    undo.enter_context(table(Subject.ENDED, without("exit-without-job")))


@mutant(
    "verdict-after-delete",
    "I30",
    "An ended Pod is deleted first, and its end recorded then.",
    "crash-after-delete",
    breaks=Promise.VERDICT,
)
def _verdict_after_delete(undo: ExitStack, _session: Session) -> None:
    conclude = Conclusion.conclude

    async def reaping(self: Any, ended: Sequence[tuple[Runner, Pod]]) -> list[Concluded]:
        for _, pod in ended:
            await self.reap(pod)
        return await conclude(self, ended)

    undo.enter_context(swapped(Conclusion, "conclude", reaping))
