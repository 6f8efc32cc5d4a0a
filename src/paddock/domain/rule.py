"""What a rule of recovery is made of: what it sees, which answers it needs, what it does.

A rule that acts on GitHub's word alone once killed 22 jobs in three days (I35). Here a rule says which
answers it needs, and while one is missing its verdict is to ask for it; the needs that several rules
share stand here, so that no rule can have a weaker one by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from string import Formatter
from typing import Any, Final, Generic, TypeVar

from paddock.domain.endings import Retired
from paddock.domain.evidence import (
    EndedEvidence,
    Evidence,
    JobEvidence,
    JobWord,
    LogWord,
    On,
    PodEvidence,
    RecordWord,
    Subject,
)
from paddock.domain.readings import NOT_BUSY, ended, hinted, log, may_have_run, record, word
from paddock.domain.states import JobState
from paddock.domain.thresholds import Thresholds, words


class Action(StrEnum):
    CONCLUDE = "conclude"  # write its verdict; it is gone, and what is left of its Pod is deleted
    FENCE = "fence"  # it is never dispatched again, and retires
    RETIRE = "retire"  # the next step of its retirement
    FORCE = "force"  # it retires for good: nothing brings it back, and GitHub is not asked
    RELEASE = "release"  # settle the claim's mint, back to idle
    SUSPECT = "suspect"  # it no longer counts as supply
    ALARM = "alarm"  # replace nothing, tell people
    OCCUPY = "occupy"  # it is busy
    PROTECT = "protect"  # leave it alone, and say so
    ADOPT = "adopt"  # give it a row, fenced: from there it retires
    APPLY = "apply"  # what GitHub says of the job
    INSERT = "insert"  # the job GitHub told of
    DEMOTE = "demote"  # the job is queued again
    SERVE = "serve again"  # the ended runner no longer counts as supply
    EXPLAIN = "explain"  # write down why the job waits
    STALE = "complete as stale"
    REFINE = "refine the verdict"  # never ran
    ASK = "ask"
    LEAVE = "leave"


class Question(StrEnum):
    RECORD = "GitHub's record of the runner"
    LOG = "the runner's log"
    JOB = "the job at GitHub"


E = TypeVar("E", Evidence, EndedEvidence, PodEvidence, JobEvidence)


@dataclass(frozen=True, slots=True)
class Need(Generic[E]):
    """An answer without which a rule does not act. `unasked` while there is none; `settles` if it is
    the one the rule needs. Without `when` it needs it always."""

    question: Question
    unasked: Callable[[E, Thresholds], bool]
    settles: Callable[[E, Thresholds], bool]
    when: Callable[[E], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[E]):
    """One row of the table. `seen` names thresholds in braces."""

    name: str
    subject: Subject
    seen: str
    done: str
    action: Action
    holds: Callable[[E, Thresholds], bool]
    needs: tuple[Need[E], ...] = ()
    #: What the runner's verdict will say of it, if it is we who end it.
    retired: Retired | None = None
    invariants: tuple[str, ...] = ()

    @property
    def thresholds(self) -> tuple[str, ...]:
        return tuple(name for _, name, _, _ in Formatter().parse(self.seen) if name)

    @property
    def questions(self) -> tuple[Question, ...]:
        """What it may ask, in order, each once."""
        return tuple(dict.fromkeys(need.question for need in self.needs))

    def lacks(self, evidence: E, thresholds: Thresholds) -> Need[E] | None:
        """The first of its needs that is not met, be it without an answer or with another one."""
        for need in self.needs:
            if need.when is not None and not need.when(evidence):
                continue
            if need.unasked(evidence, thresholds) or not need.settles(evidence, thresholds):
                return need
        return None

    def seen_with(self, thresholds: Thresholds) -> str:
        return self.seen.format_map({name: words(name, thresholds) for name in self.thresholds})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    action: Action
    #: The rule that decided, or that asks; `None` if none holds.
    rule: str | None
    why: str
    question: Question | None = None
    retired: Retired | None = None


def record_is(*answers: RecordWord, when: Callable[[Any], bool] | None = None) -> Need[Any]:
    return Need(
        Question.RECORD,
        lambda e, t: record(e, t) is RecordWord.NOT_ASKED,
        lambda e, t: record(e, t) in answers,
        when,
    )


def ran(e: Evidence | PodEvidence) -> bool:
    return may_have_run(e.pod)


def _runs(e: Evidence | PodEvidence) -> bool:
    return may_have_run(e.pod) and not ended(e.pod)


def _no_job_in_log(when: Callable[[Any], bool]) -> Need[Any]:
    return Need(
        Question.LOG,
        lambda e, t: log(e, t) is LogWord.NOT_READ,
        lambda e, t: log(e, t) is LogWord.NO_JOB,
        when,
    )


LOG_SHOWS_NO_JOB: Final = _no_job_in_log(_runs)
#: Also of a runner whose container has ended: without a row, that it *had* a job protects it (S1).
LOG_NEVER_SHOWED_A_JOB: Final = _no_job_in_log(ran)

#: Both must agree before a runner that may have run is fenced (I65).
NO_JOB_ON_IT: Final = (record_is(*sorted(NOT_BUSY), when=ran), LOG_SHOWS_NO_JOB)


def _is_not_here(e: Evidence | EndedEvidence, t: Thresholds) -> bool:
    match hinted(e, t):
        case JobWord.WAITING | JobWord.QUEUED | JobWord.ABSENT:
            return True
        case JobWord.IN_PROGRESS | JobWord.COMPLETED:
            return e.hinted_on is On.ANOTHER
        case _:
            return False


#: S2's table: a job that is in progress on nobody knows which runner may be on this one.
HINTED_JOB_IS_NOT_HERE: Final[Need[Any]] = Need(
    Question.JOB,
    lambda e, t: hinted(e, t) is JobWord.NOT_ASKED,
    _is_not_here,
    lambda e: e.hint in (JobState.WAITING, JobState.QUEUED, JobState.IN_PROGRESS),
)


def job_is(*answers: JobWord, times: Callable[[Thresholds], int] = lambda _: 0) -> Need[Any]:
    return Need(
        Question.JOB,
        lambda e, t: word(e, t) is JobWord.NOT_ASKED,
        lambda e, t: word(e, t) in answers and e.times >= times(t),
    )
