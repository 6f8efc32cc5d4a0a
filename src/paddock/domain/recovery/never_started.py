"""A Pod that has a node, and whose poller is never heard.

**What stuck means.** The row is `booting`. It uses one of the pool's starts, and its runner gets no
work.

**How it should go.** The image is pulled, the poller starts and asks for work within a minute or two.

**How it goes wrong.** The image cannot be pulled, a volume cannot be mounted, the node's runtime
hangs, or the poller cannot reach the server.

**What paddock does.** It fences the runner and frees its place; the pool starts another.

**Why these thresholds.** They count from the last change of the Pod's status. `boot`, 5 minutes: a VM
boots and its poller asks within one or two. `pull`, 15 minutes: a runner image has some gigabytes,
and slow registries need minutes for each. A pool may set its own start timeout.

**Why it cannot hurt a live job.** A `booting` runner never had a JIT. If its container has run all
the same, the fence requires GitHub and the log.

**What it does not cover.** No node: `unschedulable`. No Pod at all: `pod_gone`. A poller that was
heard and then fell silent: `silent_poller`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import MINUTE, seconds
from paddock.domain.recovery.evidence import Container, Evidence, Subject
from paddock.domain.recovery.predicates import alive
from paddock.domain.recovery.required_answers import NO_JOB_ON_IT
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired
from paddock.domain.states import RunnerState

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds

BOOT_DEFAULT: Final = seconds(
    5 * MINUTE,
    "a VM boots and its poller asks within a minute or two; a place that is held for longer "
    "is missed by others",
)
PULL_DEFAULT: Final = seconds(
    15 * MINUTE,
    "a runner image has some gigabytes, and the slowest registries that people use need "
    "minutes for each",
)


def _boot_is_over(e: Evidence, t: Thresholds) -> bool:
    if e.state is not RunnerState.BOOTING or not alive(e.pod) or e.pod.unschedulable is not None:
        return False
    pulling = Container.PULLING in (e.pod.poller, e.pod.runner)
    return e.pod.unchanged >= (t.pull if pulling else t.boot)


NEVER_STARTED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="never-started",
    subject=Subject.RUNNER,
    seen="Its poller was not heard within {boot}, or within {pull} while an image is pulled",
    done="Fence it, and free its place",
    action=RunnerAction.FENCE,
    holds=_boot_is_over,
    needs=NO_JOB_ON_IT,
    retired=Retired.GIVEN_UP,
    invariants=("I50",),
)
