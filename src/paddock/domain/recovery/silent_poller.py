"""An idle runner whose poller has stopped asking.

**What stuck means.** The row is `idle`, so the pool counts it as ready, and it cannot be given work.

**How it should go.** A poller asks again as soon as its held request ends, after at most 50 seconds.

**How it goes wrong.** The node is cut off or hangs, the poller died without an exit that the kubelet
saw, or a network policy blocks it.

**What paddock does.** It fences the runner and retires it; the pool starts another.

**Why this threshold.** A request is held for at most 50 seconds: in 2 minutes two in a row were lost.

**Why it cannot hurt a live job.** An idle runner has no JIT. Silence counts only while other Pods are
answered: otherwise the fault may be the server's (I29). The fence requires GitHub and the log if it
may have run.

**What it does not cover.** A runner that has a JIT waiting: `undelivered`. A claimed runner:
`stale_claim`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import MINUTE, seconds
from paddock.domain.recovery.evidence import Evidence, Subject
from paddock.domain.recovery.predicates import alive, silence
from paddock.domain.recovery.required_answers import NO_JOB_ON_IT
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired
from paddock.domain.states import RunnerState

SILENT_DEFAULT: Final = seconds(
    2 * MINUTE,
    "a poller's request is held for at most 50 seconds: two of them in a row were lost",
)

SILENT: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="silent",
    subject=Subject.RUNNER,
    seen="It is idle, and its poller was not heard for {silent} while others were answered",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, t: e.state is RunnerState.IDLE and alive(e.pod) and silence(e) >= t.silent,
    needs=NO_JOB_ON_IT,
    retired=Retired.GIVEN_UP,
    invariants=("I28", "I29"),
)
