"""The rules for runners that ended without a reported job.

A job shorter than its webhooks' delay was done all the same: nothing is concluded from silence (I68).
"""

from __future__ import annotations

from typing import Final

from paddock.domain.evidence import EndedEvidence, RecordWord, Subject
from paddock.domain.readings import further, hinted
from paddock.domain.rule import HINTED_JOB_IS_NOT_HERE, Action, Rule, record_is
from paddock.domain.thresholds import Thresholds


def _verdict_is_open(e: EndedEvidence, t: Thresholds) -> bool:
    return not e.settled and t.echo <= e.since < t.verdict


ENDED_RULES: Final[tuple[Rule[EndedEvidence], ...]] = (
    Rule(
        name="ran-after-all",
        subject=Subject.ENDED,
        seen="The job it was claimed for has gone further at GitHub than here",
        done="Apply what GitHub says of the job; its verdict follows",
        action=Action.APPLY,
        holds=lambda e, t: further(hinted(e, t), e.hint),
        invariants=("I23", "I68"),
    ),
    Rule(
        name="exit-without-job",
        subject=Subject.ENDED,
        seen="It ended {echo} ago (and less than {verdict}) without a reported job, and GitHub still "
        "has its record, which a job would have removed",
        done="Its verdict is `never-ran`",
        action=Action.REFINE,
        holds=lambda e, t: _verdict_is_open(e, t) and not e.says_it_had_a_job,
        needs=(record_is(RecordWord.OFFLINE, RecordWord.IDLE),),
        invariants=("I39", "I68"),
    ),
    Rule(
        name="ended-unexplained",
        subject=Subject.ENDED,
        seen="It ended {echo} ago (and less than {verdict}) without a reported job, and the job it was "
        "claimed for is not on it",
        done="Leave its verdict open",
        action=Action.LEAVE,
        holds=_verdict_is_open,
        needs=(HINTED_JOB_IS_NOT_HERE,),
        invariants=("I68",),
    ),
)
