"""Doing what a verdict says: dry-run, limited, fenced, and recorded with its evidence.

A rule or an answer that is wrong does limited harm per round, and leaves a record by which it is found
(I29). An action does nothing if its row has changed since the decision (I32).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from prometheus_client import Counter

from paddock.domain.ids import HostId, JobId, RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import Pod
from paddock.domain.recovery.actions import AnyAction, JobAction, PodAction, RunnerAction
from paddock.domain.recovery.evidence import AnyEvidence, Evidence
from paddock.domain.recovery.records import ActionOutcome, ActionTaken
from paddock.domain.recovery.rule import Verdict
from paddock.domain.recovery.thresholds import RecoveryTerms
from paddock.domain.runners.runner import Runner
from paddock.log_events import RunnerFields, runner_fields
from paddock.ports import Clock
from paddock.ports.jobs import ActionStore

_log = structlog.get_logger()

#: A round, as limits count it: the time in which the fleet is read anew.
WINDOW: Final = 10.0
#: What was recorded once about a subject is not recorded again in every round. More subjects than this
#: are not affected at once; the oldest entries make room.
_REMEMBERED: Final = 10_000

#: These need no limit: a step of a retirement has guards of its own, and the others only record.
_UNLIMITED: Final = frozenset[AnyAction](
    {
        RunnerAction.RETIRE,
        RunnerAction.PROTECT,
        RunnerAction.ALARM,
        PodAction.PROTECT,
        JobAction.EXPLAIN,
    }
)
#: Recorded once while it lasts.
_RECORDED_ONCE: Final = frozenset[AnyAction](
    {RunnerAction.PROTECT, RunnerAction.ALARM, PodAction.PROTECT}
)

ACTIONS = Counter(
    "paddock_recovery_actions_total",
    "What recovery did, or would have done.",
    ["rule", "action", "outcome"],
)


@dataclass(frozen=True, slots=True)
class Decided:
    """What is to be done to a runner whose Pod is there, and why."""

    verdict: Verdict[RunnerAction]
    evidence: Evidence
    runner: Runner
    pod: Pod


class Acting:
    def __init__(self, *, store: ActionStore, clock: Clock, terms: RecoveryTerms) -> None:
        self._store = store
        self._clock = clock
        self._terms = terms
        self._window = clock.monotonic()
        self._counted: dict[str | None, int] = {}
        self._recorded: dict[tuple[object, str, ActionOutcome], None] = {}

    async def act(
        self,
        verdict: Verdict[AnyAction],
        evidence: AnyEvidence,
        do: Callable[[], Awaitable[bool]],
        *,
        runner: RunnerId | None = None,
        generation: int = 0,
        job: tuple[HostId, JobId] | None = None,
        pod_name: PodName | None = None,
        row: Runner | None = None,
    ) -> ActionOutcome:
        """`do` returns false if its subject has changed since the verdict. `row`: for the log."""
        outcome = self._withheld(verdict)
        if outcome is None:
            outcome = ActionOutcome.DONE if await do() else ActionOutcome.LOST_THE_RACE
        subject = (runner, generation, job, pod_name)
        if self._worth_recording(verdict, outcome, subject):
            taken = _taken(verdict, evidence, outcome, runner=runner, job=job, pod_name=pod_name)
            _log_action(taken, verdict, row)
            await self._store.record_action(taken)
        return outcome

    async def act_on_all(
        self,
        decided: Sequence[Decided],
        do: Callable[[Sequence[Decided]], Awaitable[Collection[RunnerId]]],
    ) -> None:
        """The same for many runners at once. `do` returns those that had not changed since the
        verdict."""
        outcomes = {each.runner.id: self._withheld(each.verdict) for each in decided}
        allowed = [each for each in decided if outcomes[each.runner.id] is None]
        done = await do(allowed) if allowed else ()
        taken = []
        for each in decided:
            runner = each.runner
            outcome = outcomes[runner.id] or (
                ActionOutcome.DONE if runner.id in done else ActionOutcome.LOST_THE_RACE
            )
            subject = (runner.id, runner.generation, None, runner.pod_name)
            if self._worth_recording(each.verdict, outcome, subject):
                taken.append(
                    _taken(
                        each.verdict,
                        each.evidence,
                        outcome,
                        runner=runner.id,
                        pod_name=runner.pod_name,
                    )
                )
                _log_action(taken[-1], each.verdict, runner)
        if taken:
            await self._store.record_actions(taken)

    def _withheld(self, verdict: Verdict[AnyAction]) -> ActionOutcome | None:
        """Why it is not done; `None` if it may be."""
        assert verdict.rule is not None
        if self._terms.is_dry(verdict.rule):
            return ActionOutcome.DRY_RUN
        return None if self._allowed(verdict) else ActionOutcome.LIMITED

    def _allowed(self, verdict: Verdict[AnyAction]) -> bool:
        assert verdict.by is not None
        if verdict.action in _UNLIMITED or verdict.by.seen_to_end:
            return True
        if self._clock.monotonic() - self._window >= WINDOW:
            self._window = self._clock.monotonic()
            self._counted.clear()
        for subject, most in (
            (verdict.rule, self._terms.per_rule),
            (None, self._terms.per_round),
        ):
            if self._counted.get(subject, 0) >= most:
                return False
        for subject in (verdict.rule, None):
            self._counted[subject] = self._counted.get(subject, 0) + 1
        return True

    def _worth_recording(
        self, verdict: Verdict[AnyAction], outcome: ActionOutcome, subject: object
    ) -> bool:
        """The steps of a retirement are in its row; what lasts is recorded when it begins."""
        if verdict.action is RunnerAction.RETIRE:
            return False
        if outcome is ActionOutcome.DONE and verdict.action not in _RECORDED_ONCE:
            return True
        assert verdict.rule is not None
        recorded = (subject, verdict.rule, outcome)
        if recorded in self._recorded:
            return False
        if len(self._recorded) >= _REMEMBERED:
            del self._recorded[next(iter(self._recorded))]
        self._recorded[recorded] = None
        return True


def _log_action(taken: ActionTaken, verdict: Verdict[AnyAction], row: Runner | None) -> None:
    assert verdict.by is not None
    ACTIONS.labels(taken.rule, taken.action, taken.outcome).inc()
    log_at = _log.warning if verdict.action is RunnerAction.ALARM else _log.info
    if verdict.by.seen_to_end:
        log_at = _log.debug
    fields = RunnerFields(
        job=taken.job and taken.job[1],
        runner=None,
        pod=taken.pod_name,
        account=None,
        pool=None,
    )
    log_at(
        "recovery.acted",
        **(fields if row is None else runner_fields(row)),
        rule=taken.rule,
        action=taken.action,
        outcome=taken.outcome,
        why=taken.why,
    )


def _taken(
    verdict: Verdict[AnyAction],
    evidence: AnyEvidence,
    outcome: ActionOutcome,
    *,
    runner: RunnerId | None,
    job: tuple[HostId, JobId] | None = None,
    pod_name: PodName | None,
) -> ActionTaken:
    assert verdict.rule is not None
    return ActionTaken(
        rule=verdict.rule,
        action=verdict.action,
        outcome=outcome,
        why=verdict.why,
        evidence=msgspec.json.encode(evidence).decode(),
        runner=runner,
        job=job,
        pod_name=pod_name,
    )
