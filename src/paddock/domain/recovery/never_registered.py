"""A runner that is up and never came online at GitHub.

**What stuck means.** The container runs, and GitHub calls the runner offline: it gets no job.

**How it should go.** A runner is online about ten seconds after its start.

**How it goes wrong.** The container cannot reach GitHub (proxy, DNS, certificates), the runner
program hangs, or GitHub was down at the moment of its start.

**What paddock does.** `suspect` has replaced it since its first minute. This rule fences it and
retires it. Its verdict says that it never registered.

**Why this threshold.** No runner that registered later than 5 minutes was ever seen.

**Why it cannot hurt a live job.** Three answers are required: GitHub calls it offline, its own log
shows no job, and the job it was claimed for is not on it (S2's table). A job in progress whose runner
GitHub does not name may be on this one, and stops the rule.

**What it does not cover.** A record that is missing: `zombie`. A runner that was online: `surplus`,
`no_job_in_time`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import MINUTE, seconds
from paddock.domain.recovery.evidence import Evidence, RecordWord, Subject
from paddock.domain.recovery.predicates import at_work_for
from paddock.domain.recovery.required_answers import (
    HINTED_JOB_IS_NOT_HERE,
    LOG_SHOWS_NO_JOB,
    record_is,
)
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired

NEVER_REGISTERED_DEFAULT: Final = seconds(
    5 * MINUTE,
    "nothing that registers later than this was ever seen, and it has been replaced since its "
    "first minute",
)

NEVER_REGISTERED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="never-registered",
    subject=Subject.RUNNER,
    seen="It has been up for {never_registered}, GitHub calls it offline, its log shows no job, "
    "and the job it was claimed for is not on it",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, t: at_work_for(e, t.never_registered),
    needs=(record_is(RecordWord.OFFLINE), LOG_SHOWS_NO_JOB, HINTED_JOB_IS_NOT_HERE),
    retired=Retired.GIVEN_UP,
    invariants=("I24", "I31"),
    unregistered=True,
)
