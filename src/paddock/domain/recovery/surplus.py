"""A runner that is online while its key has more supply than demand.

**What stuck means.** Nothing is broken: its job was cancelled, or went to another runner. It holds a
place of its account.

**How it should go.** The key's next job comes soon, and this runner serves it at once.

**How it goes wrong.** No further job comes.

**What paddock does.** It fences as many runners as exceed the demand, and retires them.

**Why this threshold.** A key that had a job a moment ago is likely to have the next: 3 minutes keep a
runner ready that is already online, and are short beside a job.

**Why it cannot hurt a live job.** GitHub must call it online and idle, and its log must show no job;
GitHub then removes the registration before the Pod is deleted, and refuses if a job came meanwhile.

**What it does not cover.** An online runner whose key has demand: `no_job_in_time`, `unassigned_job`.
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

SURPLUS_DEFAULT: Final = seconds(
    3 * MINUTE,
    "a key that had a job a moment ago is likely to have the next, and a runner that is online "
    "serves it at once",
)

SURPLUS: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="surplus",
    subject=Subject.RUNNER,
    seen="It has been up for {surplus}, is online without a job, and its key has more supply than "
    "demand",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, t: e.surplus and at_work_for(e, t.surplus),
    needs=(record_is(RecordWord.IDLE), LOG_SHOWS_NO_JOB),
    retired=Retired.SURPLUS,
    invariants=("I24",),
    routine=True,
)
