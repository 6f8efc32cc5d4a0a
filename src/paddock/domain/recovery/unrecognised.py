"""A Pod whose containers look like nothing that is known.

**What stuck means.** The status of the runner container has a form that paddock does not know, is
missing among the others, or is there twice: what the runner does cannot be told.

**How it should go.** Every status is one of those in `evidence.Container`.

**How it goes wrong.** A new version of Kubernetes, or an admission webhook that changes Pods.

**What paddock does.** It leaves the runner for the next round, and records that once.

**Why there is no threshold.** An unknown form does not become evidence by age.

**Why it cannot hurt a live job.** It only protects, and it stands above all rules that fence by a
Pod's form.

**What it does not cover.** A container that GitHub or the log says is at work: `executing` comes
first. A Pod without a row: `unrecognised-without-row`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.evidence import Container, Evidence, Subject
from paddock.domain.recovery.predicates import alive
from paddock.domain.recovery.rule import Rule

UNRECOGNISED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="unrecognised",
    subject=Subject.RUNNER,
    seen="Its Pod looks like nothing that is known",
    done="Leave it for the next round",
    action=RunnerAction.PROTECT,
    holds=lambda e, _: alive(e.pod) and e.pod.runner is Container.UNRECOGNISED,
    invariants=("I34",),
)
