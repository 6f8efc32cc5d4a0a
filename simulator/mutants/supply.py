"""Runners for jobs: too many, too few, too late, in the wrong place, of a version that GitHub
refuses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from paddock.domain.limits import NOTHING
from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.evidence import Subject
from paddock.domain.recovery.rule import Rule
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.runners.runner import WaitingPods
from paddock.domain.states import RunnerState
from paddock.forensics.conclusion import Conclusion
from paddock.pools.hosts import Hosts
from paddock.recovery import gather
from paddock.recovery.jobs import JobRecovery
from paddock.store import matching
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import (
    before,
    mutant,
    routine,
    statement,
    swapped,
    table,
    without,
)


@mutant(
    "serve-again-without-asking",
    "S2",
    "A runner that ended without a reported job is replaced at once; GitHub is not asked for its job.",
    "short-job",
    breaks=Promise.ENOUGH,
)
def _serve_without_asking(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(Conclusion, "_supply_grace_until", lambda *_: None))


@mutant(
    "rests-while-supply-lasts",
    "I68",
    "Recovery rests as soon as all runners wait, though one that ended still counts as supply.",
    "job-after-an-end",
    breaks=Promise.PROMPT,
)
def _rests_while_supply_lasts(undo: ExitStack, _session: Session) -> None:
    round_ = vars(JobRecovery)["round"]

    async def resting(self: Any, look: Any) -> bool:
        await round_(self, look)
        return True

    undo.enter_context(swapped(JobRecovery, "round", resting))


@mutant(
    "age-ends-running",
    "I27",
    "A runner that has been running or busy for two minutes is taken for dead.",
    "long-job",
    breaks=Promise.VERDICT,
    also="that rounds pass over runners that work",
)
def _age_ends_running(undo: ExitStack, _session: Session) -> None:
    too_old: Rule[Any, Any] = Rule(
        name="too-old",
        subject=Subject.RUNNER,
        seen="It has been running for two minutes",
        done="Conclude it",
        action=RunnerAction.CONCLUDE,
        holds=lambda e, _: e.state in (RunnerState.RUNNING, RunnerState.BUSY) and e.since >= 120,
    )
    undo.enter_context(table(Subject.RUNNER, before("pod-ended", too_old)))
    undo.enter_context(swapped(gather, "_seems_to_work", lambda *_: False))


@mutant(
    "capacity-freed-job-unserved",
    "I31",
    "A runner that ended frees its place, and counts as supply for its job for ever.",
    "leaves",
    breaks=Promise.SERVED,
    also="the look-up that ends the wait early",
)
def _job_unserved(undo: ExitStack, _session: Session) -> None:
    def for_ever(self: Any, *_: object) -> datetime:
        now: datetime = self._clock.now()
        return now + timedelta(days=30)

    async def nothing(self: Any, _graces: object) -> None: ...

    undo.enter_context(swapped(Conclusion, "_supply_grace_until", for_ever))
    undo.enter_context(swapped(JobRecovery, "_end", nothing))


@mutant(
    "dispatched-counted-again",
    "I73",
    "Jobs that a runner is on its way to count as demand until they have begun.",
    "one-job",
    breaks=Promise.ENOUGH,
)
def _counted_again(undo: ExitStack, session: Session) -> None:
    undo.enter_context(
        routine(
            session,
            "demand",
            ("coalesce(h.supply, 0) + coalesce(e.supply, 0) AS served", "0 AS served"),
        )
    )


@mutant(
    "left-out-served",
    "I16",
    "A match takes every Pod that it chose for its own, though another had claimed it meanwhile.",
    "match-unanswered",
    breaks=Promise.LIMIT,
)
def _left_out_served(undo: ExitStack, _session: Session) -> None:
    claim = matching.Matching._claim  # noqa: SLF001

    async def all_of_them(self: Any, *written: Any) -> Any:
        await claim(self, *written)
        return ()

    undo.enter_context(swapped(matching.Matching, "_claim", all_of_them))


@mutant(
    "suspects-without-bound",
    "I74",
    "Every late runner is replaced, however many are late.",
    "none-registers",
    breaks=Promise.ENOUGH,
)
def _suspects_without_bound(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("too-many-suspects")))


@mutant(
    "stale-claim-always-released",
    "I70",
    "A stale claim is released also under a Pod that may hold its JIT.",
    "restored-claim",
    breaks=Promise.LIMIT,
    also="the rule that leaves a doubtful claim alone",
)
def _stale_claim_always_released(undo: ExitStack, _session: Session) -> None:
    def change(table: tuple[Rule[Any, Any], ...]) -> Sequence[Rule[Any, Any]]:
        return [
            replace(rule, holds=_stale) if rule.name == "stale-claim" else rule
            for rule in without("claim-in-doubt")(table)
        ]

    def _stale(e: Any, t: Thresholds) -> bool:
        claimed: bool = e.state is RunnerState.CLAIMED and e.mint_overdue
        return claimed and e.since >= t.stale_claim

    undo.enter_context(table(Subject.RUNNER, change))


@mutant(
    "unapproved-never-asked",
    "I12",
    "A job that waits for its approval is left to webhooks.",
    "cancelled-unapproved",
    breaks=Promise.KNOWN,
)
def _unapproved_never_asked(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.JOB, without("still-waiting")))


@mutant(
    "stays-with-a-stranger",
    "I37",
    "A job that is on a runner unknown to paddock is left there, even if GitHub says otherwise.",
    "given-back",
    breaks=Promise.SERVED,
)
def _stays_with_a_stranger(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.JOB, without("given-back")))


@mutant(
    "old-pods-at-new-cost",
    "I48",
    "Pods of a pool that was described anew count for what a new one would cost.",
    "described-cheaper",
    breaks=Promise.LIMIT,
)
def _old_pods_at_new_cost(undo: ExitStack, _session: Session) -> None:
    decision = matching._decision  # noqa: SLF001

    def cheaply(waiting: WaitingPods, *rest: Any) -> Any:
        cheap = (msgspec.structs.replace(pod, cost=NOTHING) for pod in waiting)
        return decision(WaitingPods(cheap), *rest)

    undo.enter_context(swapped(matching, "_decision", cheaply))


@mutant(
    "unfit-hosts-taken",
    "I51",
    "New Pods are put on hosts that are unfit by their own word.",
    "host-unfit",
    breaks=Promise.FIT,
)
def _unfit_hosts_taken(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(Hosts, "unfit", lambda _self: ()))


@mutant(
    "failed-starts-forgotten",
    "I51",
    "New Pods are put on hosts on which the last ones never started.",
    "host-starts-none",
    breaks=Promise.FIT,
)
def _failed_starts_forgotten(undo: ExitStack, _session: Session) -> None:
    async def none(_self: Any) -> tuple[str, ...]:
        return ()

    undo.enter_context(swapped(Hosts, "avoided", none))


@mutant(
    "refused-version-claimed",
    "runner#4305",
    "The matcher claims Pods although GitHub has told that it refuses their version.",
    "version-refused",
    breaks=Promise.ACCEPTED,
)
def _refused_version_claimed(undo: ExitStack, session: Session) -> None:
    undo.enter_context(routine(session, "demand", ("AND is_refused(v, moment)", "AND false")))


@mutant(
    "refused-runner-stops-nothing",
    "runner#3366",
    "A runner that exits because GitHub refused its version does not stop the version.",
    "version-refused-unannounced",
    breaks=Promise.ACCEPTED,
)
def _refused_runner_stops_nothing(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        statement("versions", "refuse", ("WHERE runner_version IS NOT NULL", "WHERE false"))
    )
