"""A job that has gone further at GitHub than in the database.

**What stuck means.** The database shows a job as waiting, queued or in progress, or does not know it;
GitHub knows better. A job that only GitHub knows gets no runner, and one that is over holds its
runner as `busy`.

**How it should go.** GitHub sends a webhook for each step, and it is applied within a second.

**How it goes wrong.** GitHub does not send it, or paddock was down for longer than GitHub's
redelivery reaches.

**What paddock does.** `missed-completion`, `missed-start` and `job-unknown` apply what GitHub said
when it was asked for another reason. `hint-moved-on` does the same for the job that a runner was
claimed for. Two rules only ask, now and then: `missed-completion-perhaps` about long jobs,
`still-waiting` about approvals.

**Why these thresholds.** `in_progress`, 1 hour: few jobs take longer, and a lost completion is found
by asking. `unheard`, 15 minutes: for jobs about which no runner of ours tells anything; a hundred of
them cost 400 requests an hour.

**Why it cannot hurt a live job.** States only rise, as GitHub says. A job in progress is never ended
by age (I37).

**What it does not cover.** A job that GitHub moved back to queued: `lost_runner`. A job that GitHub
no longer knows: `job_gone`, `expired_job`. Comparing whole repositories:
`paddock.dispatch.comparison`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from paddock.domain.recovery.actions import JobAction, NoAction, RunnerAction
from paddock.domain.recovery.durations import HOUR, MINUTE, seconds
from paddock.domain.recovery.evidence import Evidence, JobEvidence, JobWord, Subject
from paddock.domain.recovery.predicates import github_is_ahead, hinted_job_answer, job_answer
from paddock.domain.recovery.required_answers import job_is
from paddock.domain.recovery.rule import Rule
from paddock.domain.states import JobState

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds

IN_PROGRESS_DEFAULT: Final = seconds(
    HOUR, "a completion that was lost is found by asking; few jobs run for longer"
)
UNHEARD_DEFAULT: Final = seconds(
    15 * MINUTE,
    "how often a job is asked for of which nothing here would tell: one that waits for an "
    "approval, or is on a runner that is not ours; a hundred of them cost 400 requests an hour",
)


def _long_unasked(e: JobEvidence, t: Thresholds) -> bool:
    return e.since >= t.in_progress and (e.word is JobWord.NOT_ASKED or e.word_age >= t.in_progress)


def _still_waiting(e: JobEvidence, t: Thresholds) -> bool:
    """For an approval; a run that waits is in none of GitHub's lists of those at work."""
    unasked = e.word is JobWord.NOT_ASKED or e.word_age >= t.unheard
    return e.state is JobState.WAITING and e.since >= t.unheard and unasked


HINT_MOVED_ON: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="hint-moved-on",
    subject=Subject.RUNNER,
    seen="The job it was claimed for has gone further at GitHub than here",
    done="Apply what GitHub says of the job",
    action=RunnerAction.APPLY,
    holds=lambda e, t: github_is_ahead(hinted_job_answer(e, t), e.hint),
    invariants=("I23",),
)

MISSED_COMPLETION: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="missed-completion",
    subject=Subject.JOB,
    seen="It is completed at GitHub and not here",
    done="Apply it",
    action=JobAction.APPLY,
    holds=lambda e, t: (
        job_answer(e, t) is JobWord.COMPLETED and github_is_ahead(JobWord.COMPLETED, e.state)
    ),
    invariants=("I28",),
)

JOB_UNKNOWN: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="job-unknown",
    subject=Subject.JOB,
    seen="GitHub has it, not completed, and it has no row here",
    done="Insert it",
    action=JobAction.INSERT,
    holds=lambda e, t: (
        e.state is None
        and job_answer(e, t) in (JobWord.WAITING, JobWord.QUEUED, JobWord.IN_PROGRESS)
    ),
    invariants=("I8",),
)

MISSED_START: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="missed-start",
    subject=Subject.JOB,
    seen="It has gone further at GitHub than here",
    done="Apply it",
    action=JobAction.APPLY,
    holds=lambda e, t: github_is_ahead(job_answer(e, t), e.state),
    invariants=("I28",),
)

MISSED_COMPLETION_PERHAPS: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="missed-completion-perhaps",
    subject=Subject.JOB,
    seen="It has been in_progress for {in_progress}, and GitHub was not asked for as long",
    done="Leave it: in_progress is never ended by age",
    action=NoAction.LEAVE,
    holds=lambda e, t: e.state is JobState.IN_PROGRESS and _long_unasked(e, t),
    needs=(job_is(JobWord.IN_PROGRESS),),
    invariants=("I27", "I37"),
)

STILL_WAITING: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="still-waiting",
    subject=Subject.JOB,
    seen="It has waited for an approval for {unheard}, and GitHub was not asked for as long",
    done="Leave it: an approval may take days",
    action=NoAction.LEAVE,
    holds=_still_waiting,
    needs=(job_is(JobWord.WAITING),),
    invariants=("I12", "I28"),
)
