"""A runner that is late: it has its JIT, and GitHub does not see it.

**What stuck means.** The runner counts as supply, so its key's job gets no other runner, and it may
never connect.

**How it should go.** The image is on the node before a Pod is idle, so the container starts within
seconds of the acknowledgement. The runner is online at GitHub about ten seconds later.

**How it goes wrong.** The container does not start (image, node, volume), or the runner starts and
cannot reach GitHub. Once that kept a job waiting for more than 100 minutes (S2).

**What paddock does.** `suspect` stops counting the runner as supply: the next match gives its job one
replacement. The late runner keeps its chance, and nothing is deleted. If half of what a scope was
given lately is late, at least 3, the cause is GitHub or the network: `too-many-suspects` replaces
nothing and alarms (I74).

**Why these thresholds.** `start`, 30 s: a start takes seconds, and 30 leave time to serve the job
again within a minute. `suspect`, 60 s: a runner is online after about ten, and GitHub's view lags by
some more. `suspects`, 3: fewer are single failures, also where they are half of a small scope's
runners.

**Why it cannot hurt a live job.** The runner lives on and may still get a job. The cost of a mistake
is one runner too many, which `surplus` retires.

**What it does not cover.** Ending the late runner: `waiting_container`, `never_registered`, `zombie`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import seconds, times
from paddock.domain.recovery.evidence import Evidence, RecordWord, Subject
from paddock.domain.recovery.predicates import at_work_for
from paddock.domain.recovery.required_answers import ran, record_is
from paddock.domain.recovery.rule import Rule
from paddock.domain.recovery.waiting_container import is_not_starting

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds

START_DEFAULT: Final = seconds(
    30.0,
    "the image is on the node before a Pod is idle, so its runner starts within seconds; "
    "thirty leave time to serve the job again within a minute",
)
SUSPECT_DEFAULT: Final = seconds(
    60.0,
    "a runner is online about ten seconds after its start; GitHub's view lags by some more",
)
SUSPECTS_DEFAULT: Final = times(
    3,
    "fewer suspects are single failures, also where they are half of a scope's runners; if it "
    "is half and as many as this, GitHub is slow, and replacements would be a storm",
)


def _late(e: Evidence, t: Thresholds) -> bool:
    return is_not_starting(e, t) or at_work_for(e, t.suspect)


def _storm(e: Evidence, t: Thresholds) -> bool:
    return e.suspects >= t.suspects and 2 * e.suspects >= e.recent


TOO_MANY_SUSPECTS: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="too-many-suspects",
    subject=Subject.RUNNER,
    seen="It is late, as is half of what its scope was given lately, {suspects} at least",
    done="Replace and retire nothing, alarm",
    action=RunnerAction.ALARM,
    holds=lambda e, t: _late(e, t) and _storm(e, t),
    needs=(record_is(RecordWord.OFFLINE, when=ran),),
    invariants=("I74",),
)

SUSPECT: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="suspect",
    subject=Subject.RUNNER,
    seen="It has its JIT, and its container did not start within {start}, or has been up for "
    "{suspect} and GitHub calls it offline",
    done="It stops counting as supply, so that one replacement is given out; nothing is killed",
    action=RunnerAction.SUSPECT,
    holds=lambda e, t: e.suspect is None and _late(e, t),
    needs=(record_is(RecordWord.OFFLINE, when=ran),),
    invariants=("I31", "I74"),
)
