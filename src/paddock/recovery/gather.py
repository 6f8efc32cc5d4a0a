"""Evidence: what the rows, the fleet and (for suspects) GitHub and the runner itself say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from typing import Final

from paddock.domain.github.objects import Absent, JobRecord
from paddock.domain.ids import AccountId, KeyId, PoolId, RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import Pod
from paddock.domain.pools.pool import PoolSummary
from paddock.domain.recovery.evidence import (
    Evidence,
    JobWord,
    LogWord,
    On,
    PodSeen,
    RecordWord,
    job_on,
    job_word,
    pod_absent,
    pod_seen,
    polls,
    runs,
)
from paddock.domain.recovery.records import Balance, JobWords, KeyPlace, PlacedJob
from paddock.domain.recovery.rule import Question
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.runners.runner import Runner
from paddock.domain.states import JobState, RunnerState
from paddock.ports import Clock, Fleet
from paddock.ports.recovery import EvidenceStore
from paddock.recovery.github_lookups import GitHubLookups, NoAnswer
from paddock.recovery.observe import PodView, by_name
from paddock.recovery.runner_log import RunnerLog

#: A key's recent runners are those whose JITs were acknowledged within this.
RECENT: Final = timedelta(minutes=10)
#: Dispatch answers Pods if some Pod was heard within this: dispatch holds a request for 50 s at most,
#: and notes it in the store within 10 s.
HEARD: Final = timedelta(seconds=70)
#: Silence counts only after dispatch has answered Pods for this long without a pause. A refused poller
#: tries again within half a minute, so an outage of dispatch no longer explains its silence (I29).
ANSWERING: Final = 120.0
#: A clock that moves by more than this between two looks has jumped: what was heard before cannot be
#: compared with what is heard since (I82).
JUMP: Final = 5.0
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
#: Runners looked over in one go, some 1 ms: Pods are answered in between.
_LOOKED_OVER_AT_ONCE: Final = 2048


@dataclass(slots=True)
class _Answers:
    """What was asked about one runner, and when it was answered."""

    record: RecordWord = RecordWord.NOT_ASKED
    record_at: datetime | None = None
    log: LogWord = LogWord.NOT_READ
    log_at: datetime | None = None
    hinted: JobWord = JobWord.NOT_ASKED
    hinted_on: On = On.NO_RUNNER
    hinted_at: datetime | None = None
    job: tuple[PlacedJob, JobRecord] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """One round's look at everything that costs no question."""

    now: datetime
    runners: list[Runner]
    pods: Mapping[PodName, Pod]
    #: Whether a Pod that is not in `pods` is missing.
    complete: bool
    read_at: datetime | None
    pools: Mapping[PoolId, PoolSummary] = field(default_factory=dict)
    balances: Mapping[KeyId, Balance] = field(default_factory=dict)
    words: Mapping[RunnerId, JobWords] = field(default_factory=dict)
    places: Mapping[KeyId, KeyPlace] = field(default_factory=dict)
    #: How often it was confirmed that an account has removed the App.
    removals: Mapping[AccountId, int] = field(default_factory=dict)
    surplus: frozenset[RunnerId] = frozenset()
    last_heard: tuple[datetime | None, datetime | None] = (None, None)
    answering: bool = False
    #: How many became suspect since this look, by key: a round that suspects many must notice it in
    #: time (I74).
    suspected: dict[KeyId, int] = field(default_factory=dict)

    def suspects(self, key: KeyId | None) -> tuple[int, int]:
        """Of a key's recent runners: how many are suspect now, and how many there are."""
        balance = self.balances.get(key) if key is not None else None
        if key is None or balance is None:
            return 0, 0
        return balance.suspects + self.suspected.get(key, 0), balance.recent

    def pod_of(self, runner: Runner) -> Pod | None:
        """The runner's own Pod, and no other of that name (I36)."""
        pod = self.pods.get(runner.pod_name)
        return pod if pod is not None and runner.pod_uid in (None, pod.uid) else None

    @property
    def quiet(self) -> bool:
        """All runners wait, and all Pods are theirs."""
        return (
            self.complete
            and len(self.pods) == len(self.runners)
            and all(runner.state is RunnerState.IDLE for runner in self.runners)
            and all(map(self.waits, self.runners))
        )

    def waits(self, runner: Runner) -> bool:
        """The runner waits for work, was heard lately, and its Pod polls. If no job and no answer about
        it is known, no rule holds before its row or its Pod changes, or its poller falls silent."""
        pod = self.pod_of(runner)
        return pod is not None and _seems_to_wait(runner, pod) and self._is_heard(runner)

    def is_calm(self, runner: Runner, *, removed: float) -> bool:
        """Whether a runner that by its row and its Pod waits or works does so by all else, too. Without
        an answer about it, no rule holds for one that works before its row, its job, its account or
        its Pod changes, or before it has held its JIT for `removed` seconds."""
        if runner.state is RunnerState.IDLE:
            return runner.id not in self.words and self._is_heard(runner)
        words = self.words.get(runner.id)
        return (
            (words is None or words.job is not JobState.COMPLETED)
            and runner.account not in self.removals
            and _age(runner.acknowledged_at or runner.since, self.now) < removed
        )

    def _is_heard(self, runner: Runner) -> bool:
        return runner.heard_at is not None and self.now - runner.heard_at <= HEARD


