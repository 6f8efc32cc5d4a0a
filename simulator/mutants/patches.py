"""What a mutant is, and how code is changed and restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from paddock.domain.recovery import diagnosis
from paddock.domain.recovery.evidence import Subject
from paddock.domain.recovery.rule import Rule
from paddock.store.sql import Query, named
from simulator.engine.checks import Promise, Violation
from simulator.engine.database import Session

Patch = Callable[[ExitStack, Session], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    name: str
    #: The incident, or the invariant, that it comes from.
    source: str
    does: str
    #: Scenarios made to expose it. It is tried on them first, then on all others, then on seeds.
    exposed_by: tuple[str, ...]
    #: The promise that it breaks. A run that breaks only other promises does not kill it.
    breaks: Promise
    #: A second guard that it removes too. While that guard stands, removing the first changes nothing.
    also: str | None = None
    patch: Patch

    @contextmanager
    def applied(self, session: Session) -> Iterator[None]:
        with ExitStack() as undo:
            self.patch(undo, session)
            yield

    def killed_by(self, violations: Sequence[Violation]) -> Violation | None:
        """The first violation of the promise that it names."""
        return next((each for each in violations if each.promise is self.breaks), None)


MADE: list[Mutant] = []


def mutant(
    name: str, source: str, does: str, *exposed_by: str, breaks: Promise, also: str | None = None
) -> Callable[[Patch], Patch]:
    def make(patch: Patch) -> Patch:
        MADE.append(
            Mutant(
                name=name,
                source=source,
                does=does,
                exposed_by=exposed_by,
                breaks=breaks,
                also=also,
                patch=patch,
            )
        )
        return patch

    return make


@contextmanager
def swapped(owner: Any, name: str, value: object) -> Iterator[None]:
    was = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, was)


@contextmanager
def item(table: dict[Any, Any], name: Any, value: object) -> Iterator[None]:
    was = table[name]
    table[name] = value
    try:
        yield
    finally:
        table[name] = was


def statement(noun: str, name: str, *changes: tuple[str, str]) -> AbstractContextManager[None]:
    """A named statement with parts of its text changed."""
    loaded = named(noun)
    text = changed_text(f"{noun}.sql: {name}", loaded[name].source, changes)
    return item(loaded, name, Query(text))


def changed_text(where: str, text: str, changes: Sequence[tuple[str, str]]) -> str:
    for old, new in changes:
        if old not in text:
            raise LookupError(f"{where} has no {old!r} to change; see its mutant")
        text = text.replace(old, new)
    return text


def table(
    subject: Subject, change: Callable[[tuple[Rule[Any, Any], ...]], Sequence[Rule[Any, Any]]]
) -> AbstractContextManager[None]:
    """The rules for one subject, changed."""
    of = diagnosis._OF  # noqa: SLF001 - what `decide` reads
    return item(of, subject, tuple(change(of[subject])))


def without(name: str) -> Callable[[tuple[Rule[Any, Any], ...]], Sequence[Rule[Any, Any]]]:
    def change(table: tuple[Rule[Any, Any], ...]) -> Sequence[Rule[Any, Any]]:
        left = [rule for rule in table if rule.name != name]
        if len(left) == len(table):
            raise LookupError(f"there is no rule {name} to leave out; see its mutant")
        return left

    return change


def before(
    name: str, rule: Rule[Any, Any]
) -> Callable[[tuple[Rule[Any, Any], ...]], Sequence[Rule[Any, Any]]]:
    def change(table: tuple[Rule[Any, Any], ...]) -> Sequence[Rule[Any, Any]]:
        at = [each.name for each in table].index(name)
        return (*table[:at], rule, *table[at:])

    return change


@contextmanager
def changed_schema(session: Session, do: Sequence[str], undo: Sequence[str]) -> Iterator[None]:
    _execute(session, do)
    try:
        yield
    finally:
        _execute(session, undo)


def routine(session: Session, name: str, *changes: tuple[str, str]) -> AbstractContextManager[None]:
    """A function or procedure of the schema with parts of its text changed."""
    text: str = session.run(session.fetchval("SELECT pg_get_functiondef($1::text::regproc)", name))
    return changed_schema(session, [changed_text(name, text, changes)], [text])


def _execute(session: Session, statements: Sequence[str]) -> None:
    async def each() -> None:
        for statement in statements:
            await session.execute(statement)

    session.run(each())


#: A release accepts any claim that it finds.
ANY_CLAIM: Final = (
    (
        "AND state = 'claimed'",
        "AND state IN ('claimed', 'armed', 'running', 'busy')",
    ),
    (
        "mint_deadline = NULL",
        "mint_deadline = NULL, github_id = NULL, job_id = NULL, jit = NULL, jit_key = NULL",
    ),
)


def claims_may_be_released(session: Session) -> AbstractContextManager[None]:
    steps = "('armed', 'idle'), ('running', 'idle'), ('busy', 'idle')"
    return changed_schema(
        session,
        [f"INSERT INTO runner_transitions VALUES {steps}"],  # noqa: S608
        [f"DELETE FROM runner_transitions WHERE (before, after) IN ({steps})"],  # noqa: S608
    )
