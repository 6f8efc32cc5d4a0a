"""A Pod without a job whose deletion was requested by another component or person.

**What stuck means.** The Pod has a deletion timestamp, and its finalizer holds it until its end is
recorded. New work must not be given to it.

**How it should go.** Only `paddock.recovery.retire` requests deletions, after its proofs.

**How it goes wrong.** A node is drained, an autoscaler removes it, or a person deletes the Pod.

**What paddock does.** It fences the runner and retires it, so that its registration at GitHub is
removed and the end is recorded. The verdict says that the Pod was deleted.

**Why there is no threshold.** A deletion is never taken back, and a drain waits for it (I43).

**Why it cannot hurt a live job.** Rules that see a job come earlier; a busy runner is left to finish.
The fence requires that GitHub does not call it busy and that its log shows no job.

**What it does not cover.** A Pod that the kubelet kills at the end of its grace period: `pod_ended`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.evidence import Evidence, Subject
from paddock.domain.recovery.predicates import alive
from paddock.domain.recovery.required_answers import NO_JOB_ON_IT
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired
from paddock.domain.states import RunnerState

_WITHOUT_A_JOB: Final = frozenset(
    {
        RunnerState.BOOTING,
        RunnerState.IDLE,
        RunnerState.CLAIMED,
        RunnerState.ARMED,
        RunnerState.RUNNING,
    }
)

LEAVING: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="leaving",
    subject=Subject.RUNNER,
    seen="The deletion of its Pod was requested",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, _: e.state in _WITHOUT_A_JOB and alive(e.pod) and e.pod.deletion_requested,
    needs=NO_JOB_ON_IT,
    retired=Retired.DELETED,
    invariants=("I43",),
)
