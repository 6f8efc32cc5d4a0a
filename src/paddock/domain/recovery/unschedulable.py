"""A Pod that no node takes.

**What stuck means.** The scheduler says that no node fits. The Pod uses a place of its pool, and its
runner never starts.

**How it should go.** A node has room, or another Pod's end makes room within minutes; an autoscaler
adds one.

**How it goes wrong.** The pool asks for more than any node has, for a label or a taint that does not
exist, or the cluster is full. One impossible form has starved all others of a pool (I50).

**What paddock does.** It fences the runner and frees its place. The reason is in the verdict, in the
scheduler's words.

**Why this threshold.** Another Pod's end frees a node within minutes. A Pod that found no node for 5
minutes waits for one that does not exist. A pool with an autoscaler sets its own, longer time.

**Why it cannot hurt a live job.** A Pod without a node runs no container. The fence requires the
usual proofs if its container may have run.

**What it does not cover.** A Pod that has a node and does not start: `never_started`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import MINUTE, seconds
from paddock.domain.recovery.evidence import Evidence, Subject
from paddock.domain.recovery.predicates import alive
from paddock.domain.recovery.required_answers import NO_JOB_ON_IT
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired
from paddock.domain.states import RunnerState

UNSCHEDULABLE_DEFAULT: Final = seconds(
    5 * MINUTE,
    "another Pod's end frees a node within minutes; a Pod that waits for longer waits for a "
    "node that does not exist",
)

UNSCHEDULABLE: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="unschedulable",
    subject=Subject.RUNNER,
    seen="No node takes its Pod, for {unschedulable}",
    done="Fence it, and free its place",
    action=RunnerAction.FENCE,
    holds=lambda e, t: (
        e.state is RunnerState.BOOTING
        and alive(e.pod)
        and e.pod.unschedulable is not None
        and e.pod.unchanged >= t.unschedulable
    ),
    needs=NO_JOB_ON_IT,
    retired=Retired.GIVEN_UP,
    invariants=("I50",),
)
