"""Answers that several rules require before they act."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from paddock.domain.recovery.evidence import (
    EndedEvidence,
    Evidence,
    JobWord,
    LogWord,
    On,
    PodEvidence,
    RecordWord,
)
from paddock.domain.recovery.predicates import (
    NOT_BUSY,
    ended,
    hinted_job_answer,
    job_answer,
    log_reading,
    may_have_run,
    record_answer,
)
from paddock.domain.recovery.rule import Question, RequiredAnswer
from paddock.domain.states import JobState

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds


def record_is(
    *answers: RecordWord, when: Callable[[Any], bool] | None = None
) -> RequiredAnswer[Any]:
    return RequiredAnswer(
        Question.RECORD,
        lambda e, t: record_answer(e, t) is RecordWord.NOT_ASKED,
        lambda e, t: record_answer(e, t) in answers,
        when,
    )


def ran(e: Evidence | PodEvidence) -> bool:
    return may_have_run(e.pod)


def _runs(e: Evidence | PodEvidence) -> bool:
    return may_have_run(e.pod) and not ended(e.pod)


def _no_job_in_log(when: Callable[[Any], bool]) -> RequiredAnswer[Any]:
    return RequiredAnswer(
        Question.LOG,
        lambda e, t: log_reading(e, t) is LogWord.NOT_READ,
        lambda e, t: log_reading(e, t) is LogWord.NO_JOB,
        when,
    )


GITHUB_SAYS_NOT_BUSY: Final = record_is(*sorted(NOT_BUSY))

LOG_SHOWS_NO_JOB: Final = _no_job_in_log(_runs)
#: Also of a runner whose container has ended: without a row, that it *had* a job protects it (S1).
LOG_NEVER_SHOWED_A_JOB: Final = _no_job_in_log(ran)

#: Both must agree before a runner that may have run is fenced (I65).
NO_JOB_ON_IT: Final = (record_is(*sorted(NOT_BUSY), when=ran), LOG_SHOWS_NO_JOB)


def _is_not_here(e: Evidence | EndedEvidence, t: Thresholds) -> bool:
    match hinted_job_answer(e, t):
        case JobWord.WAITING | JobWord.QUEUED | JobWord.ABSENT:
            return True
        case JobWord.IN_PROGRESS | JobWord.COMPLETED:
            return e.hinted_on is On.ANOTHER
        case JobWord.NOT_ASKED | JobWord.UNREADABLE | JobWord.REPOSITORY_GONE:
            return False


#: S2's table. A job that GitHub calls in progress without naming its runner may be on this one.
HINTED_JOB_IS_NOT_HERE: Final[RequiredAnswer[Any]] = RequiredAnswer(
    Question.JOB,
    lambda e, t: hinted_job_answer(e, t) is JobWord.NOT_ASKED,
    _is_not_here,
    lambda e: e.hint in (JobState.WAITING, JobState.QUEUED, JobState.IN_PROGRESS),
)


def job_is(
    *answers: JobWord, times: Callable[[Thresholds], int] = lambda _: 0
) -> RequiredAnswer[Any]:
    return RequiredAnswer(
        Question.JOB,
        lambda e, t: job_answer(e, t) is JobWord.NOT_ASKED,
        lambda e, t: job_answer(e, t) in answers and e.times >= times(t),
    )
