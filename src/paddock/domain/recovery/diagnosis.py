"""Which rule of recovery decides about one runner, Pod or job.

Systems of this kind had a sweep for every kind of leak, and each new one knew less than the last: one
deleted live Pods because they had a label and no claim. Here all rules are in one ordered table,
strongest evidence first, and the first that holds decides. `diagnose` is pure, it has an answer for
every value of evidence, and what no rule holds for is left alone.

Where rows and Pods raise a suspicion but settle nothing, a rule requires answers: from GitHub about
the runner or its job, from the runner's own log. While one is missing the verdict is to ask for it.
So GitHub is asked only about suspects, and a question without an answer settles nothing.

No rule deletes a live Pod. The most that one does is to fence it; what follows
(`paddock.recovery.retire`) has GitHub remove the runner first and looks twice for a job. And what may
have run is fenced only if GitHub says that it is not busy and its own log shows no job, or if its job
has completed: the order of the table makes that so, and a test goes through all combinations.
"""

from __future__ import annotations

from typing import Any, Final, overload

from paddock.domain.recovery.actions import (
    EndedAction,
    JobAction,
    NoAction,
    PodAction,
    RunnerAction,
)
from paddock.domain.recovery.durations import duration
from paddock.domain.recovery.evidence import (
    AnyEvidence,
    EndedEvidence,
    Evidence,
    JobEvidence,
    JobWord,
    LogWord,
    PodEvidence,
    RecordWord,
    Sighting,
    Subject,
)
from paddock.domain.recovery.rule import Question, Rule, Verdict
from paddock.domain.recovery.table import RULES
from paddock.domain.recovery.thresholds import Thresholds

#: What `decide` reads: the rules for each subject, in order.
_OF: Final[dict[Subject, tuple[Rule[Any, Any], ...]]] = {
    subject: tuple(rule for rule in RULES if rule.subject is subject) for subject in Subject
}


@overload
def diagnose(evidence: Evidence, thresholds: Thresholds) -> Verdict[RunnerAction]: ...
@overload
def diagnose(evidence: EndedEvidence, thresholds: Thresholds) -> Verdict[EndedAction]: ...
@overload
def diagnose(evidence: PodEvidence, thresholds: Thresholds) -> Verdict[PodAction]: ...
@overload
def diagnose(evidence: JobEvidence, thresholds: Thresholds) -> Verdict[JobAction]: ...


def diagnose(evidence: AnyEvidence, thresholds: Thresholds) -> Verdict[Any]:
    """The first rule that holds decides. One that lacks an answer asks for it; one whose answer is not
    the one required is passed over."""
    rule, question = decide(evidence, thresholds)
    if rule is None:
        return Verdict(action=NoAction.LEAVE, by=None, why="Nothing is wrong with it.")
    action = rule.action if question is None else NoAction.ASK
    return Verdict(
        action=action,
        by=rule,
        why=f"{rule.seen_with(thresholds)} ({facts(evidence)}).",
        question=question,
        retired=rule.retired if action is RunnerAction.FENCE else None,
    )


def decide(
    evidence: AnyEvidence, thresholds: Thresholds
) -> tuple[Rule[Any, Any] | None, Question | None]:
    """The rule that decides, and what it has to ask first; without words."""
    for rule in _OF[evidence.subject]:
        if rule.holds(evidence, thresholds):
            lacking = rule.lacks(evidence, thresholds)
            if lacking is None:
                return rule, None
            if lacking.unasked(evidence, thresholds):
                return rule, lacking.question
    return None, None


def facts(evidence: AnyEvidence) -> str:
    """What was seen, in a few words."""
    match evidence:
        case Evidence():
            said = [f"{evidence.state} for {_age(evidence.since)}", _pod(evidence)]
            said += _words(evidence) + _hint(evidence)
        case EndedEvidence():
            said = [f"ended {_age(evidence.since)} ago", _record_words(evidence), *_hint(evidence)]
        case PodEvidence():
            said = ["stamped" if evidence.stamped else "", _pod(evidence), *_words(evidence)]
        case JobEvidence():
            here = evidence.state or "unknown here"
            said = [f"{here} for {_age(evidence.since)}", f"runner {evidence.executor}"]
            if evidence.word is not JobWord.NOT_ASKED:
                said.append(f"at GitHub {evidence.word}")
    return ", ".join(filter(None, said))


def _age(seconds: float) -> str:
    return duration(round(seconds) if seconds < 600 else round(seconds / 60) * 60.0)


def _pod(e: Evidence | PodEvidence) -> str:
    pod = e.pod
    if pod.sighting is not Sighting.PRESENT:
        return f"its Pod {pod.sighting}" + (
            f" in {pod.absent_reads} reads" if pod.absent_reads else ""
        )
    said = "its Pod ended" if pod.terminal else f"its container {pod.runner}"
    said += f", up {_age(pod.up)}" if pod.up is not None else ""
    return said + (f", unschedulable: {pod.unschedulable}" if pod.unschedulable else "")


def _record_words(e: Evidence | EndedEvidence | PodEvidence) -> str:
    return "" if e.record is RecordWord.NOT_ASKED else f"at GitHub {e.record}"


def _words(e: Evidence | PodEvidence) -> list[str]:
    return [_record_words(e), "" if e.log is LogWord.NOT_READ else f"its log: {e.log}"]


def _hint(e: Evidence | EndedEvidence) -> list[str]:
    return [] if e.hinted is JobWord.NOT_ASKED else [f"its job {e.hinted} on {e.hinted_on}"]
