"""What evidence says: the questions that many rules ask of it.

An old answer counts as not given, with one exception: a runner whose log showed a job has had a job,
however long ago that log was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from paddock.domain.recovery.durations import seconds
from paddock.domain.recovery.evidence import (
    Container,
    EndedEvidence,
    Evidence,
    JobEvidence,
    JobWord,
    LogWord,
    On,
    PodEvidence,
    PodSeen,
    RecordWord,
    Sighting,
)
from paddock.domain.states import JobState, RunnerState

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds

FRESH_DEFAULT: Final = seconds(
    30.0,
    "for how long an answer is believed: a runner can get a job at any moment, and asking "
    "each suspect twice a minute stays far below GitHub's quota",
)
RECHECK_DEFAULT: Final = seconds(
    60.0,
    "how often a job that looks stuck is asked for: a job's owner feels minutes, and a hundred "
    "stuck jobs cost 6,000 requests an hour",
)

#: GitHub has not given these a job, as far as it knows. That it knows is not certain (I65).
NOT_BUSY: Final = frozenset({RecordWord.ABSENT, RecordWord.OFFLINE, RecordWord.IDLE})

_MAY_WORK: Final = frozenset({RunnerState.ARMED, RunnerState.RUNNING})


def _believed(e: Evidence | EndedEvidence | PodEvidence, t: Thresholds) -> float:
    """A runner that ended is asked for ever more seldom, about ten times in all."""
    return max(t.fresh, e.since / 2) if isinstance(e, EndedEvidence) else t.fresh


def record_answer(e: Evidence | EndedEvidence | PodEvidence, t: Thresholds) -> RecordWord:
    if e.record is not RecordWord.NOT_ASKED and e.record_age > _believed(e, t):
        return RecordWord.NOT_ASKED
    return e.record


def log_reading(e: Evidence | PodEvidence, t: Thresholds) -> LogWord:
    if e.log in (LogWord.NOT_READ, LogWord.JOB):
        return e.log
    return LogWord.NOT_READ if e.log_age > t.fresh else e.log


def hinted_job_answer(e: Evidence | EndedEvidence, t: Thresholds) -> JobWord:
    """Without a hint there is no job to speak of."""
    if e.hint is None:
        return JobWord.NOT_ASKED
    if e.hinted is not JobWord.NOT_ASKED and e.hinted_age > _believed(e, t):
        return JobWord.NOT_ASKED
    return e.hinted


def job_answer(e: JobEvidence, t: Thresholds) -> JobWord:
    if e.word is not JobWord.NOT_ASKED and e.word_age > t.recheck:
        return JobWord.NOT_ASKED
    return e.word


def github_is_ahead(there: JobWord, here: JobState | None) -> bool:
    """Whether the job has gone further at GitHub than in the database."""
    return here is not None and there.state is not None and there.state.rank > here.rank


def alive(pod: PodSeen) -> bool:
    """A Pod that was seen and has not ended."""
    return pod.sighting is Sighting.PRESENT and not pod.terminal


def may_have_run(pod: PodSeen) -> bool:
    """Unless its container provably never started, the runner's process may be at work. This holds for
    both shapes: one container that polls and runs has started, and that proves nothing either way."""
    return pod.sighting is not Sighting.PRESENT or not pod.runner.never_ran


def ended(pod: PodSeen) -> bool:
    """The runner's own container has ended; others in the Pod may run."""
    return pod.sighting is Sighting.PRESENT and pod.runner is Container.TERMINATED


def executes(e: Evidence, t: Thresholds) -> bool:
    """Whether GitHub, its log, its sidecar, an event or its row says that it executes a job. One of
    them is enough (I22, I65)."""
    return (not _over(e) and _begun(e, t)) or _at_github(e, t)


def _over(e: Evidence) -> bool:
    """What was begun is over when GitHub has reported its completion, or its process has ended."""
    return e.state is RunnerState.DONE or e.job is JobState.COMPLETED or ended(e.pod)


def _begun(e: Evidence, t: Thresholds) -> bool:
    return (
        e.state is RunnerState.BUSY
        or e.job is JobState.IN_PROGRESS
        or e.job_marked
        or log_reading(e, t) is LogWord.JOB
    )


def _at_github(e: Evidence, t: Thresholds) -> bool:
    if record_answer(e, t) is RecordWord.BUSY:
        return True
    return hinted_job_answer(e, t) is JobWord.IN_PROGRESS and e.hinted_on is On.THIS


def silence(e: Evidence) -> float:
    """For how long its poller has not asked while other Pods were answered. While no Pod is answered
    the fault may be this server's (I29)."""
    if not e.others_answered:
        return 0.0
    return e.since if e.heard is None else e.heard


def at_work(e: Evidence) -> float | None:
    """For how long a runner that holds its JIT may have been running; `None` if it is not, or nothing
    is known. A container that is up dates it only where it was gated: the other has been up since it
    began to poll. Its node's clock may be wrong, but it did not start before it got its JIT (I82)."""
    if e.state not in _MAY_WORK or not alive(e.pod):
        return None
    held = e.since if e.acknowledged is None else e.acknowledged
    if e.shape == "gated":
        if e.pod.runner.never_ran:
            return None
        if e.pod.up is not None:
            return min(e.pod.up, held)
    if e.state is RunnerState.RUNNING:
        return held
    return silence(e)


def at_work_for(e: Evidence, least: float) -> bool:
    work = at_work(e)
    return work is not None and work >= least
