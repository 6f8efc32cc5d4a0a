"""A runner that is online for long and gets no job, though its key has demand.

**What stuck means.** It counts as supply for a job that GitHub does not give it.

**How it should go.** GitHub assigns a job within seconds of the runner's coming online.

**How it goes wrong.** The runner group does not let the repository use it, or GitHub's assignment has
lost it.

**What paddock does.** It fences the runner and retires it. The job then waits before it gets another
one (`domain.github.backoffs.NOT_ASSIGNED`), or its key backs off after three such ends (I69).

**Why this threshold.** GitHub assigns within seconds, and its assignment service was seen to be late
by a minute. 15 minutes is beyond every delay that was seen.

**Why it cannot hurt a live job.** GitHub must call it online and idle, and its log must show no job.

**What it does not cover.** Why GitHub does not assign: `unassigned_job`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import MINUTE, seconds
from paddock.domain.recovery.evidence import Evidence, RecordWord, Subject
from paddock.domain.recovery.predicates import at_work_for
from paddock.domain.recovery.required_answers import LOG_SHOWS_NO_JOB, record_is
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired

NO_JOB_DEFAULT: Final = seconds(
    15 * MINUTE,
    "GitHub assigns within seconds; a runner it gives nothing for this long is not going to "
    "get the job that waits",
)

NO_JOB_IN_TIME: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="no-job-in-time",
    subject=Subject.RUNNER,
    seen="It has been up for {no_job}, is online, and got no job",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, t: at_work_for(e, t.no_job),
    needs=(record_is(RecordWord.IDLE), LOG_SHOWS_NO_JOB),
    retired=Retired.GIVEN_UP,
    invariants=("I24",),
)
