"""A runner whose Pod is not there.

**What stuck means.** The row is not `gone`, and complete reads of the fleet do not contain its Pod.
The row holds a place, and for its key it may count as supply.

**How it should go.** A row is written before its Pod; the Pod appears within seconds, and stays until
paddock deletes it after the verdict.

**How it goes wrong.** A node is removed with its Pods, a person deletes a Pod and its finalizer, or
the creation of a planned Pod failed and was not repeated.

**What paddock does.** `pod-gone` concludes a runner whose Pod was seen once; the name that may be
registered at GitHub becomes a debt. `never-created` concludes a planned runner that never had one,
after `boot`.

**Why this threshold.** One read may come from a cache that lags, and two from the same cache: three
complete reads in a row, counted in the row (I29). A failed or partial read counts as no read.

**Why it cannot hurt a live job.** Nothing is deleted: there is no Pod. If a Pod of that name appears
later it is a Pod without a row, and protected.

**What it does not cover.** A fleet that cannot be read: nothing is concluded. A Pod on a node that is
lost but still listed: Kubernetes ends it, then `pod_ended`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import times
from paddock.domain.recovery.evidence import Evidence, Sighting, Subject
from paddock.domain.recovery.rule import Rule

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds

ABSENT_READS_DEFAULT: Final = times(
    3, "complete reads in a row: one may come from a cache that lags, and two from the same one"
)


def _absent(e: Evidence, t: Thresholds) -> bool:
    return e.pod.sighting is Sighting.ABSENT and e.pod.absent_reads >= t.absent_reads


POD_GONE: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="pod-gone",
    subject=Subject.RUNNER,
    seen="Its Pod was missing in {absent_reads} complete reads in a row",
    done="Conclude it; what is left at GitHub is a debt",
    action=RunnerAction.CONCLUDE,
    holds=lambda e, t: _absent(e, t) and e.pod_seen,
    invariants=("I29", "I33"),
)

NEVER_CREATED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="never-created",
    subject=Subject.RUNNER,
    seen="It was planned {boot} ago, and there is no Pod in {absent_reads} complete reads",
    done="Conclude it, and free its place",
    action=RunnerAction.CONCLUDE,
    holds=lambda e, t: _absent(e, t) and not e.pod_seen and e.since >= t.boot,
    invariants=("I50",),
)
