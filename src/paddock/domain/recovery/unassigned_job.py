"""A job that GitHub does not assign, though a runner for it is there.

**What stuck means.** The job waits beside supply: no further runner is given out for it.

**How it should go.** GitHub assigns a job within seconds of a runner's coming online.

**How it goes wrong.** The runner group does not let the repository use it, a label differs, or
GitHub's assignment is slow.

**What paddock does.** `unassigned` writes the reason to the job, where `paddock why` and the
dashboard show it. `waits-beside-supply` asks GitHub about a job that waits while supply exists, and
leaves it: the supply decides.

**Why these thresholds.** `unassigned`, 60 s: GitHub's assignment service had delays of most of a
minute. `refusals`, 2 answers in a row: the first may have been just before the job's start.

**Why it cannot hurt a live job.** Only a sentence is written.

**What it does not cover.** The runner that gets nothing: `no_job_in_time`. Its key's back-off:
`domain.github.backoffs.NOT_ASSIGNED`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import JobAction, NoAction
from paddock.domain.recovery.durations import seconds, times
from paddock.domain.recovery.evidence import JobEvidence, JobWord, Subject
from paddock.domain.recovery.required_answers import job_is
from paddock.domain.recovery.rule import Rule
from paddock.domain.states import JobState

UNASSIGNED_DEFAULT: Final = seconds(
    60.0, "GitHub assigns within seconds; its assignment service had delays of most of a minute"
)
REFUSALS_DEFAULT: Final = times(
    2, "answers in a row that the job is queued: the first may have been just before its start"
)

UNASSIGNED: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="unassigned",
    subject=Subject.JOB,
    seen="A runner for it has been online without a job for {unassigned}, and GitHub said "
    "{refusals} times that it is queued",
    done="Write down that GitHub does not assign it: see the runner group and who may use it",
    action=JobAction.EXPLAIN,
    holds=lambda e, t: (
        e.state is JobState.QUEUED
        and not e.explained
        and e.idle_beside is not None
        and e.idle_beside >= t.unassigned
    ),
    needs=(job_is(JobWord.QUEUED, times=lambda t: t.refusals),),
    invariants=("I51",),
)

WAITS_BESIDE_SUPPLY: Final[Rule[JobEvidence, JobAction]] = Rule(
    name="waits-beside-supply",
    subject=Subject.JOB,
    seen="It has waited for {unassigned} although there is supply, and GitHub says that it is "
    "queued",
    done="Leave it: what comes next is decided by what becomes of the supply",
    action=NoAction.LEAVE,
    holds=lambda e, t: e.state is JobState.QUEUED and e.supply and e.since >= t.unassigned,
    needs=(job_is(JobWord.QUEUED, JobWord.WAITING),),
    invariants=("I28",),
)
