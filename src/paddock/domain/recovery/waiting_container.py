"""A runner container that does not start, though its JIT was acknowledged.

**What stuck means.** The row is `running`, and the gated container provably never ran.

**How it should go.** The image is on the node, and the container starts within seconds.

**How it goes wrong.** The image is gone or must be pulled again, a config map is missing, the runtime
hangs. The job waited for hours where no component looked (S2).

**What paddock does.** `suspect` has given the job another runner since 30 s. This rule fences the
late one and retires it.

**Why this threshold.** By 3 minutes it has long been replaced, and kubelets repeat a failed start
within two. While an image is pulled, `pull` applies (`never_started`).

**Why it cannot hurt a live job.** The container provably never ran (`Container.never_ran`), so no
process exists that could execute a job; therefore no answer is required.

**What it does not cover.** A container that started: `never_registered`. The single shape, whose
container has run since it began to poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import MINUTE, seconds
from paddock.domain.recovery.evidence import Container, Evidence, Subject
from paddock.domain.recovery.predicates import alive
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired
from paddock.domain.states import RunnerState

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds

WAITING_DEFAULT: Final = seconds(
    3 * MINUTE,
    "by then it has long been replaced; kubelets retry a failed start within two minutes",
)


def is_not_starting(e: Evidence, t: Thresholds) -> bool:
    """It has its JIT, and its container provably never ran."""
    if e.state is not RunnerState.RUNNING or e.shape != "gated" or not alive(e.pod):
        return False
    acknowledged = e.since if e.acknowledged is None else e.acknowledged
    return e.pod.runner.never_ran and acknowledged >= t.start


def _wait_is_over(e: Evidence, t: Thresholds) -> bool:
    if not is_not_starting(e, t):
        return False
    if e.pod.runner is Container.PULLING:
        return e.pod.unchanged >= t.pull
    return (e.since if e.acknowledged is None else e.acknowledged) >= t.waiting


WAITING_CONTAINER: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="waiting-container",
    subject=Subject.RUNNER,
    seen="It has its JIT, and its container has not started for {waiting}, or {pull} while its "
    "image is pulled",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=_wait_is_over,
    retired=Retired.GIVEN_UP,
    invariants=("I24", "I50"),
)
