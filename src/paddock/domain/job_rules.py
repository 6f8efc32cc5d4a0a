"""The rules for jobs: what GitHub knows better, and what nobody will ever end.

`queued` has a hard end; `in_progress` is never ended by us, however old it is (I37). The one exception:
its repository is proven to be deleted and no runner of ours executes it. Then no one can be asked about
it any more, and GitHub has ended it with the repository.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.evidence import Executor, JobEvidence, JobWord, Subject
from paddock.domain.readings import further, word
from paddock.domain.rule import Action, Rule, job_is
from paddock.domain.states import JobState
from paddock.domain.thresholds import Thresholds


def _long_unasked(e: JobEvidence, t: Thresholds) -> bool:
    return e.since >= t.in_progress and (e.word is JobWord.NOT_ASKED or e.word_age >= t.in_progress)


def _queued(e: JobEvidence) -> bool:
    return e.state is JobState.QUEUED


def _still_waiting(e: JobEvidence, t: Thresholds) -> bool:
    """For somebody's approval; a run that waits is in none of GitHub's lists of those at work."""
    unasked = e.word is JobWord.NOT_ASKED or e.word_age >= t.unheard
    return e.state is JobState.WAITING and e.since >= t.unheard and unasked


JOB_RULES: Final[tuple[Rule[JobEvidence], ...]] = (
    Rule(
        name="missed-completion",
        subject=Subject.JOB,
        seen="It is completed at GitHub and not here",
        done="Apply it",
        action=Action.APPLY,
        holds=lambda e, t: word(e, t) is JobWord.COMPLETED and further(JobWord.COMPLETED, e.state),
        invariants=("I28",),
    ),
    Rule(
        name="job-unknown",
        subject=Subject.JOB,
        seen="GitHub has it, not completed, and it has no row here",
        done="Insert it",
        action=Action.INSERT,
        holds=lambda e, t: (
            e.state is None and word(e, t) in (JobWord.WAITING, JobWord.QUEUED, JobWord.IN_PROGRESS)
        ),
        invariants=("I8",),
    ),
    Rule(
        name="missed-start",
        subject=Subject.JOB,
        seen="It has gone further at GitHub than here",
        done="Apply it",
        action=Action.APPLY,
        holds=lambda e, t: further(word(e, t), e.state),
        invariants=("I28",),
    ),
    Rule(
        name="runner-lost",
        subject=Subject.JOB,
        seen="It is in_progress here, its runner is gone, and GitHub says that it is queued",
        done="It is queued again",
        action=Action.DEMOTE,
        holds=lambda e, _: e.state is JobState.IN_PROGRESS and e.executor is Executor.GONE,
        needs=(job_is(JobWord.QUEUED),),
        invariants=("I37",),
    ),
    Rule(
        name="given-back",
        subject=Subject.JOB,
        seen="It has been in_progress for {unheard} on a runner that has no row here, and GitHub "
        "said {refusals} times that it is queued",
        done="It is queued again",
        action=Action.DEMOTE,
        holds=lambda e, t: (
            e.state is JobState.IN_PROGRESS
            and e.executor in (Executor.NONE, Executor.FOREIGN)
            and e.since >= t.unheard
        ),
        needs=(job_is(JobWord.QUEUED, times=lambda t: t.refusals),),
        invariants=("I37",),
    ),
    Rule(
        name="repository-deleted",
        subject=Subject.JOB,
        seen="It is in_progress here and on no runner of ours that lives, and {absent_reads} times in "
        "a row GitHub did not know its repository, while it listed what the installation can read",
        done="Complete it as stale: no one can be asked about it any more",
        action=Action.STALE,
        holds=lambda e, _: (
            e.state is JobState.IN_PROGRESS
            and e.executor is not Executor.ALIVE
            and e.word is JobWord.REPOSITORY_GONE
        ),
        needs=(job_is(JobWord.REPOSITORY_GONE, times=lambda t: t.absent_reads),),
        invariants=("I29", "I37", "I66"),
    ),
    Rule(
        name="missed-completion-perhaps",
        subject=Subject.JOB,
        seen="It has been in_progress for {in_progress}, and GitHub was not asked for as long",
        done="Leave it: in_progress is never ended by age",
        action=Action.LEAVE,
        holds=lambda e, t: e.state is JobState.IN_PROGRESS and _long_unasked(e, t),
        needs=(job_is(JobWord.IN_PROGRESS),),
        invariants=("I27", "I37"),
    ),
    Rule(
        name="still-waiting",
        subject=Subject.JOB,
        seen="It has waited for an approval for {unheard}, and GitHub was not asked for as long",
        done="Leave it: an approval may take days",
        action=Action.LEAVE,
        holds=_still_waiting,
        needs=(job_is(JobWord.WAITING),),
        invariants=("I12", "I28"),
    ),
    Rule(
        name="job-expired",
        subject=Subject.JOB,
        seen="It was queued {job_expired} ago, and GitHub does not know it any more",
        done="Complete it as stale",
        action=Action.STALE,
        holds=lambda e, t: _queued(e) and e.queued >= t.job_expired,
        needs=(job_is(JobWord.ABSENT, JobWord.REPOSITORY_GONE),),
        invariants=("I37", "I66"),
    ),
    Rule(
        name="job-end",
        subject=Subject.JOB,
        seen="It was queued {job_end} ago, which is longer than GitHub keeps any, and GitHub does not "
        "say that it was given to a runner",
        done="Complete it as stale",
        action=Action.STALE,
        holds=lambda e, t: _queued(e) and e.queued >= t.job_end,
        needs=(job_is(JobWord.WAITING, JobWord.QUEUED, JobWord.UNREADABLE),),
        invariants=("I37",),
    ),
    Rule(
        name="job-deleted",
        subject=Subject.JOB,
        seen="It has not begun here, and {absent_reads} times in a row GitHub did not know it, or its "
        "repository",
        done="Complete it as stale",
        action=Action.STALE,
        holds=lambda e, _: (
            e.state in (JobState.WAITING, JobState.QUEUED)
            and e.word in (JobWord.ABSENT, JobWord.REPOSITORY_GONE, JobWord.UNREADABLE)
        ),
        needs=(job_is(JobWord.ABSENT, JobWord.REPOSITORY_GONE, times=lambda t: t.absent_reads),),
        invariants=("I29", "I66"),
    ),
    Rule(
        name="stale-queued",
        subject=Subject.JOB,
        seen="A runner claimed for it ended without a reported job, and GitHub says that it is queued",
        done="Serve it again: the ended runner no longer counts as supply",
        action=Action.SERVE,
        holds=lambda e, _: _queued(e) and e.echo,
        needs=(job_is(JobWord.QUEUED, JobWord.WAITING),),
        invariants=("I31", "I68"),
    ),
    Rule(
        name="unassigned",
        subject=Subject.JOB,
        seen="A runner for it has been online without a job for {unassigned}, and GitHub said "
        "{refusals} times that it is queued",
        done="Write down that GitHub does not assign it: see the runner group and who may use it",
        action=Action.EXPLAIN,
        holds=lambda e, t: (
            _queued(e)
            and not e.explained
            and e.idle_beside is not None
            and e.idle_beside >= t.unassigned
        ),
        needs=(job_is(JobWord.QUEUED, times=lambda t: t.refusals),),
        invariants=("I51",),
    ),
    Rule(
        name="waits-beside-supply",
        subject=Subject.JOB,
        seen="It has waited for {unassigned} although there is supply, and GitHub says that it is "
        "queued",
        done="Leave it: what comes next is decided by what becomes of the supply",
        action=Action.LEAVE,
        holds=lambda e, t: _queued(e) and e.supply and e.since >= t.unassigned,
        needs=(job_is(JobWord.QUEUED, JobWord.WAITING),),
        invariants=("I28",),
    ),
)
