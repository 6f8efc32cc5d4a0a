"""What recovery does, as one table.

Systems of this kind had a sweep for every kind of leak, and each new one knew less than the last: one
deleted live Pods because they bore a label and had no claim. Here every rule stands in `RULES`, in
order of the strength of its evidence, and `diagnose` lets the first that holds decide. It is pure, it
answers for every value there is, and what no rule holds for is left alone.

Where what lies at hand raises a suspicion but settles nothing, a rule needs answers: from GitHub on the
runner or its job, from the runner's own log. While one is missing the verdict is to ask for it. So
nobody is asked about what nobody suspects; and a question without an answer settles nothing.

No rule ends a Pod that lives. The most that one does is to fence it; what follows (`recovery.retire`)
has GitHub remove the runner first and looks twice for a job. And nothing is fenced that may have run
unless GitHub says that it is not busy and its own log shows no job, or its job has completed: the
order of the table makes that so, and a test goes through all there is.
"""

from __future__ import annotations

from typing import Any, Final

from paddock.domain.ended_rules import ENDED_RULES
from paddock.domain.evidence import (
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
from paddock.domain.job_rules import JOB_RULES
from paddock.domain.pod_rules import POD_RULES
from paddock.domain.rule import Action, Question, Rule, Verdict
from paddock.domain.runner_rules import RUNNER_RULES
from paddock.domain.thresholds import Thresholds, duration

__all__ = ["RULES", "Action", "Question", "Rule", "Verdict", "decide", "diagnose", "facts"]

#: The whole table. The first rule that holds for its subject decides.
RULES: Final[tuple[Rule[Any], ...]] = (*RUNNER_RULES, *ENDED_RULES, *POD_RULES, *JOB_RULES)

_OF: Final[dict[Subject, tuple[Rule[Any], ...]]] = {
    subject: tuple(rule for rule in RULES if rule.subject is subject) for subject in Subject
}

_NOTHING: Final = Verdict(action=Action.LEAVE, rule=None, why="Nothing is wrong with it.")


def diagnose(evidence: AnyEvidence, thresholds: Thresholds) -> Verdict:
    """The first rule that holds decides. One that lacks an answer asks for it; one whose answer is not
    what it needs is passed over."""
    rule, question = decide(evidence, thresholds)
    if rule is None:
        return _NOTHING
    action = rule.action if question is None else Action.ASK
    return Verdict(
        action=action,
        rule=rule.name,
        why=f"{rule.seen_with(thresholds)} ({facts(evidence)}).",
        question=question,
        retired=rule.retired if action is Action.FENCE else None,
    )


def decide(
    evidence: AnyEvidence, thresholds: Thresholds
) -> tuple[Rule[Any] | None, Question | None]:
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
