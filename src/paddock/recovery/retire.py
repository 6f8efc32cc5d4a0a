"""Retire: the only way a live Pod is ever deleted.

    fence       done before this begins: dispatch will never use it again
    deregister  if it may have a record at GitHub, that is deleted first (I35)
    prove       if its runner ever started, it must show no job either: after the deregistration, and
                again 90 s later (I65)
    delete      it is asked to go, by its UID (I36); it is reaped when its end is on record

GitHub's word is strong evidence and no lock: GitHub was seen to call a busy runner idle for a minute,
and to delete its record. So GitHub, the runner's own log and our events must agree, twice, before a
live Pod is deleted. If one of them reports a job, the runner becomes `busy`. If one gives no answer,
the retirement stops until the next round. Every step is noted in the row before the next begins: after
a crash the next leader resumes there.

The one exception is a runner that was ended by force. An operator has answered for the job, or its
account has long removed the App (`account-removed`): its Pod is deleted, and no party is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, assert_never

import structlog
from prometheus_client import Counter

from paddock.domain.github.debts import MintOutcome
from paddock.domain.github.errors import GitHubError
from paddock.domain.github.objects import Absent, Removal
from paddock.domain.ids import KeyId
from paddock.domain.pods.fingerprints import Certainty, ever_started
from paddock.domain.pods.pod import Pod
from paddock.domain.recovery.evidence import Container, LogWord, container_seen
from paddock.domain.recovery.lingering import FINISHED
from paddock.domain.recovery.records import FoundRecord, KeyPlace
from paddock.domain.recovery.stale_claim import MINT_SETTLED
from paddock.domain.runners.runner import Conflict, Runner
from paddock.log_events import runner_fields
from paddock.ports import Clock, Fleet, FleetUnavailable, GitHub, Ids
from paddock.ports.recovery import RetirementStore
from paddock.recovery.runner_log import RunnerLog
from paddock.recovery.search import RunnerSearch

_log = structlog.get_logger()

#: GitHub's `busy` was seen to lag by a minute, and a job's first line is in the log within seconds.
SECOND_PROOF: Final = timedelta(seconds=90)
#: A deletion that has no effect may have been lost on the way: it is asked for again.
ASK_AGAIN: Final = timedelta(seconds=30)

RETIREMENTS = Counter(
    "paddock_retirement_steps_total", "Steps of retirements, by what came of them.", ["step"]
)


class RetireStep(StrEnum):
    """How far a retirement came in one round."""

    STOPPED = "stopped"  # no answer, or no way to ask: the next round
    WAITS = "waits"  # for time, or for a newer look at its Pod
    OVERTAKEN = "overtaken"  # the row is no longer as it was
    BUSY = "busy"  # it executes a job, and lives
    IDENTIFIED = "identified"  # GitHub knows it under a name that its row did not have
    DEREGISTERED = "deregistered"
    PROVED = "proved"
    DELETED = "deletion asked for"

    @property
    def progress(self) -> bool:
        return self not in (RetireStep.STOPPED, RetireStep.WAITS, RetireStep.OVERTAKEN)


@dataclass(slots=True)
class Outlived:
    """How far the retirement of a Pod has come whose row is `gone`. Kept in memory: the next leader
    begins anew, and waits as long again."""

    #: Its record at GitHub, while there is one.
    record: FoundRecord | None = None
    #: When it first had no record and showed no job.
    proved_at: datetime | None = None


class Retirement:
    def __init__(
        self,
        *,
        store: RetirementStore,
        fleet: Fleet,
        github: GitHub,
        clock: Clock,
        ids: Ids,
        search: RunnerSearch,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._github = github
        self._clock = clock
        self._ids = ids
        self._search = search
        self._words = RunnerLog(fleet)

    async def go_on(
        self,
        runner: Runner,
        pod: Pod,
        *,
        seen_at: datetime,
        places: Mapping[KeyId, KeyPlace],
    ) -> RetireStep:
        """One step further with a retiring runner whose Pod is alive. `seen_at`: what is known of the
        Pod is no older than this."""
        step = await self._step(runner, pod, seen_at, places)
        RETIREMENTS.labels(step).inc()
        return step

    async def let_go(self, pod: Pod, known: Outlived) -> RetireStep:
        """One step further with a live Pod whose row is `gone`: that is final, so the row cannot note
        the steps, which are the same otherwise. The caller has just read that the Pod shows no job."""
        if known.record is not None:
            return await self._strike_off(known, known.record)
        now = self._clock.now()
        if known.proved_at is None:
            known.proved_at = now
            return RetireStep.PROVED
        if now - known.proved_at < SECOND_PROOF:
            return RetireStep.WAITS
        _log.warning("retire.pod_outlived_row", pod=pod.name, pool=pod.pool)
        return await self._ask_fleet(pod)

    async def _strike_off(self, known: Outlived, record: FoundRecord) -> RetireStep:
        place = (await self._store.key_places([record.key])).get(record.key)
        if place is None:
            return RetireStep.STOPPED
        try:
            removal = await self._github.delete_runner(place.who, place.scope, record.github_id)
        except GitHubError:
            return RetireStep.STOPPED
        if removal is Removal.BUSY:
            return RetireStep.BUSY
        known.record = None
        return RetireStep.DEREGISTERED

    async def _step(
        self, runner: Runner, pod: Pod, seen_at: datetime, places: Mapping[KeyId, KeyPlace]
    ) -> RetireStep:
        now = self._clock.now()
        if runner.deletion_asked_at is not None:
            if now - runner.deletion_asked_at < ASK_AGAIN:
                return RetireStep.WAITS
            return await self._ask_fleet(pod)
        if runner.forced_by is not None:
            return await self._delete(runner, pod)
        if runner.done_at is not None and now - runner.done_at < FINISHED:
            return RetireStep.WAITS
        if not self._may_have_a_record(runner, pod):
            return await self._delete(runner, pod)
        if runner.deregistered_at is None and runner.name is None:
            return await self._look_for_it(runner, pod)
        if runner.deregistered_at is None:
            return await self._deregister(runner, places)
        return await self._prove(runner, pod, seen_at, now)

    def _may_have_a_record(self, runner: Runner, pod: Pod) -> bool:
        """A Pod for which no name was ever chosen cannot execute anything. But a row of a restored
        backup may lack the name (I70). So a runner that started all the same may have a record, and so
        may one whose poller ended because it had got a JIT (I41)."""
        if runner.name is not None:
            return True
        if ever_started(pod.containers) is Certainty.NO and not _was_handed_something(pod):
            return False
        return runner.shape == "gated" or not _polls_since_the_fence(runner)

    async def _look_for_it(self, runner: Runner, pod: Pod) -> RetireStep:
        """Its row has no name, and yet its runner started. It is searched for in every scope, by lists
        that began after the fence. Until all scopes have answered, the Pod is protected."""
        assert runner.retiring_at is not None
        # The fence has counted one generation for which no name was made.
        found = self._search.registrations(
            pod, since=runner.retiring_at, after=max(0, runner.generation - 1)
        )
        if found is None:
            return RetireStep.STOPPED
        if found:
            record = found[-1].found()
            if record is None:
                return RetireStep.STOPPED  # nothing tells which key it was minted for
            noted = await self._store.identify_runner(
                runner.id,
                generation=runner.generation,
                record=record,
                delivery=self._ids.uuid(),
            )
            return RetireStep.OVERTAKEN if isinstance(noted, Conflict) else RetireStep.IDENTIFIED
        noted = await self._store.note_deregistered(
            runner.id, generation=runner.generation, settled=None
        )
        return RetireStep.OVERTAKEN if isinstance(noted, Conflict) else RetireStep.DEREGISTERED

    async def _deregister(self, runner: Runner, places: Mapping[KeyId, KeyPlace]) -> RetireStep:
        place = None if runner.key is None else places.get(runner.key)
        if place is None or runner.name is None:
            # GitHub cannot be asked: the installation is gone or suspended.
            _log.info("retire.waits_for_installation", **runner_fields(runner))
            return RetireStep.STOPPED
        try:
            removal = await self._remove(runner, runner.name, place)
        except GitHubError as error:
            _log.info(
                "retire.waits_for_github", **runner_fields(runner), error=error.failure.sentence
            )
            return RetireStep.STOPPED
        match removal:
            case Removal.BUSY:
                return await self._busy(runner, "GitHub refused to delete it: it executes a job")
            case Removal.REMOVED | Removal.ABSENT:
                gone = removal is Removal.ABSENT
                outcome = MintOutcome.WAS_GONE if gone else MintOutcome.REMOVED
                noted = await self._store.note_deregistered(
                    runner.id,
                    generation=runner.generation,
                    settled=outcome if self._settles(runner) else None,
                )
                return (
                    RetireStep.OVERTAKEN if isinstance(noted, Conflict) else RetireStep.DEREGISTERED
                )
            case _:
                assert_never(removal)

    async def _remove(self, runner: Runner, name: str, place: KeyPlace) -> Removal:
        github_id = runner.github_id
        if github_id is None:
            found = await self._github.find_runner(place.who, place.scope, name=name)
            if isinstance(found, Absent):
                return Removal.ABSENT
            github_id = found.id
        return await self._github.delete_runner(place.who, place.scope, github_id)

    def _settles(self, runner: Runner) -> bool:
        """A mint that is still under way may make its record a moment from now."""
        if runner.github_id is not None or runner.claimed_at is None:
            return True
        return self._clock.now() - runner.claimed_at > MINT_SETTLED

    async def _prove(
        self, runner: Runner, pod: Pod, seen_at: datetime, now: datetime
    ) -> RetireStep:
        assert runner.deregistered_at is not None
        if seen_at <= runner.deregistered_at:
            # It may have started since the fleet was read.
            return RetireStep.WAITS
        if not self._needs_proof(runner, pod):
            return await self._delete(runner, pod)
        if runner.proved_at is not None and now - runner.proved_at < SECOND_PROOF:
            return RetireStep.WAITS
        if runner.job is not None or runner.job_marked_at is not None:
            return await self._busy(runner, "it was seen to execute a job")
        match await self._words.of(pod):
            case LogWord.JOB:
                return await self._busy(runner, "its own log says that it executes a job")
            case LogWord.NO_JOB:
                pass
            case _:
                _log.info("retire.waits_for_log", **runner_fields(runner))
                return RetireStep.STOPPED
        if runner.proved_at is not None:
            return await self._delete(runner, pod)
        noted = await self._store.note_proved(runner.id, generation=runner.generation)
        return RetireStep.OVERTAKEN if isinstance(noted, Conflict) else RetireStep.PROVED

    def _needs_proof(self, runner: Runner, pod: Pod) -> bool:
        if runner.done_at is not None:
            return False  # GitHub said that its one job was over, ten minutes ago
        if container_seen(pod.containers) is Container.TERMINATED:
            return False  # its process is over, and something beside it keeps the Pod
        if runner.shape == "single":
            # Its row may be older than the JIT it was handed (I70): only its own log tells.
            return True
        return ever_started(pod.containers) is not Certainty.NO

    async def _busy(self, runner: Runner, why: str) -> RetireStep:
        if runner.github_id is None or runner.done_at is not None:
            # The record is another runner's, or lags behind the job's end. The runner lives on, and
            # GitHub is asked again.
            return RetireStep.STOPPED
        moved = await self._store.occupy_runner(
            runner.id, generation=runner.generation, job=runner.job, why=why
        )
        if isinstance(moved, Conflict):
            return RetireStep.OVERTAKEN
        _log.info("retire.busy", **runner_fields(runner), why=why)
        return RetireStep.BUSY

    async def _delete(self, runner: Runner, pod: Pod) -> RetireStep:
        if runner.pod_uid is not None and runner.pod_uid != pod.uid:
            return RetireStep.OVERTAKEN  # another Pod of its name (I36)
        started = ever_started(pod.containers)
        noted = await self._store.note_deletion(
            runner.id,
            generation=runner.generation,
            started=None if started is Certainty.UNKNOWN else started is Certainty.YES,
        )
        if isinstance(noted, Conflict):
            return RetireStep.OVERTAKEN
        return await self._ask_fleet(pod)

    async def _ask_fleet(self, pod: Pod) -> RetireStep:
        try:
            await self._fleet.delete_live_pod(pod.name, uid=pod.uid)
        except FleetUnavailable as error:
            _log.warning("pod.stop_failed", pod=pod.name, pool=pod.pool, error=str(error))
            return RetireStep.STOPPED
        return RetireStep.DELETED


def _was_handed_something(pod: Pod) -> bool:
    """A poller exits with 0 only if it got a JIT."""
    ended = pod.poller.state.terminated if pod.poller else None
    return ended is not None and ended.exit_code == 0


def _polls_since_the_fence(runner: Runner) -> bool:
    """Where one container polls and runs, a container that polls does not run a job, and since the
    fence it was given no JIT. A poll before the fence proves nothing: the row may be an old one
    (I70)."""
    if runner.heard_at is None or runner.retiring_at is None:
        return False
    return runner.heard_at > runner.retiring_at
