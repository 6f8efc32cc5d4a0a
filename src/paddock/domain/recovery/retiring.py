"""A fenced runner on its way out.

**What stuck means.** The row is `retiring`, and the Pod still lives.

**How it should go.** Within two minutes: GitHub deletes the registration, the log shows no job twice,
the Pod is deleted, its end is recorded.

**How it goes wrong.** GitHub or the log does not answer, or the leader dies between two steps.

**What paddock does.** Each round takes the next step that is possible (`paddock.recovery.retire`).
Every step is written to the row first, so any later leader continues where the last one stopped.

**Why there is no threshold here.** The waits between the steps are in `paddock.recovery.retire`, with
reasons.

**Why it cannot hurt a live job.** A job that shows at any step makes the runner `busy`, by
`executing` or by the step itself. The rules for that are earlier in the table.

**What it does not cover.** Why it was fenced: that is in the event of the fence, with the rule's
name.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.evidence import Evidence, Subject
from paddock.domain.recovery.rule import Rule
from paddock.domain.states import RunnerState

RETIRING: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="retiring",
    subject=Subject.RUNNER,
    seen="It is fenced",
    done="Take the next step of its retirement",
    action=RunnerAction.RETIRE,
    holds=lambda e, _: e.state is RunnerState.RETIRING,
    invariants=("I35",),
    expected=True,
    routine=True,
)
