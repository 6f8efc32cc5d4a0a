"""A claim that stays a claim: its mint was never finished.

**What stuck means.** The runner's row is `claimed`: it was matched to a demand key, its name is
written, it holds a place of its account and counts as supply. Its JIT is not stored. As long as that
lasts, one job fewer is served.

**How it should go.** The replica that made the claim sends one request to GitHub, which answers in
well under a second. The JIT is sealed and stored, and the row is `armed`. If GitHub refuses, the
replica releases the claim itself, with a back-off for the narrowest scope.

**How it goes wrong.** The replica dies between claim and JIT, or it cannot write the result. Then no
replica knows of the mint. What happens, in seconds after the claim:

    30     `MINT_GIVEN_UP`: the GitHub client would have ended the request
    45     `MINT_DEADLINE`, in the row, has passed. The Pod's poller asks again within its long poll,
           and the replica that it asks takes the claim over: new generation, fresh name, a new mint
           (`dispatch.dispatcher`, `store.matching.take_over_claim`). The old name becomes a debt: if
           GitHub made a record under it, `dispatch.debts` deletes that record.
    60     `MINT_SETTLED`: whether GitHub has a record under the old name is now certain, so the debt
           may be paid
    300    `stale_claim`: recovery looks, here. It is still the same claim: no poll has reached a
           replica, or each take-over has failed.

**What paddock does.** If the poller still polls, it cannot hold a JIT: `stale-claim` releases the
claim. The row is `idle` again, the key's supply falls by one, and the next match serves the job. The
name stays a debt. If the Pod may hold a JIT that the row does not know of, `claim-in-doubt` fences
the runner instead: its poller has ended, which it does only with a JIT, or one container polls and
runs, and shows neither. That happens after a restored backup, whose rows are older than the Pods
(I70).

**Why these thresholds.** If a claim could be taken over before its request ends, two replicas could
mint for one Pod. If the debt were paid before the request ends, a record made a moment later would be
left at GitHub for ever. 300 s is many times the 45 s after which a poll takes over, and a poll comes
at least every 50 s: a claim this old has had five chances. Sooner, recovery would compete with
take-overs that are on their way. Later, a place of the account is held for nothing.

**Why it cannot hurt a live job.** A release needs a poller that polls, so no JIT was delivered and no
runner process exists. The write is a compare-and-set on state `claimed` and the generation: a mint
that finished meanwhile made the row `armed`, and the release finds nothing. A JIT that arrives later
finds the row not claimed, or in another generation, and is thrown away. A fence only stops dispatch;
it requires that GitHub does not call the runner busy and that its log shows no job, and the Pod is
deleted only by `paddock.recovery.retire`.

**What it does not cover.** A mint that GitHub refuses: its replica releases the claim at once. A JIT
that is stored and not fetched: `undelivered`. A Pod that is unscheduled, gone or ended: `pod_gone`,
`pod_ended`. A Pod whose deletion was requested: `deletion_requested`, which is earlier in the table.
The record that a lost mint may have made at GitHub: `paddock.dispatch.debts`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.durations import MINUTE, seconds
from paddock.domain.recovery.evidence import Container, Evidence, Subject
from paddock.domain.recovery.predicates import alive
from paddock.domain.recovery.required_answers import NO_JOB_ON_IT
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.endings import Retired
from paddock.domain.states import RunnerState

if TYPE_CHECKING:
    from paddock.domain.recovery.thresholds import Thresholds

#: GitHub answers a mint in well under a second, and gives up on a request itself after 10 s. Single
#: reads have a limit of their own; this one ends an answer that arrives byte by byte. It limits each
#: request to GitHub, mints among them.
MINT_GIVEN_UP: Final = timedelta(seconds=30)

#: The row's `mint_deadline`. Half of `MINT_GIVEN_UP` more than that: time for the write after the
#: answer, and for clocks of replicas that differ by seconds.
MINT_DEADLINE: Final = timedelta(seconds=45)

#: Twice `MINT_GIVEN_UP`: a request that was sent at its last moment has had its effect at GitHub.
#: Before this, "there is no record under this name" may be true only for now.
MINT_SETTLED: Final = timedelta(seconds=60)

#: Greater than `MINT_SETTLED`; a test holds the order.
STALE_CLAIM_DEFAULT: Final = seconds(
    5 * MINUTE,
    "a mint's request is given up after 30 seconds, and a poll of its Pod takes the claim over after "
    "45; a claim that is this old was missed by five polls",
)


def _is_stale(e: Evidence, t: Thresholds) -> bool:
    claimed = e.state is RunnerState.CLAIMED and alive(e.pod)
    return claimed and e.mint_overdue and e.since >= t.stale_claim


def _may_hold_a_jit(e: Evidence) -> bool:
    """A restored backup may have taken back the row: what the Pod shows decides (I70)."""
    polls = e.pod.poller is Container.STARTED or e.pod.poller.never_ran
    return e.shape == "single" or not polls


CLAIM_IN_DOUBT: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="claim-in-doubt",
    subject=Subject.RUNNER,
    seen="It has been claimed for {stale_claim}, its mint's deadline has passed, and it may hold a "
    "JIT that its row does not know of: its poller has ended, or is one with its runner",
    done="Fence it, and retire it",
    action=RunnerAction.FENCE,
    holds=lambda e, t: _is_stale(e, t) and _may_hold_a_jit(e),
    needs=NO_JOB_ON_IT,
    retired=Retired.GIVEN_UP,
    invariants=("I41", "I70"),
)

STALE_CLAIM: Final[Rule[Evidence, RunnerAction]] = Rule(
    name="stale-claim",
    subject=Subject.RUNNER,
    seen="It has been claimed for {stale_claim}, its mint's deadline has passed, and its poller "
    "still polls",
    done="Settle the mint; back to idle",
    action=RunnerAction.RELEASE,
    holds=lambda e, t: _is_stale(e, t) and not _may_hold_a_jit(e),
    invariants=("I28", "I41"),
)