class Gatherer:
    def __init__(
        self,
        *,
        store: EvidenceStore,
        fleet: Fleet,
        clock: Clock,
        view: PodView,
        asker: GitHubLookups,
        thresholds: Thresholds,
    ) -> None:
        self._store = store
        self._clock = clock
        self._view = view
        self._asker = asker
        self._thresholds = thresholds
        self._runner_log = RunnerLog(fleet)
        self._answers: dict[RunnerId, _Answers] = {}
        #: Runners that waited or worked in the last round, with the row and the Pod that showed it:
        #: while both are the same objects, what they show is the same.
        self._calm: dict[RunnerId, tuple[Runner, Pod]] = {}
        self._answering_since: float | None = None
        #: By how much the clock was ahead of the monotonic one at the last look.
        self._ahead: float | None = None

    async def glance(self) -> RoundView:
        """Rows and Pods alone: enough to see which runners have ended, and whether more has to be
        read."""
        runners = await self._store.live_runners()
        shown = self._view.snapshot()
        now = self._clock.now()
        heard = nlargest(2, (r.heard_at for r in runners if r.heard_at is not None))
        return RoundView(
            now=now,
            runners=runners,
            pods=by_name(shown),
            complete=shown.complete,
            read_at=self._view.read_at,
            last_heard=((heard[0] if heard else None), (heard[1] if len(heard) > 1 else None)),
            answering=self._answering(heard[0] if heard else None, now),
        )

    async def glance_at(self, pods: Sequence[Pod]) -> RoundView:
        """These Pods alone and their rows. It is not complete: no other Pod is missing."""
        names = [pod.name for pod in pods]
        return RoundView(
            now=self._clock.now(),
            runners=await self._store.live_runners_of(names) if names else [],
            pods={pod.name: pod for pod in pods},
            complete=False,
            read_at=self._view.read_at,
        )

    async def look(self) -> RoundView:
        return await self.look_closely(await self.glance())

    async def look_closely(self, glance: RoundView) -> RoundView:
        """The glance, with everything else that shows whether a rule may hold."""
        runners = glance.runners
        balances = await self._store.balances(recent=glance.now - RECENT)
        living = {runner.id for runner in runners}
        self._answers = {id_: known for id_, known in self._answers.items() if id_ in living}
        return replace(
            glance,
            pools={pool.id: pool for pool in await self._store.list_pools()},
            balances=balances,
            words=await self._store.job_words(),
            removals=await self._store.removed_accounts(),
            surplus=_surplus(runners, balances),
        )

    def _answering(self, last_heard: datetime | None, now: datetime) -> bool:
        if self._jumped(now) or last_heard is None or now - last_heard > HEARD:
            self._answering_since = None
            return False
        if self._answering_since is None:
            self._answering_since = self._clock.monotonic()
        return self._clock.monotonic() - self._answering_since >= ANSWERING

    def _jumped(self, now: datetime) -> bool:
        before, self._ahead = self._ahead, now.timestamp() - self._clock.monotonic()
        return before is not None and abs(self._ahead - before) > JUMP

    def evidence(self, runner: Runner, look: RoundView) -> Evidence:
        known = self._answers.get(runner.id) or _Answers()
        words = look.words.get(runner.id)
        suspects, recent = look.suspects(runner.key)
        now = look.now
        return Evidence(
            state=runner.state,
            since=_age(runner.since, now),
            shape=runner.shape,
            pod_seen=runner.pod_uid is not None,
            named=runner.name is not None,
            heard=_ago(runner.heard_at, now),
            others_answered=look.answering and _others(runner, look),
            acknowledged=_ago(runner.acknowledged_at, now),
            job_marked=runner.job_marked_at is not None,
            job=words.job if words else None,
            mint_overdue=runner.mint_deadline is not None and runner.mint_deadline < now,
            suspect=_ago(runner.suspect_at, now),
            deregistered=_ago(runner.deregistered_at, now),
            proved=_ago(runner.proved_at, now),
            forced=runner.forced_by is not None,
            removals=look.removals.get(runner.account, 0) if runner.account is not None else 0,
            surplus=runner.id in look.surplus,
            suspects=suspects,
            recent=recent,
            pod=self._pod(runner, look),
            record=known.record,
            record_age=_ago(known.record_at, now) or 0.0,
            log=known.log,
            log_age=_ago(known.log_at, now) or 0.0,
            hint=words.hint if words else None,
            hinted=known.hinted,
            hinted_on=known.hinted_on,
            hinted_age=_ago(known.hinted_at, now) or 0.0,
        )

    async def to_examine(self, look: RoundView) -> list[Runner]:
        """The runners for which a rule may hold: in a large fleet most only wait or work. Those that
        have waited longest for a question come first: the budget must not go to the same ones in
        every round."""
        before, calm, removed = self._calm, {}, self._thresholds.removed
        chosen = []
        for number, runner in enumerate(look.runners, 1):
            if number % _LOOKED_OVER_AT_ONCE == 0:
                await asyncio.sleep(0)
            pod = look.pod_of(runner)
            known = before.get(runner.id)
            if known is None or known[0] is not runner or known[1] is not pod:
                if pod is None or not (_seems_to_wait(runner, pod) or _seems_to_work(runner, pod)):
                    chosen.append(runner)
                    continue
                known = runner, pod
            calm[runner.id] = known
            if runner.id in self._answers or not look.is_calm(runner, removed=removed):
                chosen.append(runner)
        self._calm = calm
        return sorted(chosen, key=self._last_asked)

    async def to_ask_about(self, look: RoundView, runners: Sequence[Runner]) -> RoundView:
        """The look, with the places at GitHub where these runners are registered."""
        keys = sorted({runner.key for runner in runners if runner.key is not None})
        return replace(look, places=await self._store.key_places(keys)) if keys else look

    def _pod(self, runner: Runner, look: RoundView) -> PodSeen:
        pod = look.pod_of(runner)
        if pod is not None:
            return pod_seen(pod, now=look.now, unchanged=self._view.unchanged(pod))
        return pod_absent(runner.absent_reads) if look.complete else PodSeen()

    def _last_asked(self, runner: Runner) -> datetime:
        """When the last question about the runner was asked; the earliest time there is if none was."""
        known = self._answers.get(runner.id)
        asked = (known.record_at, known.log_at, known.hinted_at) if known else ()
        return max((at for at in asked if at is not None), default=_NEVER)

    async def ask(self, question: Question, runner: Runner, look: RoundView) -> bool:
        """Whether the question is settled: by an answer, or because there is none to be had."""
        known = self._answers.setdefault(runner.id, _Answers())
        match question:
            case Question.RECORD:
                return await self._ask_record(runner, look, known)
            case Question.LOG:
                pod = look.pod_of(runner)
                known.log = LogWord.UNREADABLE if pod is None else await self._runner_log.of(pod)
                known.log_at = self._clock.now()
                return True
            case Question.JOB:
                return await self._ask_job(runner, look, known)

    async def _ask_record(self, runner: Runner, look: RoundView, known: _Answers) -> bool:
        place = look.places.get(runner.key) if runner.key is not None else None
        word: RecordWord | None
        if runner.name is None:
            # Its row has no name, so there is nothing to ask for. Retiring searches for names that the
            # row does not have (I70).
            word = RecordWord.ABSENT
        elif place is None:
            word = RecordWord.UNREADABLE
        else:
            word = await self._asker.record(place, runner.github_id, runner.name)
        if word is None:
            return False
        known.record, known.record_at = word, self._clock.now()
        if runner.suspect_at is not None and word in (RecordWord.IDLE, RecordWord.BUSY):
            await self._store.trust_runner(runner.id, generation=runner.generation)
        return True

    async def _ask_job(self, runner: Runner, look: RoundView, known: _Answers) -> bool:
        words = look.words.get(runner.id)
        known.hinted, known.hinted_on, known.job = JobWord.UNREADABLE, On.NO_RUNNER, None
        known.hinted_at = self._clock.now()
        if words is None or runner.hint is None:
            return True
        placed = await self._store.placed_jobs(words.host, [runner.hint], apps=self._asker.apps)
        if runner.hint not in placed:
            return True
        found = await self._asker.job(placed[runner.hint])
        if found is None:
            known.hinted, known.hinted_at = JobWord.NOT_ASKED, None
            return False
        if isinstance(found, NoAnswer):
            return True
        known.hinted = job_word(found)
        known.hinted_on = job_on(found, github_id=runner.github_id, name=runner.name)
        if not isinstance(found, Absent):
            known.job = (placed[runner.hint], found)
        return True

    def told(self, runner: Runner) -> tuple[PlacedJob, JobRecord] | None:
        """The job it was claimed for, as GitHub described it."""
        known = self._answers.get(runner.id)
        return known.job if known else None

    def idle_beside(self, look: RoundView) -> Mapping[KeyId, float]:
        """For how long some runner of each key has been online without a job."""
        found: dict[KeyId, float] = {}
        for runner in look.runners:
            known = self._answers.get(runner.id)
            if runner.key is None or known is None or known.record is not RecordWord.IDLE:
                continue
            if runner.state is RunnerState.RUNNING and runner.acknowledged_at is not None:
                age = _age(runner.acknowledged_at, look.now)
                found[runner.key] = max(age, found.get(runner.key, 0.0))
        return found


