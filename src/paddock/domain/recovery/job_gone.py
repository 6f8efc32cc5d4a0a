"""A job that GitHub does not know any more.

**What stuck means.** It is open in the database. If queued it asks for a runner for ever; if in
progress it is shown as running for ever.

**How it should go.** GitHub reports the end of every job.

**How it goes wrong.** Its run or its repository was deleted: no webhook tells that of its jobs.

**What paddock does.** It completes the job as stale. `job-deleted`: a job that has not begun.
`repository-deleted`: a job in progress, the one exception to I37, as GitHub has ended it together
with its repository.

**Why this threshold.** `absent_reads`, 3 times in a row: one answer may be an error of GitHub's.

**Why it cannot hurt a live job.** Absence must be proven: by a control read of the same scope, or by
the installation's own list of repositories (I66). A job on a runner of ours that lives is left alone.

**What it does not cover.** A job that GitHub knows and never assigns: `expired_job`,
`unassigned_job`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import JobAction
from paddock.domain.recovery.evidence import ExecutorState, JobEvidence, JobWord, Subject
from paddock.domain.recovery.required_answers import job_is
from paddock.domain.recovery.rule import Rule
from paddock.domain.states import JobState

REPOSITORY_DELETED: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="repository-deleted",
    subject=Subject.JOB,
    seen="It is in_progress here and on no runner of ours that lives, and {absent_reads} times in "
    "a row GitHub did not know its repository, while it listed what the installation can read",
    done="Complete it as stale: it can never be asked about again",
    action=JobAction.STALE,
    holds=lambda e, _: (
        e.state is JobState.IN_PROGRESS
        and e.executor is not ExecutorState.ALIVE
        and e.word is JobWord.REPOSITORY_GONE
    ),
    needs=(job_is(JobWord.REPOSITORY_GONE, times=lambda t: t.absent_reads),),
    invariants=("I29", "I37", "I66"),
)

JOB_DELETED: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="job-deleted",
    subject=Subject.JOB,
    seen="It has not begun here, and {absent_reads} times in a row GitHub did not know it, or its "
    "repository",
    done="Complete it as stale",
    action=JobAction.STALE,
    holds=lambda e, _: (
        e.state in (JobState.WAITING, JobState.QUEUED)
        and e.word in (JobWord.ABSENT, JobWord.REPOSITORY_GONE, JobWord.UNREADABLE)
    ),
    needs=(job_is(JobWord.ABSENT, JobWord.REPOSITORY_GONE, times=lambda t: t.absent_reads),),
    invariants=("I29", "I66"),
)
