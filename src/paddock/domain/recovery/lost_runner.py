"""A job that is in progress in the database and queued again at GitHub.

**What stuck means.** The job counts as running, so no runner is given out for it.

**How it should go.** A job that began stays on its runner until it completes.

**How it goes wrong.** Its runner died, and GitHub put the job back into the queue; or GitHub took it
back from a runner that is not ours.

**What paddock does.** It sets the job to `queued`: the only lowering of a job's state that exists.

**Why these thresholds.** `runner-lost` has none: its runner is gone. `given-back` waits for `unheard`
(15 minutes) and for `refusals` equal answers, as no runner of ours proves the end.

**Why it cannot hurt a live job.** It requires GitHub's answer that the job is queued. If it runs all
the same, the cost is one runner too many.

**What it does not cover.** A job whose runner is gone and that GitHub still calls in progress: it
stays so until GitHub ends it (I37).
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import JobAction
from paddock.domain.recovery.evidence import ExecutorState, JobEvidence, JobWord, Subject
from paddock.domain.recovery.required_answers import job_is
from paddock.domain.recovery.rule import Rule
from paddock.domain.states import JobState

RUNNER_LOST: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="runner-lost",
    subject=Subject.JOB,
    seen="It is in_progress here, its runner is gone, and GitHub says that it is queued",
    done="It is queued again",
    action=JobAction.DEMOTE,
    holds=lambda e, _: e.state is JobState.IN_PROGRESS and e.executor is ExecutorState.GONE,
    needs=(job_is(JobWord.QUEUED),),
    invariants=("I37",),
)

GIVEN_BACK: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="given-back",
    subject=Subject.JOB,
    seen="It has been in_progress for {unheard} on a runner that has no row here, and GitHub "
    "said {refusals} times that it is queued",
    done="It is queued again",
    action=JobAction.DEMOTE,
    holds=lambda e, t: (
        e.state is JobState.IN_PROGRESS
        and e.executor in (ExecutorState.NONE, ExecutorState.FOREIGN)
        and e.since >= t.unheard
    ),
    needs=(job_is(JobWord.QUEUED, times=lambda t: t.refusals),),
    invariants=("I37",),
)
