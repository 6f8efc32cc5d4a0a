"""A runner that is ended by force: neither GitHub nor its log is asked any more.

**What stuck means.** GitHub can never be asked about the runner again, so no answer will ever free
its place: its account has removed the App, or GitHub has no record of the runner and its repository
may be deleted.

**How it should go.** A runner ends with its job, and an account that removes the App has no job
running.

**How it goes wrong.** The App is removed while runners of the account live: every request about them
fails from then on, and no-evidence-no-action protects them for ever. Or a `busy` runner's record
disappears with its repository, and its job's completion can never be read.

**What paddock does.** `account-removed` and `record-removed` mark the row as ended by force (an
operator can do the same at once: `paddock runners retire NAME --force`). `forced` then deletes the
Pod without any question.

**Why these thresholds.** GitHub ends a job on a self-hosted runner after 5 days: 121 hours is one
hour more. A removal must be confirmed 3 times, at least ten minutes apart, by number and in the App's
own list; a suspended installation is still in that list (I81).

**Why it cannot hurt a live job.** A runner that has been busy for 121 hours has outlived every job
whose result GitHub accepts. Of one that was never seen busy, the age of its JIT counts: it has no
job, or one that began late, after its account had removed the App. Age alone is not enough: a
confirmed removal or a missing record is needed as well (I27, I29).

**What it does not cover.** Runners of a suspended installation: they wait. A forced end by an
operator is that person's decision, and recorded with the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import HOUR, seconds, times
from paddock.domain.recovery.evidence import Evidence, RecordWord, Subject
from paddock.domain.recovery.predicates import alive
from paddock.domain.recovery.required_answers import record_is
from paddock.domain.recovery.rule import Rule
from paddock.domain.states import RunnerState

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds

REMOVALS_DEFAULT: Final = times(
    3,
    "times that GitHub did not know an installation by its number, nor in the App's list, at "
    "least ten minutes apart; a suspended one is known, and does not count",
)
REMOVED_DEFAULT: Final = seconds(
    121 * HOUR,
    "GitHub ends a job on a self-hosted runner after 5 days, and a runner that got no job within "
    "15 minutes was retired while the account could be asked: a runner that is busy, or holds a JIT, "
    "for an hour longer than that is not at a job whose result GitHub would take",
)


def _outlives_any_job(e: Evidence, t: Thresholds) -> bool:
    """It has had its job, or if none is known its JIT, for longer than GitHub lets any job run. A
    runner may wait for days before its job: one whose program is unknown is not retired while it
    waits (I89)."""
    if not e.named or not alive(e.pod):
        return False
    if e.state is RunnerState.BUSY or e.acknowledged is None:
        return e.since >= t.removed
    return e.acknowledged >= t.removed


FORCED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="forced",
    subject=Subject.RUNNER,
    seen="It was ended by force: by an operator, by `account-removed` or `record-removed`",
    done="Delete its Pod, whether a job is on it or not",
    action=RunnerAction.RETIRE,
    holds=lambda e, _: e.state is RunnerState.RETIRING and e.forced,
    invariants=("I36",),
)

ACCOUNT_REMOVED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="account-removed",
    subject=Subject.RUNNER,
    seen="Its account has removed the App, which was confirmed {removals} times, and it has been "
    "busy, or held its JIT without a known job, for {removed}, longer than GitHub lets any job run",
    done="End it by force: GitHub can never be asked about it again",
    action=RunnerAction.FORCE,
    holds=lambda e, t: e.removals >= t.removals and _outlives_any_job(e, t),
    invariants=("I27", "I29", "I81"),
)

RECORD_REMOVED: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="record-removed",
    subject=Subject.RUNNER,
    seen="It has been busy for {removed}, longer than GitHub lets any job run, and GitHub has no "
    "record of it",
    done="End it by force: its job, if its repository was deleted, can never be asked about again",
    action=RunnerAction.FORCE,
    holds=lambda e, t: e.state is RunnerState.BUSY and _outlives_any_job(e, t),
    needs=(record_is(RecordWord.ABSENT),),
    invariants=("I27", "I29", "I66"),
)
