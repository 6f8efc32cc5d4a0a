"""The rules for runners whose rows live, strongest evidence first.

What ended or is gone for certain comes first and overrides every flag (I33). Then whoever says that a
job is executed is believed. Only below that line is anything fenced, so no rule further down has to
think of live jobs; and whatever may have run is fenced only if GitHub and its own log agree.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.endings import Retired
from paddock.domain.evidence import Container, Evidence, RecordWord, Sighting, Subject
from paddock.domain.readings import (
    NOT_BUSY,
    alive,
    at_work_for,
    ended,
    executes,
    further,
    hinted,
    may_have_run,
    silence,
)
from paddock.domain.rule import (
    HINTED_JOB_IS_NOT_HERE,
    LOG_SHOWS_NO_JOB,
    NO_JOB_ON_IT,
    Action,
    Rule,
    ran,
    record_is,
)
from paddock.domain.states import RunnerState
from paddock.domain.thresholds import Thresholds

_S = RunnerState


def _absent(e: Evidence, t: Thresholds) -> bool:
    return e.pod.sighting is Sighting.ABSENT and e.pod.absent_reads >= t.absent_reads


def _not_starting(e: Evidence, t: Thresholds) -> bool:
    """It has its JIT, and its container provably never ran."""
    if e.state is not _S.RUNNING or e.shape != "gated" or not alive(e.pod):
        return False
    acknowledged = e.since if e.acknowledged is None else e.acknowledged
    return e.pod.runner.never_ran and acknowledged >= t.start


def _late(e: Evidence, t: Thresholds) -> bool:
    return _not_starting(e, t) or at_work_for(e, t.suspect)


def _storm(e: Evidence, t: Thresholds) -> bool:
    return e.suspects >= t.suspects and 2 * e.suspects >= e.recent


def _outlives_any_job(e: Evidence, t: Thresholds) -> bool:
    """It has held its JIT for longer than GitHub lets any job run."""
    if not e.named or not alive(e.pod):
        return False
    return (e.since if e.acknowledged is None else e.acknowledged) >= t.removed


_UNCLAIMED: Final = frozenset({_S.BOOTING, _S.IDLE, _S.CLAIMED})
_UNOCCUPIED: Final = _UNCLAIMED | {_S.ARMED, _S.RUNNING}


def _started_unclaimed(e: Evidence) -> bool:
    """By its row it was given nothing; but in the gated shape no runner starts without a JIT."""
    return e.state in _UNCLAIMED and e.shape == "gated" and alive(e.pod) and may_have_run(e.pod)


def _claim_is_stale(e: Evidence, t: Thresholds) -> bool:
    claimed = e.state is _S.CLAIMED and alive(e.pod)
    return claimed and e.mint_overdue and e.since >= t.stale_claim


def _may_hold_a_jit(e: Evidence) -> bool:
    """Whatever its row says, which a restored backup may have taken back (I70): a poller ends when it
    was given its JIT, and one container that polls and runs does not show what it is at."""
    polls = e.pod.poller is Container.STARTED or e.pod.poller.never_ran
    return e.shape == "single" or not polls


def _boot_is_over(e: Evidence, t: Thresholds) -> bool:
    if e.state is not _S.BOOTING or not alive(e.pod) or e.pod.unschedulable is not None:
        return False
    pulling = Container.PULLING in (e.pod.poller, e.pod.runner)
    return e.pod.unchanged >= (t.pull if pulling else t.boot)


def _wait_is_over(e: Evidence, t: Thresholds) -> bool:
    if not _not_starting(e, t):
        return False
    if e.pod.runner is Container.PULLING:
        return e.pod.unchanged >= t.pull
    return (e.since if e.acknowledged is None else e.acknowledged) >= t.waiting


RUNNER_RULES: Final[tuple[Rule[Evidence], ...]] = (
    Rule(
        name="pod-ended",
        subject=Subject.RUNNER,
        seen="Its Pod has ended",
        done="Conclude it at once",
        action=Action.CONCLUDE,
        holds=lambda e, _: e.pod.sighting is Sighting.PRESENT and e.pod.terminal,
        invariants=("I33", "I40"),
    ),
    Rule(
        name="pod-gone",
        subject=Subject.RUNNER,
        seen="Its Pod was missing in {absent_reads} complete reads in a row",
        done="Conclude it; what is left at GitHub is a debt",
        action=Action.CONCLUDE,
        holds=lambda e, t: _absent(e, t) and e.pod_seen,
        invariants=("I29", "I33"),
    ),
    Rule(
        name="never-created",
        subject=Subject.RUNNER,
        seen="It was planned {boot} ago, and there is no Pod in {absent_reads} complete reads",
        done="Conclude it, and free its place",
        action=Action.CONCLUDE,
        holds=lambda e, t: _absent(e, t) and not e.pod_seen and e.since >= t.boot,
        invariants=("I50",),
    ),
    Rule(
        name="runner-ended",
        subject=Subject.RUNNER,
        seen="Its runner container ended {linger} ago, its Pod has not, and GitHub does not call it "
        "busy",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, t: (
            e.state is not _S.RETIRING
            and alive(e.pod)
            and ended(e.pod)
            and e.pod.unchanged >= t.linger
        ),
        needs=(record_is(*sorted(NOT_BUSY)),),
        retired=Retired.FINISHED,
        invariants=("I28", "I40"),
    ),
    Rule(
        name="forced",
        subject=Subject.RUNNER,
        seen="It was ended by force: by an operator, by `account-removed` or `record-removed`",
        done="Delete its Pod, whether a job is on it or not",
        action=Action.RETIRE,
        holds=lambda e, _: e.state is _S.RETIRING and e.forced,
        invariants=("I36",),
    ),
    Rule(
        name="account-removed",
        subject=Subject.RUNNER,
        seen="Its account has removed the App, which was confirmed {removals} times, and it has held "
        "its JIT for {removed}, longer than GitHub lets any job run",
        done="End it by force: GitHub can never be asked about it again",
        action=Action.FORCE,
        holds=lambda e, t: e.removals >= t.removals and _outlives_any_job(e, t),
        invariants=("I27", "I29", "I81"),
    ),
    Rule(
        name="record-removed",
        subject=Subject.RUNNER,
        seen="It is busy, GitHub has no record of it, and it has held its JIT for {removed}, longer "
        "than GitHub lets any job run",
        done="End it by force: its job, if its repository was deleted, can never be asked about again",
        action=Action.FORCE,
        holds=lambda e, t: e.state is _S.BUSY and _outlives_any_job(e, t),
        needs=(record_is(RecordWord.ABSENT),),
        invariants=("I27", "I29", "I66"),
    ),
    Rule(
        name="hint-moved-on",
        subject=Subject.RUNNER,
        seen="The job it was claimed for has gone further at GitHub than here",
        done="Apply what GitHub says of the job",
        action=Action.APPLY,
        holds=lambda e, t: further(hinted(e, t), e.hint),
        invariants=("I23",),
    ),
    Rule(
        name="missed-in-progress",
        subject=Subject.RUNNER,
        seen="GitHub, its own log, its sidecar or an event says that it executes a job",
        done="It is busy",
        action=Action.OCCUPY,
        holds=lambda e, t: e.state in (_S.ARMED, _S.RUNNING, _S.RETIRING) and executes(e, t),
        invariants=("I22", "I65"),
    ),
    Rule(
        name="busy",
        subject=Subject.RUNNER,
        seen="It is busy",
        done="Leave it, however long that takes",
        action=Action.LEAVE,
        holds=lambda e, t: e.state is _S.BUSY and executes(e, t),
        invariants=("I27",),
    ),
    Rule(
        name="executing",
        subject=Subject.RUNNER,
        seen="GitHub, its own log, its sidecar or an event says that it executes a job, and by its "
        "row it cannot",
        done="Leave it alone, and say so",
        action=Action.PROTECT,
        holds=executes,
        invariants=("I22", "I65", "I70"),
    ),
    Rule(
        name="retiring",
        subject=Subject.RUNNER,
        seen="It is fenced",
        done="Take the next step of its retirement",
        action=Action.RETIRE,
        holds=lambda e, _: e.state is _S.RETIRING,
        invariants=("I35",),
    ),
    Rule(
        name="too-many-suspects",
        subject=Subject.RUNNER,
        seen="It is late, as is half of what its scope was given lately, {suspects} at least",
        done="Replace and retire nothing, alarm",
        action=Action.ALARM,
        holds=lambda e, t: _late(e, t) and _storm(e, t),
        needs=(record_is(RecordWord.OFFLINE, when=ran),),
        invariants=("I74",),
    ),
    Rule(
        name="suspect",
        subject=Subject.RUNNER,
        seen="It has its JIT, and its container did not start within {start}, or has been up for "
        "{suspect} and GitHub calls it offline",
        done="It stops counting as supply, so that one replacement is given out; nothing is killed",
        action=Action.SUSPECT,
        holds=lambda e, t: e.suspect is None and _late(e, t),
        needs=(record_is(RecordWord.OFFLINE, when=ran),),
        invariants=("I31", "I74"),
    ),
    Rule(
        name="unrecognised",
        subject=Subject.RUNNER,
        seen="Its Pod looks like nothing that is known",
        done="Leave it for the next round",
        action=Action.PROTECT,
        holds=lambda e, _: alive(e.pod) and e.pod.runner is Container.UNRECOGNISED,
        invariants=("I34",),
    ),
    Rule(
        name="started-unclaimed",
        subject=Subject.RUNNER,
        seen="Its runner has started although its row has given it nothing for {undelivered}, and "
        "neither GitHub nor its log knows of a job",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, t: _started_unclaimed(e) and e.since >= t.undelivered,
        needs=NO_JOB_ON_IT,
        retired=Retired.GIVEN_UP,
        invariants=("I34", "I70"),
    ),
    Rule(
        name="started-unexplained",
        subject=Subject.RUNNER,
        seen="Its runner has started although its row has given it nothing",
        done="Leave it alone, and say so",
        action=Action.PROTECT,
        holds=lambda e, _: _started_unclaimed(e),
        invariants=("I34", "I70"),
    ),
    Rule(
        name="leaving",
        subject=Subject.RUNNER,
        seen="The deletion of its Pod was requested",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, _: e.state in _UNOCCUPIED and alive(e.pod) and e.pod.deletion_requested,
        needs=NO_JOB_ON_IT,
        retired=Retired.DELETED,
        invariants=("I43",),
    ),
    Rule(
        name="unschedulable",
        subject=Subject.RUNNER,
        seen="No node takes its Pod, for {unschedulable}",
        done="Fence it, and free its place",
        action=Action.FENCE,
        holds=lambda e, t: (
            e.state is _S.BOOTING
            and alive(e.pod)
            and e.pod.unschedulable is not None
            and e.pod.unchanged >= t.unschedulable
        ),
        needs=NO_JOB_ON_IT,
        retired=Retired.GIVEN_UP,
        invariants=("I50",),
    ),
    Rule(
        name="never-started",
        subject=Subject.RUNNER,
        seen="Its poller was not heard within {boot}, or within {pull} while an image is pulled",
        done="Fence it, and free its place",
        action=Action.FENCE,
        holds=_boot_is_over,
        needs=NO_JOB_ON_IT,
        retired=Retired.GIVEN_UP,
        invariants=("I50",),
    ),
    Rule(
        name="silent",
        subject=Subject.RUNNER,
        seen="It is idle, and its poller was not heard for {silent} while others were answered",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, t: e.state is _S.IDLE and alive(e.pod) and silence(e) >= t.silent,
        needs=NO_JOB_ON_IT,
        retired=Retired.GIVEN_UP,
        invariants=("I28", "I29"),
    ),
    Rule(
        name="claim-in-doubt",
        subject=Subject.RUNNER,
        seen="It has been claimed for {stale_claim}, its mint's deadline has passed, and it may hold a "
        "JIT that its row does not know of: its poller has ended, or is one with its runner",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, t: _claim_is_stale(e, t) and _may_hold_a_jit(e),
        needs=NO_JOB_ON_IT,
        retired=Retired.GIVEN_UP,
        invariants=("I41", "I70"),
    ),
    Rule(
        name="stale-claim",
        subject=Subject.RUNNER,
        seen="It has been claimed for {stale_claim}, its mint's deadline has passed, and its poller "
        "still polls",
        done="Settle the mint; back to idle",
        action=Action.RELEASE,
        holds=lambda e, t: _claim_is_stale(e, t) and not _may_hold_a_jit(e),
        invariants=("I28", "I41"),
    ),
    Rule(
        name="undelivered",
        subject=Subject.RUNNER,
        seen="Its JIT waits, and its Pod has not asked for {undelivered} while others were answered",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, t: (
            e.state is _S.ARMED
            and alive(e.pod)
            and e.pod.up is None
            and silence(e) >= t.undelivered
        ),
        needs=(
            record_is(RecordWord.OFFLINE, RecordWord.ABSENT, when=ran),
            LOG_SHOWS_NO_JOB,
        ),
        retired=Retired.GIVEN_UP,
        invariants=("I20", "I28"),
    ),
    Rule(
        name="waiting-container",
        subject=Subject.RUNNER,
        seen="It has its JIT, and its container has not started for {waiting}, or {pull} while its "
        "image is pulled",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=_wait_is_over,
        retired=Retired.GIVEN_UP,
        invariants=("I24", "I50"),
    ),
    Rule(
        name="never-registered",
        subject=Subject.RUNNER,
        seen="It has been up for {never_registered}, GitHub calls it offline, its log shows no job, "
        "and the job it was claimed for is not on it",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, t: at_work_for(e, t.never_registered),
        needs=(record_is(RecordWord.OFFLINE), LOG_SHOWS_NO_JOB, HINTED_JOB_IS_NOT_HERE),
        retired=Retired.GIVEN_UP,
        invariants=("I24", "I31"),
    ),
    Rule(
        name="zombie",
        subject=Subject.RUNNER,
        seen="It has been up for {zombie}, GitHub has no record of it, its log shows no job, and the "
        "job it was claimed for is not on it",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, t: at_work_for(e, t.zombie),
        needs=(record_is(RecordWord.ABSENT), LOG_SHOWS_NO_JOB, HINTED_JOB_IS_NOT_HERE),
        retired=Retired.GIVEN_UP,
        invariants=("I38", "I66", "I68"),
    ),
    Rule(
        name="surplus",
        subject=Subject.RUNNER,
        seen="It has been up for {surplus}, is online without a job, and its key has more supply than "
        "demand",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, t: e.surplus and at_work_for(e, t.surplus),
        needs=(record_is(RecordWord.IDLE), LOG_SHOWS_NO_JOB),
        retired=Retired.SURPLUS,
        invariants=("I24",),
    ),
    Rule(
        name="no-job-in-time",
        subject=Subject.RUNNER,
        seen="It has been up for {no_job}, is online, and got no job",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, t: at_work_for(e, t.no_job),
        needs=(record_is(RecordWord.IDLE), LOG_SHOWS_NO_JOB),
        retired=Retired.GIVEN_UP,
        invariants=("I24",),
    ),
    Rule(
        name="lingering",
        subject=Subject.RUNNER,
        seen="Its job completed {linger} ago, and its Pod still lives",
        done="Fence it, and retire it",
        action=Action.FENCE,
        holds=lambda e, t: e.state is _S.DONE and alive(e.pod) and e.since >= t.linger,
        retired=Retired.FINISHED,
        invariants=("I28",),
    ),
)
