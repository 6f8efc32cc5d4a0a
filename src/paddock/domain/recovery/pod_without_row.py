"""A Pod of ours that no row knows.

**What stuck means.** After a restored backup, or by another hand, a Pod exists that the database does
not know. It may execute a job, or use a node for nothing. A sweep for such Pods, found by their
label, once deleted live builds (S1, I34).

**How it should go.** A row is written before its Pod is created, and outlives it.

**How it goes wrong.** The database was restored from a backup, a person created a Pod with our
labels, or the row's Pod was replaced under the same name.

**What paddock does.** It gives the Pod a row, fenced (`pod-without-row`, `runner-ended-without-row`,
and `ended-without-row` for a Pod that has ended): from there it retires like any other. Until all
required answers are there it is protected (`protected`, `executing-without-row`,
`unrecognised-without-row`).

**Why this threshold.** A row is written before its Pod, so 5 minutes are only for clocks and slow
reads. `linger` (10 minutes) applies if its runner has ended.

**Why it cannot hurt a live job.** Adoption deletes nothing. It requires that GitHub calls the Pod
busy under none of its possible names, in every scope where it could be registered, and that its log
never showed a job, if the runner may have started. The owner's label decides nothing (I22).

**What it does not cover.** The deletion of an adopted Pod: `retiring`. Pods without our labels are
not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from paddock.domain.recovery.actions import PodAction
from paddock.domain.recovery.durations import MINUTE, seconds
from paddock.domain.recovery.evidence import (
    Container,
    LogWord,
    PodEvidence,
    RecordWord,
    Sighting,
    Subject,
)
from paddock.domain.recovery.predicates import alive, ended, log_reading, record_answer
from paddock.domain.recovery.required_answers import GITHUB_SAYS_NOT_BUSY, LOG_NEVER_SHOWED_A_JOB
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds

ADOPT_DEFAULT: Final = seconds(
    5 * MINUTE, "a row is written before its Pod: the grace is for clocks and slow reads alone"
)


def _claimed_to_work(e: PodEvidence, t: Thresholds) -> bool:
    return record_answer(e, t) is RecordWord.BUSY or log_reading(e, t) is LogWord.JOB


ENDED_WITHOUT_ROW: Final[Rule[PodEvidence, PodAction]] = Rule(
    name="ended-without-row",
    subject=Subject.POD,
    seen="It has ended, and no row knows it",
    done="Give it a row, so that its end is recorded",
    action=PodAction.ADOPT,
    holds=lambda e, _: e.pod.sighting is Sighting.PRESENT and e.pod.terminal,
    invariants=("I30", "I58"),
)

RUNNER_ENDED_WITHOUT_ROW: Final[Rule[PodEvidence, PodAction]] = Rule(
    name="runner-ended-without-row",
    subject=Subject.POD,
    seen="No row knows it, its runner container ended {linger} ago, its Pod has not, and GitHub "
    "calls it busy under none of its possible names",
    done="Give it a row, fenced: it retires like any other",
    action=PodAction.ADOPT,
    holds=lambda e, t: alive(e.pod) and ended(e.pod) and e.pod.unchanged >= t.linger,
    needs=(GITHUB_SAYS_NOT_BUSY,),
    retired=Retired.FINISHED,
    invariants=("I28", "I40"),
)

EXECUTING_WITHOUT_ROW: Final[Rule[PodEvidence, PodAction]] = Rule(
    name="executing-without-row",
    subject=Subject.POD,
    seen="No row knows it, and GitHub or its log says that it executes, or has executed, a job",
    done="Leave it alone, and say so",
    action=PodAction.PROTECT,
    holds=_claimed_to_work,
    invariants=("I34", "I70"),
)

UNRECOGNISED_WITHOUT_ROW: Final[Rule[PodEvidence, PodAction]] = Rule(
    name="unrecognised-without-row",
    subject=Subject.POD,
    seen="No row knows it, and it looks like nothing that is known",
    done="Leave it for the next round",
    action=PodAction.PROTECT,
    holds=lambda e, _: alive(e.pod) and e.pod.runner is Container.UNRECOGNISED,
    invariants=("I34",),
)

POD_WITHOUT_ROW: Final[Rule[PodEvidence, PodAction]] = Rule(
    name="pod-without-row",
    subject=Subject.POD,
    seen="No row has known it for {adopt}, GitHub calls it busy under none of its possible names, "
    "and if its runner may have started, its log shows no job",
    done="Give it a row, fenced: it retires like any other",
    action=PodAction.ADOPT,
    holds=lambda e, t: alive(e.pod) and e.pod.age >= t.adopt,
    needs=(GITHUB_SAYS_NOT_BUSY, LOG_NEVER_SHOWED_A_JOB),
    retired=Retired.GIVEN_UP,
    invariants=("I22", "I34", "I70"),
)

PROTECTED: Final[Rule[PodEvidence, PodAction]] = Rule(
    name="protected",
    subject=Subject.POD,
    seen="No row has known it for {adopt}, and not all required answers are there",
    done="Leave it alone, and say so",
    action=PodAction.PROTECT,
    holds=lambda e, t: alive(e.pod) and e.pod.age >= t.adopt,
    invariants=("I29", "I34"),
)
