"""Doing what a verdict says: dry-run, limited, fenced, and written down with its evidence.

Whatever goes wrong with a rule or with what it was told goes wrong a little at a time, and leaves a
trace by which it can be found (I29). What finds another row than the one it was decided for does
nothing (I32).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from prometheus_client import Counter

from paddock.domain.evidence import AnyEvidence, Evidence
from paddock.domain.ids import HostId, JobId, RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods import Pod
from paddock.domain.recovery import ActionTaken, Outcome
from paddock.domain.rules import Action, Verdict
from paddock.domain.runners import Runner
from paddock.ports import Clock, Store
from paddock.recovery.terms import RecoveryTerms

_log = structlog.get_logger()

#: A round, as limits count it: as long as it takes to read the fleet anew.
WINDOW: Final = 10.0
#: What was said once of a subject is not said again in every round. More subjects than this are not
#: troubled at once; the oldest entries make room.
_REMEMBERED: Final = 10_000

#: These do nothing, or nothing that could be too much: an end that was seen is recorded, a retirement
#: was begun by somebody, and each of its steps has guards of its own.
_UNLIMITED: Final = frozenset({Action.RETIRE, Action.PROTECT, Action.ALARM, Action.EXPLAIN})
#: The Pod was seen to have ended. It is routine too: its line in the log is `runner ended`.
_SEEN_TO_END: Final = frozenset({"pod-ended", "concluded"})
#: Told once while it lasts.
_TOLD_ONCE: Final = frozenset({Action.PROTECT, Action.ALARM, Action.LEAVE})

ACTIONS = Counter(
    "paddock_recovery_actions_total",
    "What recovery did, or would have done.",
    ["rule", "action", "outcome"],
)


@dataclass(frozen=True, slots=True)
class Decided:
    """What is to be done to a runner whose Pod is there, and why."""

    verdict: Verdict
    evidence: Evidence
    runner: Runner
    pod: Pod


class Acting:
    def __init__(self, *, store: Store, clock: Clock, terms: RecoveryTerms) -> None:
        self._store = store
        self._clock = clock
        self._terms = terms
        self._window = clock.monotonic()
        self._counted: dict[str | None, int] = {}
        self._told: dict[tuple[object, str, Outcome], None] = {}

    async def act(
        self,
        verdict: Verdict,
        evidence: AnyEvidence,
        do: Callable[[], Awaitable[bool]],
        *,
        runner: RunnerId | None = None,
        generation: int = 0,
        job: tuple[HostId, JobId] | None = None,
        pod_name: PodName | None = None,
    ) -> Outcome:
        """`do` says whether it found what the verdict was about."""
        outcome = self._withheld(verdict)
        if outcome is None:
            outcome = Outcome.DONE if await do() else Outcome.LOST_THE_RACE
        subject = (runner, generation, job, pod_name)
        if self._worth_telling(verdict, outcome, subject):
            taken = _taken(verdict, evidence, outcome, runner=runner, job=job, pod_name=pod_name)
            self._tell(taken)
            await self._store.record_action(taken)
        return outcome

    async def act_on_all(
        self,
        decided: Sequence[Decided],
        do: Callable[[Sequence[Decided]], Awaitable[Collection[RunnerId]]],
    ) -> None:
        """The same for many runners at once. `do` says for which of them it found what was decided."""
        outcomes = {each.runner.id: self._withheld(each.verdict) for each in decided}
        allowed = [each for each in decided if outcomes[each.runner.id] is None]
        done = await do(allowed) if allowed else ()
        taken = []
        for each in decided:
            runner = each.runner
            outcome = outcomes[runner.id] or (
                Outcome.DONE if runner.id in done else Outcome.LOST_THE_RACE
            )
            subject = (runner.id, runner.generation, None, runner.pod_name)
            if self._worth_telling(each.verdict, outcome, subject):
                taken.append(
                    _taken(
                        each.verdict,
                        each.evidence,
                        outcome,
                        runner=runner.id,
                        pod_name=runner.pod_name,
                    )
                )
                self._tell(taken[-1])
        if taken:
            await self._store.record_actions(taken)

    def _withheld(self, verdict: Verdict) -> Outcome | None:
        """Why it is not done; `None` if it may be."""
        assert verdict.rule is not None
        if self._terms.is_dry(verdict.rule):
            return Outcome.DRY_RUN
        return None if self._allowed(verdict) else Outcome.LIMITED

    def _allowed(self, verdict: Verdict) -> bool:
        if verdict.action in _UNLIMITED or verdict.rule in _SEEN_TO_END:
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

    def _worth_telling(self, verdict: Verdict, outcome: Outcome, subject: object) -> bool:
        """The steps of a retirement are in its row; what lasts is told when it begins."""
        if verdict.action is Action.RETIRE:
            return False
        if outcome is Outcome.DONE and verdict.action not in _TOLD_ONCE:
            return True
        assert verdict.rule is not None
        told = (subject, verdict.rule, outcome)
        if told in self._told:
            return False
        if len(self._told) >= _REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[told] = None
        return True

    def _tell(self, taken: ActionTaken) -> None:
        ACTIONS.labels(taken.rule, taken.action, taken.outcome).inc()
        log_at = _log.warning if taken.action == Action.ALARM else _log.info
        if taken.rule in _SEEN_TO_END:
            log_at = _log.debug
        log_at(
            "recovery.acted",
            rule=taken.rule,
            action=taken.action,
            outcome=taken.outcome,
            pod=taken.pod_name,
            job=taken.job and taken.job[1],
            why=taken.why,
        )


def _taken(
    verdict: Verdict,
    evidence: AnyEvidence,
    outcome: Outcome,
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
