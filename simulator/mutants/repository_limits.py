"""Repository limits: where runners register, which of them count, and the keys of waiting jobs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from paddock.store import matching
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import changed_schema, changed_text, mutant, routine, swapped


@mutant(
    "limited-at-the-organisation",
    "I78",
    "Runners register at an organisation although one of its repositories has limits.",
    "repository-limit-by-sibling",
    breaks=Promise.LIMIT,
)
def _limited_at_the_organisation(undo: ExitStack, session: Session) -> None:
    limited = "EXISTS (SELECT FROM repositories r WHERE r.account_id = a.id AND r.limited)"
    undo.enter_context(routine(session, "registration", (limited, "false")))


@mutant(
    "wider-runners-not-counted",
    "I78",
    "What runners of the organisation execute does not count against a repository's limits.",
    "repository-limit-set-late",
    breaks=Promise.LIMIT,
)
def _wider_runners_not_counted(undo: ExitStack, _session: Session) -> None:
    async def none(*_: object) -> tuple[()]:
        return ()

    undo.enter_context(swapped(matching.DemandReader, "_wider_use", none))


@mutant(
    "jobless-wider-runners-not-counted",
    "I78",
    "A runner of the organisation counts against a repository's limits only when its job is known.",
    "repository-limit-set-late",
    breaks=Promise.LIMIT,
)
def _jobless_not_counted(undo: ExitStack, session: Session) -> None:
    define = "CREATE OR REPLACE VIEW wider_use AS "
    text: str = session.run(session.fetchval("SELECT pg_get_viewdef('wider_use'::regclass)"))
    changed = changed_text("wider_use", text, [("c.repository_id IS NULL", "false")])
    undo.enter_context(changed_schema(session, [define + changed], [define + text]))


@mutant(
    "misplaced-jobs-stay",
    "I78",
    "Jobs that wait keep their key when runners of their account register elsewhere.",
    "repository-limit-removed",
    breaks=Promise.SERVED,
)
def _misplaced_jobs_stay(undo: ExitStack, session: Session) -> None:
    undo.enter_context(
        routine(session, "move_misplaced_jobs", ("SET key_id = k.id", "SET key_id = j.key_id"))
    )


@mutant(
    "misplaced-jobs-served",
    "I78",
    "Runners are claimed for the key under which a job waits, wherever its account's register now.",
    "repository-limit-restored",
    breaks=Promise.LIMIT,
)
def _misplaced_jobs_served(undo: ExitStack, _session: Session) -> None:
    blocked = matching._blocked  # noqa: SLF001

    def unaware(key: Any, terms: Any, *rest: Any) -> Any:
        return blocked(key, msgspec.structs.replace(terms, misplaced=False), *rest)

    undo.enter_context(swapped(matching, "_blocked", unaware))
