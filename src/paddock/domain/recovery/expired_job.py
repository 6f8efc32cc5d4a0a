"""A job that has been queued for longer than GitHub keeps one.

**What stuck means.** It asks for a runner, and GitHub will give it to none.

**How it should go.** GitHub cancels a job that was queued for 24 hours, and reports that.

**How it goes wrong.** The report is lost, and GitHub forgets the job or gives no answer.

**What paddock does.** It completes the job as stale.

**Why these thresholds.** `job_expired`, 24 h: GitHub's own limit, if GitHub does not know the job any
more. `job_end`, 48 h: if GitHub still says queued, or gives no answer; its cancellation is never
later. Both count from when the job became queued, not from its creation (I76).

**Why it cannot hurt a live job.** Being queued has an end, being in progress has none (I37): only
queued jobs are completed here, and not if GitHub says that a runner has it.

**What it does not cover.** Jobs that were deleted at GitHub: `job_gone`, within minutes.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.jobs.facts import LONGEST_QUEUED
from paddock.domain.recovery.actions import JobAction
from paddock.domain.recovery.durations import HOUR, seconds
from paddock.domain.recovery.evidence import JobEvidence, JobWord, Subject
from paddock.domain.recovery.required_answers import job_is
from paddock.domain.recovery.rule import Rule
from paddock.domain.states import JobState

JOB_EXPIRED_DEFAULT: Final = seconds(
    LONGEST_QUEUED.total_seconds(),
    "GitHub cancels a job that was queued for a day; then it may not know it any more",
)
JOB_END_DEFAULT: Final = seconds(
    48 * HOUR, "GitHub's cancellation may be this late, and is never later"
)

JOB_EXPIRED: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="job-expired",
    subject=Subject.JOB,
    seen="It was queued {job_expired} ago, and GitHub does not know it any more",
    done="Complete it as stale",
    action=JobAction.STALE,
    holds=lambda e, t: e.state is JobState.QUEUED and e.queued >= t.job_expired,
    needs=(job_is(JobWord.ABSENT, JobWord.REPOSITORY_GONE),),
    invariants=("I37", "I66"),
)

JOB_END: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="job-end",
    subject=Subject.JOB,
    seen="It was queued {job_end} ago, which is longer than GitHub keeps any, and GitHub does not "
    "say that it was given to a runner",
    done="Complete it as stale",
    action=JobAction.STALE,
    holds=lambda e, t: e.state is JobState.QUEUED and e.queued >= t.job_end,
    needs=(job_is(JobWord.WAITING, JobWord.QUEUED, JobWord.UNREADABLE),),
    invariants=("I37",),
)