def _seems_to_wait(runner: Runner, pod: Pod) -> bool:
    """By its row and its Pod alone."""
    return (
        runner.state is RunnerState.IDLE
        and not runner.forced_by
        and not runner.job_marked_at
        and polls(pod, shape=runner.shape)
    )


def _seems_to_work(runner: Runner, pod: Pod) -> bool:
    """By its row and its Pod alone."""
    return runner.state is RunnerState.BUSY and not runner.forced_by and runs(pod)


def _surplus(runners: list[Runner], balances: Mapping[KeyId, Balance]) -> frozenset[RunnerId]:
    """The surplus of every key with more supply than demand: its runners that are online longest."""
    running: dict[KeyId, list[Runner]] = {}
    for runner in runners:
        if runner.state is RunnerState.RUNNING and runner.key and runner.suspect_at is None:
            running.setdefault(runner.key, []).append(runner)
    chosen: list[RunnerId] = []
    for key in sorted(running):
        balance = balances.get(key)
        if balance is None or balance.supply <= balance.queued:
            continue
        oldest = sorted(running[key], key=lambda runner: (runner.since, runner.id))
        chosen += [runner.id for runner in oldest[: balance.supply - balance.queued]]
    return frozenset(chosen)


def _others(runner: Runner, look: RoundView) -> bool:
    """Whether another Pod was heard since this one was."""
    first, second = look.last_heard
    latest = second if runner.heard_at is not None and runner.heard_at == first else first
    return latest is not None and (runner.heard_at is None or latest > runner.heard_at)


def _age(then: datetime, now: datetime) -> float:
    return max(0.0, (now - then).total_seconds())


def _ago(then: datetime | None, now: datetime) -> float | None:
    return None if then is None else _age(then, now)
