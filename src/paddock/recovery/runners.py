"""Runners whose rows are not `gone`: each is diagnosed, and the table's action is carried out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import msgspec
import structlog

from paddock.dispatch.job_updates import JobUpdates
from paddock.domain.ids import RunnerId
from paddock.domain.pods.pod import Pod
from paddock.domain.pools.terms import Terms
from paddock.domain.recovery.actions import NoAction, RunnerAction
from paddock.domain.recovery.diagnosis import diagnose
from paddock.domain.recovery.evidence import Evidence, JobWord, On
from paddock.domain.recovery.records import ActionOutcome, ActionTaken
from paddock.domain.recovery.retiring import RETIRING
from paddock.domain.recovery.rule import Verdict
from paddock.domain.recovery.thresholds import RecoveryTerms, Thresholds
from paddock.domain.runners.endings import Retired
from paddock.domain.runners.runner import Conflict, Runner
from paddock.forensics.conclusion import Concluded, Conclusion
from paddock.log_events import runner_fields
from paddock.ports import Clock
from paddock.ports.recovery import RunnerRecoveryStore
from paddock.recovery.act import Acting, Decided
from paddock.recovery.gather import Gatherer, RoundView
from paddock.recovery.github_lookups import GitHubLookups
from paddock.recovery.retire import Retirement

_log = structlog.get_logger()

#: GitHub's record, the log, the job, and one more question that an answer may raise.
_QUESTIONS: Final = 4

_Move = Literal[RunnerAction.FENCE, RunnerAction.FORCE, RunnerAction.OCCUPY, RunnerAction.RELEASE]


class RunnerRecovery:
    def __init__(
        self,
        *,
        store: RunnerRecoveryStore,
        clock: Clock,
        gatherer: Gatherer,
        acting: Acting,
        conclusion: Conclusion,
        retirement: Retirement,
        asker: GitHubLookups,
        terms: RecoveryTerms,
    ) -> None:
        self._store = store
        self._gatherer = gatherer
        self._acting = acting
        self._conclusion = conclusion
        self._retirement = retirement
        self._asker = asker
        self._terms = terms
        self._updates = JobUpdates(store, clock)

    async def conclude_ended(
        self, ended: Sequence[tuple[Runner, Pod]], look: RoundView
    ) -> tuple[list[Concluded], list[Pod]]:
        """Record the ends of runners whose Pods are terminal. Returns those that this call recorded,
        and the Pods of those whose row had moved on meanwhile: GitHub reports a job's end at the same
        moment."""
        decided = []
        for runner, pod in ended:
            evidence = self._gatherer.evidence(runner, look)
            verdict = diagnose(evidence, self._thresholds(runner, look))
            if verdict.action is RunnerAction.CONCLUDE:
                decided.append(Decided(verdict, evidence, runner, pod))
        concluded: list[Concluded] = []
        moved_on: list[Pod] = []

        async def conclude(those: Sequence[Decided]) -> set[RunnerId]:
            concluded.extend(
                await self._conclusion.conclude([(each.runner, each.pod) for each in those])
            )
            ours = {each.runner.id for each in concluded}
            moved_on.extend(each.pod for each in those if each.runner.id not in ours)
            return ours

        await self._acting.act_on_all(decided, conclude)
        return concluded, moved_on

    async def at_a_glance(self, runner: Runner, look: RoundView) -> bool:
        """Conclude its end if that takes no question and no request to GitHub; returns whether it
        did."""
        evidence = self._gatherer.evidence(runner, look)
        verdict = diagnose(evidence, self._thresholds(runner, look))
        if verdict.action is not RunnerAction.CONCLUDE:
            return False
        await self._do(runner, look, verdict.action, verdict, evidence)
        return True

    async def examine(self, runner: Runner, look: RoundView) -> Verdict[RunnerAction]:
        """Ask what has to be asked, and do what follows."""
        thresholds = self._thresholds(runner, look)
        evidence = self._gatherer.evidence(runner, look)
        verdict = diagnose(evidence, thresholds)
        for _ in range(_QUESTIONS):
            if verdict.question is None:
                break
            if not await self._gatherer.ask(verdict.question, runner, look):
                return verdict
            evidence = self._gatherer.evidence(runner, look)
            verdict = diagnose(evidence, thresholds)
        if not isinstance(verdict.action, NoAction):
            await self._do(runner, look, verdict.action, verdict, evidence)
        return verdict

    def _thresholds(self, runner: Runner, look: RoundView) -> Thresholds:
        pool = look.pools.get(runner.pool)
        if pool is None:
            return self._terms.thresholds
        return with_pools_own(self._terms.thresholds, pool.spec)

    async def _do(
        self,
        runner: Runner,
        look: RoundView,
        action: RunnerAction,
        verdict: Verdict[RunnerAction],
        evidence: Evidence,
    ) -> None:
        await self._acting.act(
            verdict,
            evidence,
            lambda: self._effect(runner, look, action, verdict, evidence),
            runner=runner.id,
            generation=runner.generation,
            pod_name=runner.pod_name,
            row=runner,
        )

    async def _effect(
        self,
        runner: Runner,
        look: RoundView,
        action: RunnerAction,
        verdict: Verdict[RunnerAction],
        evidence: Evidence,
    ) -> bool:
        """Carry out the action; false if its subject has changed since the verdict."""
        match action:
            case RunnerAction.CONCLUDE:
                return await self._conclusion.conclude_vanished(runner)
            case RunnerAction.RETIRE:
                return await self._retire(runner, look, look.pod_of(runner), evidence)
            case RunnerAction.APPLY:
                return await self._apply(runner)
            case RunnerAction.PROTECT | RunnerAction.ALARM:
                return True
            case RunnerAction.SUSPECT:
                return await self._suspect(runner, look)
            case (
                RunnerAction.FENCE | RunnerAction.FORCE | RunnerAction.OCCUPY | RunnerAction.RELEASE
            ):
                return isinstance(await self._move(runner, action, verdict, evidence), Runner)

    async def _suspect(self, runner: Runner, look: RoundView) -> bool:
        suspect = await self._store.suspect_runner(runner.id, generation=runner.generation)
        if isinstance(suspect, Conflict):
            return False
        if runner.key is not None:
            look.suspected[runner.key] = look.suspected.get(runner.key, 0) + 1
        return True

    async def _move(
        self,
        runner: Runner,
        action: _Move,
        verdict: Verdict[RunnerAction],
        evidence: Evidence,
    ) -> Runner | Conflict:
        """To another state, by compare-and-set."""
        written = msgspec.json.encode(evidence).decode()
        match action:
            case RunnerAction.FENCE:
                return await self._store.fence_runner(
                    runner.id,
                    generation=runner.generation,
                    state=runner.state,
                    why=f"{verdict.rule}: {verdict.why}",
                    evidence=written,
                    retired=verdict.retired or Retired.GIVEN_UP,
                    unregistered=verdict.by is not None and verdict.by.unregistered,
                )
            case RunnerAction.FORCE:
                return await self._store.force_runner(
                    runner.id,
                    generation=runner.generation,
                    state=runner.state,
                    why=f"{verdict.rule}: {verdict.why}",
                    evidence=written,
                )
            case RunnerAction.OCCUPY:
                named = evidence.hinted is JobWord.IN_PROGRESS and evidence.hinted_on is On.THIS
                return await self._store.occupy_runner(
                    runner.id,
                    generation=runner.generation,
                    job=runner.hint if named else runner.job,
                    why=f"{verdict.rule}: {verdict.why}",
                    evidence=written,
                )
            case RunnerAction.RELEASE:
                # GitHub may have made a record under the name: it stays a debt (I41).
                why = f"{verdict.rule}: {verdict.why}"
                released = await self._store.release_runner(
                    runner.id, generation=runner.generation, why=why, no_record_because=None
                )
                if isinstance(released, Runner):
                    _log.info("claim.released", **runner_fields(runner), why=why)
                return released

    async def _retire(
        self, runner: Runner, look: RoundView, pod: Pod | None, evidence: Evidence
    ) -> bool:
        if pod is None or look.read_at is None:
            return True
        place = look.places.get(runner.key) if runner.key is not None else None
        asks = runner.deregistered_at is None and place is not None and runner.forced_by is None
        if asks and place is not None and not self._asker.may_ask(place.who, place.scope):
            return True
        step = await self._retirement.go_on(runner, pod, seen_at=look.read_at, places=look.places)
        if step.progress:
            await self._store.record_action(
                ActionTaken(
                    rule=RETIRING.name,
                    action=step,
                    outcome=ActionOutcome.DONE,
                    why=runner.retire_reason or "",
                    evidence=msgspec.json.encode(evidence).decode(),
                    runner=runner.id,
                    pod_name=runner.pod_name,
                )
            )
        return True

    async def _apply(self, runner: Runner) -> bool:
        told = self._gatherer.told(runner)
        if told is None:
            return False
        placed, record = told
        written = await self._updates.apply_jobs(
            placed.repository, [record], [placed.job], why="GitHub was asked"
        )
        return bool(written)


@functools.lru_cache(maxsize=256)
def with_pools_own(thresholds: Thresholds, spec: str) -> Thresholds:
    """A pool says how long its own Pods may take to start, and to find a host."""
    try:
        terms = Terms.of(spec)
    except ValueError:
        return thresholds
    return replace(
        thresholds,
        boot=terms.start_timeout.total_seconds(),
        unschedulable=terms.scheduling_timeout.total_seconds(),
    )
