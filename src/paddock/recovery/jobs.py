"""Jobs whose state here may not be GitHub's, and runners that ended without a reported job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

import msgspec

from paddock.dispatch.job_updates import JobUpdates
from paddock.domain.github.debts import MintOutcome
from paddock.domain.github.objects import Absent, JobRecord
from paddock.domain.ids import HostId, JobId, KeyId, RepositoryId, RunnerId
from paddock.domain.pods.fingerprints import Certainty
from paddock.domain.recovery.actions import EndedAction, JobAction, NoAction
from paddock.domain.recovery.diagnosis import diagnose
from paddock.domain.recovery.evidence import (
    EndedEvidence,
    JobEvidence,
    JobWord,
    RecordWord,
    job_on,
    job_word,
)
from paddock.domain.recovery.records import (
    DoubtTerms,
    JobInDoubt,
    OpenVerdict,
    PlacedJob,
    SupplyGrace,
)
from paddock.domain.recovery.rule import Question, Verdict
from paddock.domain.recovery.thresholds import RecoveryTerms
from paddock.domain.runners.endings import EndingEvidence, classify, says_it_had_a_job
from paddock.ports import Clock
from paddock.ports.recovery import JobRecoveryStore
from paddock.recovery.act import Acting
from paddock.recovery.gather import Gatherer, RoundView
from paddock.recovery.github_lookups import GitHubLookups, NoAnswer, RepositoryGone

#: Jobs examined in one round: of each account in turn, those least recently asked about (I26).
MOST: Final = 100
#: A runner's end is seen within seconds of its job's; its webhook is rarely later than this.
_RUNNER_GONE: Final = timedelta(seconds=30)
_UNASSIGNED: Final = (
    "GitHub has a runner for it, online and idle, and does not give it the job: see whether the "
    "runner group of its pool lets this repository use it"
)

_Job = tuple[HostId, JobId]


class JobRecovery:
    def __init__(
        self,
        *,
        store: JobRecoveryStore,
        clock: Clock,
        gatherer: Gatherer,
        asker: GitHubLookups,
        acting: Acting,
        terms: RecoveryTerms,
    ) -> None:
        self._store = store
        self._clock = clock
        self._gatherer = gatherer
        self._asker = asker
        self._acting = acting
        self._terms = terms
        self._updates = JobUpdates(store, clock)
        #: When GitHub last answered about a runner that ended, by the monotonic clock.
        self._asked: dict[RunnerId, float] = {}

    async def round(self, look: RoundView) -> bool:
        """Returns whether the next round may be late. It may not while a runner that ended counts as
        supply: a job may wait for that to end, or come and wait for it, and no wake-up tells."""
        await self._store.end_old_supply_graces()
        ended_supply = await self._store.supply_graces()
        supply_graces = await self._targets(ended_supply)
        jobs = await self._store.jobs_in_doubt(
            self._doubts(),
            also=sorted(supply_graces),
            unreadable=await self._unreadable(),
            limit=MOST,
        )
        idle_beside = self._gatherer.idle_beside(look)
        placed = await self._placed(jobs)
        for job in jobs:
            await self._examine(job, supply_graces.get((job.host, job.id)), placed, idle_beside)
        for ended in await self._store.open_verdicts(
            after=look.now - timedelta(seconds=self._terms.thresholds.verdict),
            until=look.now - timedelta(seconds=self._terms.thresholds.supply_grace),
            unreadable=await self._unreadable(),
            but=self._asked_lately(),
            limit=MOST,
        ):
            await self._examine_ended(ended)
        return not ended_supply

    async def _unreadable(self) -> list[RepositoryId]:
        """The repositories about which GitHub is not asked at present."""
        return await self._store.unreadable_repositories(self._asker.paused, apps=self._asker.apps)

    def _asked_lately(self) -> list[RunnerId]:
        """Runners that ended and were asked about within `recheck`: it is the turn of others."""
        now, recheck = self._clock.monotonic(), self._terms.thresholds.recheck
        self._asked = {id_: at for id_, at in self._asked.items() if now - at < recheck}
        return sorted(self._asked)

    async def _targets(self, supply_graces: Sequence[SupplyGrace]) -> dict[_Job, list[RunnerId]]:
        """The job to ask about for each ended runner: the job it was claimed for if that still waits,
        else the one that has waited longest. Without a waiting job no question is needed."""
        if not supply_graces:
            return {}
        per_key: dict[KeyId, list[SupplyGrace]] = {}
        for grace in supply_graces:
            per_key.setdefault(grace.key, []).append(grace)
        queued = await self._store.oldest_queued(sorted(per_key), limit=len(supply_graces))
        targets: dict[_Job, list[RunnerId]] = {}
        for key in sorted(per_key):
            waiting = list(queued.get(key, ()))
            for grace in per_key[key]:
                hint = None if grace.hint is None else (grace.host, grace.hint)
                job = hint if hint in waiting else next(iter(waiting), None)
                if job is not None:
                    targets.setdefault(job, []).append(grace.runner)
                    if len(waiting) > 1:
                        waiting.remove(job)
        return targets

    def _doubts(self) -> DoubtTerms:
        now, terms = self._clock.now(), self._terms.thresholds
        return DoubtTerms(
            gone_before=now - _RUNNER_GONE,
            asked_before=now - timedelta(seconds=terms.recheck),
            waiting_before=now - timedelta(seconds=terms.unassigned),
            expired_before=now - timedelta(seconds=terms.job_expired),
            running_before=now - timedelta(seconds=terms.in_progress),
            unheard_before=now - timedelta(seconds=terms.unheard),
        )

    async def _placed(self, jobs: Sequence[JobInDoubt]) -> Mapping[_Job, PlacedJob]:
        hosts: dict[HostId, list[JobId]] = {}
        for job in jobs:
            hosts.setdefault(job.host, []).append(job.id)
        return {
            (host, job): placed
            for host in sorted(hosts)
            for job, placed in (
                await self._store.placed_jobs(host, hosts[host], apps=self._asker.apps)
            ).items()
        }

    async def _examine(
        self,
        job: JobInDoubt,
        supply_graces: Sequence[RunnerId] | None,
        placed: Mapping[_Job, PlacedJob],
        idle_beside: Mapping[KeyId, float],
    ) -> None:
        found: JobRecord | None = None
        evidence = self._evidence(job, bool(supply_graces), idle_beside)
        verdict = diagnose(evidence, self._terms.thresholds)
        if verdict.question is not None:
            place = placed.get((job.host, job.id))
            answer = NoAnswer() if place is None else await self._asker.job(place)
            if answer is None:
                return
            found = answer if isinstance(answer, JobRecord) else None
            word = _word(answer)
            times = await self._store.note_job_check(
                job.host, job.id, answer=word, waits_because=job.waits_because
            )
            evidence = replace(evidence, word=word, word_age=0.0, times=times)
            verdict = diagnose(evidence, self._terms.thresholds)
        action = verdict.action
        if isinstance(action, NoAction):
            return
        place = placed.get((job.host, job.id))
        await self._acting.act(
            verdict,
            evidence,
            lambda: self._effect(action, verdict, job, found, place, supply_graces or ()),
            job=(job.host, job.id),
        )

    def _evidence(
        self, job: JobInDoubt, supply_grace: bool, idle_beside: Mapping[KeyId, float]
    ) -> JobEvidence:
        now = self._clock.now()
        return JobEvidence(
            state=job.state,
            since=(now - job.since).total_seconds(),
            queued=(now - job.queued_at).total_seconds(),
            executor=job.executor,
            supply=job.supply > 0,
            idle_beside=None if job.key is None else idle_beside.get(job.key),
            supply_grace=supply_grace,
            explained=job.waits_because is not None,
            word=job.answer,
            word_age=0.0 if job.checked_at is None else (now - job.checked_at).total_seconds(),
            times=job.times,
        )

    async def _effect(
        self,
        action: JobAction,
        verdict: Verdict[JobAction],
        job: JobInDoubt,
        found: JobRecord | None,
        place: PlacedJob | None,
        supply_graces: Sequence[RunnerId],
    ) -> bool:
        match action:
            case JobAction.APPLY | JobAction.INSERT:
                if found is None or place is None:
                    return False
                written = await self._updates.apply_jobs(
                    place.repository, [found], [job.id], why=f"{verdict.rule}: GitHub was asked"
                )
                await self._end(supply_graces)
                return bool(written)
            case JobAction.SERVE:
                await self._end(supply_graces)
                return True
            case JobAction.DEMOTE:
                return await self._store.demote_job(
                    job.host, job.id, why=f"{verdict.rule}: {verdict.why}"
                )
            case JobAction.STALE:
                return await self._store.expire_job(
                    job.host, job.id, state=job.state, why=f"{verdict.rule}: {verdict.why}"
                )
            case JobAction.EXPLAIN:
                await self._store.explain_job(job.host, job.id, waits_because=_UNASSIGNED)
                return True

    async def _end(self, supply_graces: Sequence[RunnerId]) -> None:
        for runner in supply_graces:
            await self._store.end_supply_grace(runner)

    async def _examine_ended(self, ended: OpenVerdict) -> None:
        written = msgspec.json.decode(ended.evidence, type=EndingEvidence)
        evidence = EndedEvidence(
            since=(self._clock.now() - ended.ended_at).total_seconds(),
            settled=classify(written).settled,
            says_it_had_a_job=says_it_had_a_job(written.fingerprint),
            record=_record_of(ended.outcome),
            hint=ended.hint,
        )
        told: tuple[PlacedJob, JobRecord] | None = None
        for _ in range(2):
            verdict = diagnose(evidence, self._terms.thresholds)
            if verdict.question is None:
                break
            if verdict.question is Question.RECORD:
                answered = await self._ask_record(ended, evidence)
            else:
                answered, told = await self._ask_job(ended, evidence)
            if answered is None:
                return
            self._asked[ended.runner] = self._clock.monotonic()
            evidence = answered
        verdict = diagnose(evidence, self._terms.thresholds)
        action = verdict.action
        if isinstance(action, NoAction):
            return
        await self._acting.act(
            verdict,
            evidence,
            lambda: self._effect_ended(action, verdict, ended, written, told),
            runner=ended.runner,
        )

    async def _ask_record(
        self, ended: OpenVerdict, evidence: EndedEvidence
    ) -> EndedEvidence | None:
        place = (await self._store.key_places([ended.key])).get(ended.key)
        if place is None or ended.name is None:
            return replace(evidence, record=RecordWord.UNREADABLE)
        word = await self._asker.record(place, ended.github_id, ended.name)
        return None if word is None else replace(evidence, record=word)

    async def _ask_job(
        self, ended: OpenVerdict, evidence: EndedEvidence
    ) -> tuple[EndedEvidence | None, tuple[PlacedJob, JobRecord] | None]:
        unreadable = replace(evidence, hinted=JobWord.UNREADABLE)
        if ended.hint_job is None:
            return unreadable, None
        placed = await self._store.placed_jobs(ended.host, [ended.hint_job], apps=self._asker.apps)
        place = placed.get(ended.hint_job)
        answer = NoAnswer() if place is None else await self._asker.job(place)
        if answer is None:
            return None, None
        if place is None or isinstance(answer, NoAnswer):
            return unreadable, None
        on = job_on(answer, github_id=ended.github_id, name=ended.name)
        known = replace(evidence, hinted=job_word(answer), hinted_on=on)
        return known, None if isinstance(answer, Absent) else (place, answer)

    async def _effect_ended(
        self,
        action: EndedAction,
        verdict: Verdict[EndedAction],
        ended: OpenVerdict,
        written: EndingEvidence,
        told: tuple[PlacedJob, JobRecord] | None,
    ) -> bool:
        match action:
            case EndedAction.APPLY:
                if told is None:
                    return False
                place, record = told
                learned = await self._updates.apply_jobs(
                    place.repository, [record], [place.job], why=f"{verdict.rule}: GitHub was asked"
                )
                return bool(learned)
            case EndedAction.REFINE:
                known = replace(written, job=Certainty.NO)
                classified = classify(known)
                await self._store.refine_verdict(
                    ended.runner,
                    ending=classified.ending,
                    why=classified.why,
                    evidence=msgspec.json.encode(known).decode(),
                )
                return True


def _word(answer: JobRecord | Absent | NoAnswer) -> JobWord:
    if isinstance(answer, RepositoryGone):
        return JobWord.REPOSITORY_GONE
    return JobWord.UNREADABLE if isinstance(answer, NoAnswer) else job_word(answer)


def _record_of(outcome: str | None) -> RecordWord:
    """What became of its record. If paddock could still remove it, GitHub had not removed it after a
    job."""
    if outcome is None:
        return RecordWord.NOT_ASKED
    return RecordWord.OFFLINE if outcome == MintOutcome.REMOVED else RecordWord.ABSENT
