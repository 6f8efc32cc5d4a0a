"""A JIT that waits for its Pod.

**What stuck means.** The row is `armed`: the JIT is stored, the runner counts as supply, and the Pod
does not fetch it.

**How it should go.** The poller's request is open while the mint runs, and gets the JIT as its
answer; if the answer is lost it asks again within seconds and gets the same.

**How it goes wrong.** The poller died, or its node was cut off, between the claim and the answer; or
it has the JIT and its acknowledgement was lost.

**What paddock does.** It fences the runner and retires it. Its key's supply falls by one, and the
next match serves the job.

**Why this threshold.** A Pod that waits for its JIT asks again within seconds; 2 minutes are many
questions.

**Why it cannot hurt a live job.** The rule requires that GitHub has no record of the runner or calls
it offline, and that the log shows no job, if the runner may have run. Silence counts only while other
Pods are answered.

**What it does not cover.** A claim whose mint never ended: `stale_claim`. A runner that acknowledged
and did not start: `suspect`, `waiting_container`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import MINUTE, seconds
from paddock.domain.recovery.evidence import Evidence, RecordWord, Subject
from paddock.domain.recovery.predicates import alive, silence
from paddock.domain.recovery.required_answers import LOG_SHOWS_NO_JOB, ran, record_is
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired
from paddock.domain.states import RunnerState

UNDELIVERED_DEFAULT: Final = seconds(
    2 * MINUTE, "a Pod that waits for its JIT asks again within seconds"
)

UNDELIVERED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="undelivered",
    subject=Subject.RUNNER,
    seen="Its JIT waits, and its Pod has not asked for {undelivered} while others were answered",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, t: (
        e.state is RunnerState.ARMED
        and alive(e.pod)
        and e.pod.up is None
        and silence(e) >= t.undelivered
    ),
    needs=(
        record_is(RecordWord.OFFLINE, RecordWord.ABSENT, when=ran),
        LOG_SHOWS_NO_JOB,
    ),
    retired=Retired.GIVEN_UP,
    invariants=("I20", "I28"),
)
