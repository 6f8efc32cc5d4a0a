"""A Pod that stays after its work is done.

**What stuck means.** The job has completed, or the runner container has ended, and the Pod is not
terminal. It occupies a node, and its row a place.

**How it should go.** The runner exits within seconds of its job. The sidecar sees that and exits too;
the Pod is terminal.

**How it goes wrong.** A hook after the job hangs, a child process keeps the container alive, or the
sidecar does not exit.

**What paddock does.** It fences the runner and retires it: `lingering` by the job's completion,
`runner-ended` by the end of the container.

**Why this threshold.** After its job a runner cleans up and exits within seconds; hooks that people
run after a job were seen to take minutes. 10 minutes is more than any of them.

**Why it cannot hurt a live job.** `lingering` needs GitHub's report that the job completed.
`runner-ended` needs a container that has ended, and requires that GitHub does not call the runner
busy. Rules that see a job on the runner come earlier in the table.

**What it does not cover.** A Pod without a row: `runner-ended-without-row` in `pod_without_row`. A
completion that was never reported: `missed_webhook`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import MINUTE, seconds
from paddock.domain.recovery.evidence import Evidence, Subject
from paddock.domain.recovery.predicates import alive, ended
from paddock.domain.recovery.required_answers import GITHUB_SAYS_NOT_BUSY
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired
from paddock.domain.states import RunnerState

LINGER_DEFAULT: Final = seconds(
    10 * MINUTE,
    "after its job a runner cleans up and exits within seconds; the slowest hooks people run "
    "after a job take minutes",
)

#: A retirement deletes a live Pod whose job completed no sooner than this, even if `linger` is set to
#: less: until then the end may still come by itself, with its exit code.
FINISHED: Final = timedelta(seconds=LINGER_DEFAULT.value)

RUNNER_ENDED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="runner-ended",
    subject=Subject.RUNNER,
    seen="Its runner container ended {linger} ago, its Pod has not, and GitHub does not call it "
    "busy",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, t: (
        e.state is not RunnerState.RETIRING
        and alive(e.pod)
        and ended(e.pod)
        and e.pod.unchanged >= t.linger
    ),
    needs=(GITHUB_SAYS_NOT_BUSY,),
    retired=Retired.FINISHED,
    invariants=("I28", "I40"),
)

LINGERING: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="lingering",
    subject=Subject.RUNNER,
    seen="Its job completed {linger} ago, and its Pod still lives",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, t: e.state is RunnerState.DONE and alive(e.pod) and e.since >= t.linger,
    retired=Retired.FINISHED,
    invariants=("I28",),
)
