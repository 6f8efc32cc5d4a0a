"""A runner that executes a job, though its row does not say so.

**What stuck means.** The row is `armed`, `running` or `retiring`, and a job runs: the runner counts
as supply that it is not, or is about to be deleted.

**How it should go.** GitHub sends `in_progress` with the runner's name, and the row becomes `busy`.

**How it goes wrong.** The webhook is late or lost; or the row is older than the Pod, after a restored
backup.

**What paddock does.** One source is enough: GitHub's record, the runner's own log, the mark of its
sidecar, an event. `missed-in-progress` makes the row `busy`. `busy` leaves a busy runner alone,
however long it takes. `executing` protects a runner whose row has no way to `busy` (I70).

**Why there is no threshold.** A job may take five days, and a protection must not come late.

**Why it cannot hurt a live job.** These rules only protect. All rules that fence stand below them.

**What it does not cover.** A job that is over and whose completion was lost: `missed_webhook`, then
`lingering`. A false `busy` of GitHub: it protects until GitHub corrects it.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import NoAction, RunnerAction
from paddock.domain.recovery.evidence import Evidence, Subject
from paddock.domain.recovery.predicates import executes
from paddock.domain.recovery.rule import Rule
from paddock.domain.states import RunnerState

MISSED_IN_PROGRESS: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="missed-in-progress",
    subject=Subject.RUNNER,
    seen="GitHub, its own log, its sidecar or an event says that it executes a job",
    done="It is busy",
    action=RunnerAction.OCCUPY,
    holds=lambda e, t: (
        e.state in (RunnerState.ARMED, RunnerState.RUNNING, RunnerState.RETIRING) and executes(e, t)
    ),
    invariants=("I22", "I65"),
)

BUSY: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="busy",
    subject=Subject.RUNNER,
    seen="It is busy",
    done="Leave it, however long that takes",
    action=NoAction.LEAVE,
    holds=lambda e, t: e.state is RunnerState.BUSY and executes(e, t),
    invariants=("I27",),
)

EXECUTING: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="executing",
    subject=Subject.RUNNER,
    seen="GitHub, its own log, its sidecar or an event says that it executes a job, and by its "
    "row it cannot",
    done="Leave it alone, and say so",
    action=RunnerAction.PROTECT,
    holds=executes,
    invariants=("I22", "I65", "I70"),
)
