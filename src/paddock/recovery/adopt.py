"""Pods that no row knows: after a restored backup, made by another client, or with a recorded end.

A sweep once deleted a stamped Pod without a claim, with a live build in it (I34). Here the Pod's runner
is searched for at GitHub (`recovery.search`). The Pod is protected until every scope has answered and
everything about it is understood. Then it gets a row, fenced, and retires like any other.

After a restored backup there may be thousands. They are examined beside recovery's rounds, never in
one: a round takes as long with them as without them (I81).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog

from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import Pod
from paddock.domain.recovery.actions import NoAction, PodAction
from paddock.domain.recovery.diagnosis import diagnose
from paddock.domain.recovery.evidence import LogWord, PodEvidence, RecordWord, pod_seen, record_word
from paddock.domain.recovery.rule import Question, Verdict
from paddock.domain.recovery.thresholds import RecoveryTerms
from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState
from paddock.forensics.conclusion import Conclusion
from paddock.ports import Clock, Fleet, Ids
from paddock.ports.errors import StoreError
from paddock.ports.recovery import AdoptionStore
from paddock.recovery.act import Acting
from paddock.recovery.gather import RoundView
from paddock.recovery.observe import PodView
from paddock.recovery.retire import Outlived, Retirement, RetireStep
from paddock.recovery.runner_log import RunnerLog
from paddock.recovery.search import RunnerSearch

_log = structlog.get_logger()

#: A fleet may show an ended Pod for a while after its deletion was asked for.
_GOING: Final = 30.0
#: Pods examined side by side: as many may wait five seconds for a log from a dead node.
_AT_ONCE: Final = 16
#: From the worst to the best: of several records, the one that may be at work counts.
_WORST: Final = (RecordWord.BUSY, RecordWord.IDLE, RecordWord.OFFLINE, RecordWord.ABSENT)


@dataclass(slots=True)
class _Known:
    """What was found out about one Pod, since it was first seen without a row."""

    uid: str
    since: datetime
    #: It is protected, and not examined again before then.
    rests_until: datetime | None = None
    record: RecordWord = RecordWord.NOT_ASKED
    record_at: datetime | None = None
    log: LogWord = LogWord.NOT_READ
    log_at: datetime | None = None
    outlived: Outlived = field(default_factory=Outlived)


class Adoption:
    def __init__(
        self,
        *,
        store: AdoptionStore,
        fleet: Fleet,
        clock: Clock,
        ids: Ids,
        view: PodView,
        search: RunnerSearch,
        acting: Acting,
        conclusion: Conclusion,
        retirement: Retirement,
        terms: RecoveryTerms,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._view = view
        self._search = search
        self._acting = acting
        self._conclusion = conclusion
        self._retirement = retirement
        self._terms = terms
        self._words = RunnerLog(fleet)
        self._known: dict[PodName, _Known] = {}

    async def round(self, look: RoundView) -> None:
        strangers = [pod for pod in await _strangers(look) if not self._is_going(pod)]
        names = {pod.name for pod in strangers}
        self._known = {name: known for name, known in self._known.items() if name in names}
        if not strangers:
            return
        # The look read rows before Pods: a Pod may have got its row in between.
        rows_now = await self._store.runners_of_pods([pod.name for pod in strangers])
        shapes = {pool.name: pool.shape for pool in await self._store.list_pools()}
        kept = await self._kept_for_their_logs()
        places = asyncio.Semaphore(_AT_ONCE)

        async def examine(pod: Pod, row: Runner | None) -> None:
            async with places:
                try:
                    await self._examine(pod, row, look, shapes)
                except StoreError as error:
                    # The Pod is examined again; its failure holds up no other (I57).
                    _log.warning(
                        "adoption.store_failed", pod=pod.name, pool=pod.pool, error=error.message
                    )

        async with asyncio.TaskGroup() as group:
            for pod in strangers:
                row = rows_now.get(pod.name)
                if _is_known(row, pod) or _just_concluded(row, pod, look.now) or pod.uid in kept:
                    continue
                if not self._rests(pod, look.now):
                    group.create_task(examine(pod, row))

    async def _kept_for_their_logs(self) -> set[str]:
        """UIDs of Pods whose end is recorded and whose log is still asked for (I79)."""
        return {each.pod_uid for each in await self._store.logs_wanted()}

    def _is_going(self, pod: Pod) -> bool:
        """It ended and is being deleted: there is nothing to do, unless that takes long."""
        deleted = pod.phase.terminal and pod.deletion_requested_at is not None
        return deleted and self._view.unchanged(pod) < _GOING

    def _rests(self, pod: Pod, now: datetime) -> bool:
        """It was found protected a moment ago, and has not ended since."""
        known = self._known.get(pod.name)
        if known is None or known.uid != pod.uid or pod.phase.terminal:
            return False
        return known.rests_until is not None and now < known.rests_until

    async def _examine(
        self, pod: Pod, row: Runner | None, look: RoundView, shapes: Mapping[str, str]
    ) -> None:
        known = self._known.get(pod.name)
        if known is None or known.uid != pod.uid:
            known = self._known[pod.name] = _Known(pod.uid, look.now)
        single = shapes.get(pod.pool) == "single"
        for _ in range(3):
            evidence = self._evidence(pod, row, known, look.now, single=single)
            verdict = diagnose(evidence, self._terms.thresholds)
            if verdict.question is None:
                break
            if not await self._ask(verdict.question, pod, known):
                return
        action = verdict.action
        if isinstance(action, NoAction):
            return
        if action is PodAction.PROTECT:
            # For as long as an answer is believed: thousands of Pods cost nothing in between.
            rest = timedelta(seconds=self._terms.thresholds.fresh)
            known.rests_until = look.now + rest
        await self._acting.act(
            verdict,
            evidence,
            lambda: self._effect(action, verdict, pod, row, known),
            pod_name=pod.name,
        )

    def _evidence(
        self, pod: Pod, row: Runner | None, known: _Known, now: datetime, *, single: bool
    ) -> PodEvidence:
        return PodEvidence(
            shape="single" if single else "gated",
            pod=pod_seen(pod, now=now, unchanged=self._view.unchanged(pod)),
            concluded=row is not None and row.pod_uid == pod.uid,
            stamped=pod.owner is not None,
            record=known.record,
            record_age=_age(known.record_at, now),
            log=known.log,
            log_age=_age(known.log_at, now),
        )

    async def _ask(self, question: Question, pod: Pod, known: _Known) -> bool:
        match question:
            case Question.RECORD:
                found = self._search.registrations(pod, since=known.since)
                known.record_at = self._clock.now()
                if found is None:
                    known.record, known.outlived.record = RecordWord.UNREADABLE, None
                    return True
                said = {record_word(each.record): each for each in found}
                known.record = next((word for word in _WORST if word in said), RecordWord.ABSENT)
                worst = said.get(known.record)
                known.outlived.record = worst.found() if worst is not None else None
                return True
            case Question.LOG:
                known.log, known.log_at = await self._words.of(pod), self._clock.now()
                return True
            case Question.JOB:  # no row says for which job it was claimed
                return False

    async def _effect(
        self,
        action: PodAction,
        verdict: Verdict[PodAction],
        pod: Pod,
        row: Runner | None,
        known: _Known,
    ) -> bool:
        match action:
            case PodAction.CONCLUDE:
                await self._conclusion.reap(pod)
                return True
            case PodAction.ADOPT:
                return await self._adopt(verdict, pod, row, known)
            case PodAction.PROTECT:
                return True

    async def _adopt(
        self, verdict: Verdict[PodAction], pod: Pod, row: Runner | None, known: _Known
    ) -> bool:
        if row is not None and pod.phase.terminal:
            await self._conclusion.reap(pod)
            return True
        if row is not None:
            step = await self._retirement.let_go(pod, known.outlived)
            return step not in (RetireStep.STOPPED, RetireStep.BUSY)
        adopted = await self._store.adopt_pod(
            pod,
            runner=RunnerId(self._ids.uuid()),
            delivery=self._ids.uuid(),
            record=known.outlived.record,
            why=f"{verdict.rule}: {verdict.why}",
        )
        if adopted is None and pod.phase.terminal:
            # paddock never knew its pool, so only this log line records that it ended.
            _log.warning("pod.ended_without_pool", pod=pod.name, pool=pod.pool)
        return adopted is not None


async def _strangers(look: RoundView) -> list[Pod]:
    """The Pods that no row of the look knows."""
    known = {runner.pod_name: runner.pod_uid for runner in look.runners}
    await asyncio.sleep(0)
    missing = object()
    return [
        pod
        for name, pod in look.pods.items()
        if (uid := known.get(name, missing)) is not None and uid != pod.uid
    ]


def _is_known(runner: Runner | None, pod: Pod) -> bool:
    """Whether a live row has seen this very Pod, or no Pod yet."""
    if runner is None or runner.state is RunnerState.GONE:
        return False
    return runner.pod_uid in (None, pod.uid)


def _age(then: datetime | None, now: datetime) -> float:
    return 0.0 if then is None else max(0.0, (now - then).total_seconds())


def _just_concluded(runner: Runner | None, pod: Pod, now: datetime) -> bool:
    """Its deletion was asked for a moment ago."""
    if runner is None or not pod.phase.terminal or runner.pod_uid != pod.uid:
        return False
    return (now - runner.since).total_seconds() < _GOING
