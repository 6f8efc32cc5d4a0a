"""A Pod that has ended, and whose end is not recorded or not cleared up yet.

**What stuck means.** The Pod is terminal: no container of it can run again. Until the end is
recorded, the runner's row holds a place of its account; until the Pod is deleted, its finalizer keeps
it listed.

**How it should go.** The Pod watch reports the end within a second, `pod-ended` concludes the runner:
exit code and log are read, the verdict is written, the row is `gone`, the Pod is deleted.

**How it goes wrong.** The event is lost, or the leader dies between the verdict and the deletion. The
next round sees the Pod in its list: `pod-ended` again, or `concluded` if the row is `gone` already.

**What paddock does.** It concludes the runner at once, and deletes what is left of a Pod whose end is
recorded. Both rules have no limit per round: ends that were seen are facts, however many there are.

**Why there is no threshold.** A terminal Pod stays terminal. Waiting would hold a place for nothing
(I40).

**Why it cannot hurt a live job.** Kubernetes calls a Pod terminal only when no container of it runs.
This is the strongest evidence there is, so these rules are first in their tables (I33).

**What it does not cover.** A Pod whose runner container ended while another container runs:
`lingering`. A Pod that is missing: `pod_gone`. An ended Pod without any row: `pod_without_row`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import PodAction, RunnerAction
from paddock.domain.recovery.evidence import Evidence, PodEvidence, Sighting, Subject
from paddock.domain.recovery.rule import Rule

POD_ENDED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="pod-ended",
    subject=Subject.RUNNER,
    seen="Its Pod has ended",
    done="Conclude it at once",
    action=RunnerAction.CONCLUDE,
    holds=lambda e, _: e.pod.sighting is Sighting.PRESENT and e.pod.terminal,
    invariants=("I33", "I40"),
    expected=True,
    routine=True,
    seen_to_end=True,
)

CONCLUDED: Final[Rule[PodEvidence, PodAction]] = Rule(
    name="concluded",
    subject=Subject.POD,
    seen="It has ended, and its end is recorded",
    done="Delete what is left of it",
    action=PodAction.CONCLUDE,
    holds=lambda e, _: e.pod.sighting is Sighting.PRESENT and e.pod.terminal and e.concluded,
    invariants=("I30",),
    expected=True,
    routine=True,
    seen_to_end=True,
)
