"""A runner that has started although its row gave it nothing.

**What stuck means.** The row is `booting`, `idle` or `claimed`, and in the gated shape the runner
container has started, which takes a JIT.

**How it should go.** The container starts only after the acknowledgement, when the row is `running`.

**How it goes wrong.** The database was restored from a backup that is older than the Pod's start
(I70).

**What paddock does.** `started-unexplained` leaves it alone at once and records that.
`started-unclaimed` fences it later, once GitHub does not call it busy and its log shows no job.

**Why this threshold.** `undelivered`, 2 minutes: an acknowledgement that is on its way arrives within
seconds.

**Why it cannot hurt a live job.** Until GitHub and the log both answer, the runner is protected
(I34).

**What it does not cover.** The single shape: its container polls and runs, so that it has started
proves nothing. See `claim-in-doubt` in `stale_claim`.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.evidence import Evidence, Subject
from paddock.domain.recovery.predicates import alive, may_have_run
from paddock.domain.recovery.required_answers import NO_JOB_ON_IT
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired
from paddock.domain.states import RunnerState

_UNCLAIMED: Final = frozenset({RunnerState.BOOTING, RunnerState.IDLE, RunnerState.CLAIMED})


def _started_unclaimed(e: Evidence) -> bool:
    """By its row it was given nothing; but in the gated shape no runner starts without a JIT."""
    return e.state in _UNCLAIMED and e.shape == "gated" and alive(e.pod) and may_have_run(e.pod)


STARTED_UNCLAIMED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="started-unclaimed",
    subject=Subject.RUNNER,
    seen="Its runner has started although its row has given it nothing for {undelivered}, and "
    "neither GitHub nor its log knows of a job",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, t: _started_unclaimed(e) and e.since >= t.undelivered,
    needs=NO_JOB_ON_IT,
    retired=Retired.GIVEN_UP,
    invariants=("I34", "I70"),
)

STARTED_UNEXPLAINED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="started-unexplained",
    subject=Subject.RUNNER,
    seen="Its runner has started although its row has given it nothing",
    done="Leave it alone, and say so",
    action=RunnerAction.PROTECT,
    holds=lambda e, _: _started_unclaimed(e),
    invariants=("I34", "I70"),
)
