"""A job that waits for a runner that has ended.

**What stuck means.** A runner was claimed for the job and ended without a reported job. It counts as
supply for up to `supply_grace` (2 minutes), as its job may have been done (I68); so this job gets no
other runner.

**How it should go.** The webhooks of the ended runner's job arrive, and settle it.

**How it goes wrong.** The runner ended before it got any job.

**What paddock does.** It asks GitHub about the job at once. If it is still queued, the ended runner
stops counting as supply, and the next match serves the job.

**Why there is no threshold.** The question costs one request, and the job's owner waits.

**Why it cannot hurt a live job.** It requires GitHub's answer that the job is queued or waits for an
approval.

**What it does not cover.** What becomes of the ended runner's verdict: `ended_without_job`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import JobAction
from paddock.domain.recovery.evidence import JobEvidence, JobWord, Subject
from paddock.domain.recovery.required_answers import job_is
from paddock.domain.recovery.rule import Rule
from paddock.domain.states import JobState

STALE_QUEUED: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="stale-queued",
    subject=Subject.JOB,
    seen="A runner claimed for it ended without a reported job, and GitHub says that it is queued",
    done="Serve it again: the ended runner no longer counts as supply",
    action=JobAction.SERVE,
    holds=lambda e, _: e.state is JobState.QUEUED and e.supply_grace,
    needs=(job_is(JobWord.QUEUED, JobWord.WAITING),),
    invariants=("I31", "I68"),
)
