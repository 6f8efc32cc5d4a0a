"""A runner that is up while GitHub has no record of it.

**What stuck means.** Without a record it can never get a job. It would listen for ever (I38).

**How it should go.** GitHub removes a runner's record when its job completes, and the runner exits
within seconds.

**How it goes wrong.** Its record was deleted while it had no job, or it hangs after its job and the
webhooks of that job were lost.

**What paddock does.** It fences the runner and retires it.

**Why this threshold.** 2 minutes: after its job a runner exits within seconds, and the webhook is
rarely later than this.

**Why it cannot hurt a live job.** The record's absence must be proven by a control read with the same
token in the same round (I66). Its log must show no job, and the job it was claimed for must not be on
it (I68).

**What it does not cover.** A busy runner without a record: `record-removed` in `forced_end`.
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

ZOMBIE_DEFAULT: Final = seconds(
    2 * MINUTE,
    "GitHub removes a runner's record when its job completes: the runner then exits within "
    "seconds, and the webhook is rarely later than this",
)

ZOMBIE: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="zombie",
    subject=Subject.RUNNER,
    seen="It has been up for {zombie}, GitHub has no record of it, its log shows no job, and the "
    "job it was claimed for is not on it",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, t: at_work_for(e, t.zombie),
    needs=(record_is(RecordWord.ABSENT), LOG_SHOWS_NO_JOB, HINTED_JOB_IS_NOT_HERE),
    retired=Retired.GIVEN_UP,
    invariants=("I38", "I66", "I68"),
)
