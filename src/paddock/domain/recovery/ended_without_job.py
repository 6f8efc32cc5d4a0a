"""A runner that ended, and no job of it was reported.

**What stuck means.** Its verdict is open: it may have run a job whose webhooks are on their way, or
none. Until GitHub was asked it counts as supply, so that the job is not run twice (I68).

**How it should go.** `in_progress` and `completed` arrive within seconds of the end.

**How it goes wrong.** Webhooks are late or lost, or no job was ever on the runner: cancelled before
its start, or GitHub refused the runner.

**What paddock does.** `ran-after-all` applies what GitHub says of the hinted job. `exit-without-job`
writes the verdict `never-ran`: GitHub still has the runner's record, which a job would have removed.
`ended-unexplained` leaves the verdict open.

**Why these thresholds.** `supply_grace`, 2 minutes: webhooks of a job that is shorter than their delay
arrive within this. `verdict`, 1 hour: what GitHub has not said by then it does not say at all.

**Why it cannot hurt a live job.** The runner is gone. Only its verdict changes.

**What it does not cover.** Serving the job again: `stale_queued`. A runner whose exit code says that
it had a job keeps that verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from paddock.domain.recovery.actions import EndedAction, NoAction
from paddock.domain.recovery.durations import HOUR, MINUTE, seconds
from paddock.domain.recovery.evidence import EndedEvidence, RecordWord, Subject
from paddock.domain.recovery.predicates import github_is_ahead, hinted_job_answer
from paddock.domain.recovery.required_answers import HINTED_JOB_IS_NOT_HERE, record_is
from paddock.domain.recovery.rule import Rule

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds

SUPPLY_GRACE_DEFAULT: Final = seconds(
    2 * MINUTE,
    "webhooks of a job shorter than their delay arrive within this; until then the runner that "
    "ended may have done the job",
)
VERDICT_DEFAULT: Final = seconds(
    HOUR, "what GitHub has not said of a runner that ended an hour ago it will not say at all"
)


def _verdict_is_open(e: EndedEvidence, t: Thresholds) -> bool:
    return not e.settled and t.supply_grace <= e.since < t.verdict


RAN_AFTER_ALL: Final[Rule[EndedEvidence, EndedAction]] = Rule(
    name="ran-after-all",
    subject=Subject.ENDED,
    seen="The job it was claimed for has gone further at GitHub than here",
    done="Apply what GitHub says of the job; its verdict follows",
    action=EndedAction.APPLY,
    holds=lambda e, t: github_is_ahead(hinted_job_answer(e, t), e.hint),
    invariants=("I23", "I68"),
)

EXIT_WITHOUT_JOB: Final[Rule[EndedEvidence, EndedAction]] = Rule(
    name="exit-without-job",
    subject=Subject.ENDED,
    seen="It ended {supply_grace} ago (and less than {verdict}) without a reported job, and GitHub "
    "still has its record, which a job would have removed",
    done="Its verdict is `never-ran`",
    action=EndedAction.REFINE,
    holds=lambda e, t: _verdict_is_open(e, t) and not e.says_it_had_a_job,
    needs=(record_is(RecordWord.OFFLINE, RecordWord.IDLE),),
    invariants=("I39", "I68"),
)

ENDED_UNEXPLAINED: Final[Rule[EndedEvidence, EndedAction]] = Rule(
    name="ended-unexplained",
    subject=Subject.ENDED,
    seen="It ended {supply_grace} ago (and less than {verdict}) without a reported job, and the job it "
    "was claimed for is not on it",
    done="Leave its verdict open",
    action=NoAction.LEAVE,
    holds=_verdict_is_open,
    needs=(HINTED_JOB_IS_NOT_HERE,),
    invariants=("I68",),
)
