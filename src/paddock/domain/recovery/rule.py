"""What a rule of recovery is made of: what it sees, which answers it requires, what it does.

A rule that acted on GitHub's answer alone once killed 22 jobs in three days (I35). Here a rule names
the answers it requires, and while one is missing its verdict is to ask for it. Requirements that
several rules share are in `required_answers`, so that no rule has a weaker one by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from string import Formatter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from paddock.domain.recovery.actions import AnyAction, NoAction
from paddock.domain.recovery.durations import in_words
from paddock.domain.recovery.evidence import (
    EndedEvidence,
    Evidence,
    JobEvidence,
    PodEvidence,
    Subject,
)
from paddock.domain.runners.endings import Retired

if TYPE_CHECKING:  # it is put together from the files of the rules, which import this one
    from paddock.domain.recovery.thresholds import Thresholds


class Question(StrEnum):
    RECORD = "GitHub's record of the runner"
    LOG = "the runner's log"
    JOB = "the job at GitHub"


E = TypeVar("E", Evidence, EndedEvidence, PodEvidence, JobEvidence)
A = TypeVar("A", bound=AnyAction, covariant=True)


@dataclass(frozen=True, slots=True)
class RequiredAnswer(Generic[E]):
    """An answer without which a rule does not act. `unasked` while there is none; `settles` if it is
    the one the rule requires. Without `when` it is always required."""

    question: Question
    unasked: Callable[[E, Thresholds], bool]
    settles: Callable[[E, Thresholds], bool]
    when: Callable[[E], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[E, A]):
    """One row of the table. `seen` names thresholds in braces."""

    name: str
    subject: Subject
    seen: str
    done: str
    action: A | NoAction
    holds: Callable[[E, Thresholds], bool]
    needs: tuple[RequiredAnswer[E], ...] = ()
    #: What the runner's verdict says of it, if recovery ends it.
    retired: Retired | None = None
    invariants: tuple[str, ...] = ()
    #: It acts on every runner sooner or later, or continues what another rule began: the lists of
    #: noteworthy actions leave it out.
    expected: bool = False
    #: Every healthy fleet has some of it each day: the terminal of `paddock up` leaves it out.
    routine: bool = False
    #: The Pod was seen to have ended. No limit holds up its record; the line `runner.ended` of the log,
    #: and the step in its story, tell of it already.
    seen_to_end: bool = False
    #: What it fences never registered at GitHub: the verdict says so.
    unregistered: bool = False

    @property
    def thresholds(self) -> tuple[str, ...]:
        return tuple(name for _, name, _, _ in Formatter().parse(self.seen) if name)

    @property
    def questions(self) -> tuple[Question, ...]:
        """What it may ask, in order, each once."""
        return tuple(dict.fromkeys(need.question for need in self.needs))

    def lacks(self, evidence: E, thresholds: Thresholds) -> RequiredAnswer[E] | None:
        """The first required answer that is missing, or that is not the one required."""
        for need in self.needs:
            if need.when is not None and not need.when(evidence):
                continue
            if need.unasked(evidence, thresholds) or not need.settles(evidence, thresholds):
                return need
        return None

    def seen_with(self, thresholds: Thresholds) -> str:
        return self.seen.format_map({name: in_words(name, thresholds) for name in self.thresholds})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Generic[A]):
    action: A | NoAction
    #: The rule that decided, or that asks; `None` if none holds.
    by: Rule[Any, A] | None
    why: str
    question: Question | None = None
    retired: Retired | None = None

    @property
    def rule(self) -> str | None:
        return None if self.by is None else self.by.name
