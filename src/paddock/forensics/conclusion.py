"""The end of a runner: its verdict and `gone`, written as soon as its Pod is seen terminal (I30, I80).

This waits for the store alone: the capacity is free at once, for many runners in one statement. The log
and the circumstances of an abnormal end follow (`post_mortem`); until then its Pod stays. After a clean
exit there is nothing more to ask for, and its Pod is deleted at once. After a crash anywhere in
between, the next look finds the Pod still there and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

import msgspec
import structlog
from prometheus_client import Counter

from paddock.domain.github.backoffs import (
    ENDED_WITHOUT_A_JOB,
    NOT_ASSIGNED,
    VERSION_REFUSED,
    BackOffScope,
    BackOffSubject,
)
from paddock.domain.ids import KeyId, RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import Certainty, Fingerprint, ever_started, fingerprint
from paddock.domain.pods.pod import Pod
from paddock.domain.recovery.records import LateNews, RunnerEnd
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.runners.dialects import dialect
from paddock.domain.runners.endings import (
    LOG_WANTED_FOR,
    Ending,
    EndingEvidence,
    Retired,
    classify,
    ended_in_good_order,
    says_it_had_a_job,
)
from paddock.domain.runners.runner import Runner
from paddock.domain.runners.versions import REFUSED, AcceptedRunner
from paddock.domain.states import JobState, RunnerState
from paddock.log_events import RunnerFields, runner_fields
from paddock.ports import Clock, Fleet, FleetUnavailable
from paddock.ports.endings import ConclusionStore
from paddock.ports.runner_versions import RefusedVersionStore

_log = structlog.get_logger()

#: GitHub gives a job up when its lease of ten minutes was not renewed. A runner renews it every minute,
#: so that is at the earliest nine minutes after a silent death. The end of a runner that signs off is
#: reported within seconds.
LEASE_RAN_OUT: Final = timedelta(minutes=5)
#: Kubernetes notes whole seconds, and by its own clock: a deletion request that seems to have arrived
#: this long before ours was made was another client's.
CLOCKS_DIFFER: Final = timedelta(seconds=2)
#: Late webhooks are redelivered for three days; a verdict of last week is history.
REFINED_FOR: Final = timedelta(days=3)
_REFINED_AT_ONCE: Final = 100
_KILLED: Final = 137

#: Endings that the node caused: they say nothing of a key.
_ENDED_WITH_ITS_NODE: Final = frozenset({Ending.NODE_LOST, Ending.EVICTED, Ending.HARD_DELETED})

ENDINGS = Counter("paddock_runner_endings_total", "Runners ended, by class.", ["ending"])
REFINED = Counter("paddock_verdicts_refined_total", "Verdicts changed by late news.", ["ending"])


@dataclass(frozen=True, slots=True)
class Concluded:
    """A runner whose end was recorded."""

    runner: Runner
    pod: Pod
    ending: Ending

    @property
    def wants_log(self) -> bool:
        """Its Pod is kept until its log was read."""
        return self.ending.abnormal


@dataclass(frozen=True, slots=True)
class _Ended:
    """All that is written of one end."""

    runner: Runner
    pod: Pod | None
    pool: str
    evidence: EndingEvidence
    at: datetime

    @property
    def pod_uid(self) -> str | None:
        return self.pod.uid if self.pod else self.runner.pod_uid


class Conclusion:
    def __init__(
        self,
        *,
        store: ConclusionStore,
        fleet: Fleet,
        clock: Clock,
        supply_grace: float = Thresholds().supply_grace,
    ) -> None:
        """`supply_grace`: for how long a runner that ended without a reported job counts as supply."""
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._supply_grace = timedelta(seconds=supply_grace)

    async def conclude(self, ended: Sequence[tuple[Runner, Pod]]) -> list[Concluded]:
        """Record how the runners of terminal Pods ended. A runner whose row had moved on is left out:
        it is looked at again."""
        ends = []
        for runner, pod in ended:
            evidence = _evidence_of(runner, pod)
            mark = evidence.fingerprint
            at = (mark and mark.finished_at) or self._clock.now()
            ends.append(_Ended(runner, pod, pod.pool, evidence, at))
        return [
            Concluded(end.runner, end.pod, classify(end.evidence).ending)
            for end in await self._write(ends)
            if end.pod is not None
        ]

    async def conclude_vanished(self, runner: Runner) -> bool:
        """Record the end of a runner whose Pod is proven absent and whose end was not seen. (A Pod that
        paddock asked to go stays visible.) Returns whether this call recorded it."""
        at = runner.absent_since or self._clock.now()
        pools = {pool.id: pool.name for pool in await self._store.list_pools()}
        pool = pools.get(runner.pool, "deleted")
        return bool(await self._write([_Ended(runner, None, pool, _evidence_of(runner, None), at)]))

    async def reap(self, pod: Pod) -> None:
        """Delete a Pod whose end is recorded. Recovery finds one again that cannot be deleted now."""
        await reap(self._fleet, pod.name, uid=pod.uid)

    async def refine(self) -> int:
        """Judge verdicts again about which late webhooks tell more; returns how many changed."""
        since = self._clock.now() - REFINED_FOR
        changed = 0
        for news in await self._store.late_news(since=since, limit=_REFINED_AT_ONCE):
            changed += await self._refine(news)
        return changed

    async def _refine(self, news: LateNews) -> bool:
        evidence = replace(
            msgspec.json.decode(news.evidence, type=EndingEvidence),
            job=Certainty.YES,
            lost_communication=_lost_communication(news),
        )
        classified = classify(evidence)
        # Written also when it is the same: then it is not judged again.
        await self._store.refine_verdict(
            news.runner,
            ending=classified.ending,
            why=classified.why,
            evidence=msgspec.json.encode(evidence).decode(),
        )
        if classified.ending is news.ending:
            return False
        REFINED.labels(classified.ending).inc()
        _log.info(
            "verdict.refined",
            job=news.job,
            runner=news.name,
            pod=news.pod_name,
            account=news.account,
            pool=news.pool,
            before=news.ending,
            ending=classified.ending,
        )
        return True

    async def _write(self, ends: Sequence[_Ended]) -> list[_Ended]:
        """Returns those that this call recorded."""
        recorded = await self._store.conclude_runners([self._end(end) for end in ends])
        ours = {runner.id for runner in recorded}
        written = [end for end in ends if end.runner.id in ours]
        for end in written:
            _tell(end)
        await self._judge_keys(written)
        return written

    def _end(self, ended: _Ended) -> RunnerEnd:
        runner, evidence = ended.runner, ended.evidence
        classified = classify(evidence)
        asks = classified.ending.abnormal and ended.pod_uid is not None
        return RunnerEnd(
            runner=runner.id,
            generation=runner.generation,
            state=runner.state,
            ending=classified.ending,
            why=classified.why,
            ended_at=ended.at,
            pod_uid=ended.pod_uid,
            node=evidence.node,
            fingerprint=evidence.fingerprint,
            evidence=msgspec.json.encode(evidence).decode(),
            supply_grace_until=self._supply_grace_until(runner, evidence),
            log_wanted_until=self._clock.now() + LOG_WANTED_FOR if asks else None,
        )

    def _supply_grace_until(self, runner: Runner, evidence: EndingEvidence) -> datetime | None:
        if not _may_have_had_a_job(runner, evidence):
            return None
        return self._clock.now() + self._supply_grace

    async def _judge_keys(self, ends: Sequence[_Ended]) -> None:
        """A key whose runners keep ending without a job backs off before it drains the App's mint
        budget; a key whose runners get jobs is forgiven (I69). A runner that never had a JIT says
        nothing of its key, and neither does one that paddock no longer wanted, that ended with its
        node, or whose version GitHub refused. Ends that are seen together count once for a key. Not
        in the transaction of the end: a crash here loses some counts."""
        forgiven: set[KeyId] = set()
        jobless: set[KeyId] = set()
        for end in ends:
            runner = end.runner
            if runner.key is None or runner.delivery is None:
                continue
            if runner.job is not None or says_it_had_a_job(end.evidence.fingerprint):
                forgiven.add(runner.key)
            elif await self._was_refused(end):
                continue
            elif (
                runner.retired in (None, Retired.GIVEN_UP)
                and classify(end.evidence).ending not in _ENDED_WITH_ITS_NODE
            ):
                jobless.add(runner.key)
        if forgiven:
            # Where there is nothing to forgive this deletes nothing, and so writes nothing.
            keys = [BackOffSubject(BackOffScope.KEY, key) for key in sorted(forgiven)]
            await self._store.recover_from_backoffs(keys)
            await self._store.accept_versions(_accepted(ends))
        for key in sorted(jobless - forgiven):
            # If GitHub does not assign one of its jobs, that job is the cause, and only that job waits
            # (I17).
            if not await self._store.withhold_unassigned(key, NOT_ASSIGNED):
                await self._store.back_off(
                    BackOffSubject(BackOffScope.KEY, key), ENDED_WITHOUT_A_JOB
                )

    async def _was_refused(self, end: _Ended) -> bool:
        """Whether GitHub refused its version. A refusal that only its log shows is noted when the log
        is read (`post_mortem`)."""
        if classify(end.evidence).ending is not Ending.RUNNER_OUTDATED:
            return False
        return await note_refusal(self._store, end.runner.id, runner_fields(end.runner))


def _accepted(ends: Sequence[_Ended]) -> list[AcceptedRunner]:
    return [
        AcceptedRunner(account=runner.account, version=runner.version, claimed_at=runner.claimed_at)
        for runner in (end.runner for end in ends)
        if runner.job is not None
        and runner.account is not None
        and runner.version is not None
        and runner.claimed_at is not None
    ]


async def reap(fleet: Fleet, pod: PodName, *, uid: str) -> None:
    """Delete a Pod that has ended. One that cannot be deleted now is found again by recovery."""
    try:
        await fleet.reap(pod, uid=uid)
    except FleetUnavailable as error:
        _log.warning("pod.delete_failed", pod=pod, error=str(error))


def _tell(ended: _Ended) -> None:
    evidence, mark = ended.evidence, ended.evidence.fingerprint
    ending = classify(evidence).ending
    ENDINGS.labels(ending).inc()
    _log.info(
        "runner.ended",
        **{**runner_fields(ended.runner), "pool": ended.pool},
        ending=ending,
        exit_code=mark and mark.exit_code,
        signal=mark and mark.signal,
        reason=(mark and mark.reason) or evidence.pod_reason or None,
    )


def _evidence_of(runner: Runner, pod: Pod | None) -> EndingEvidence:
    mark = fingerprint(pod.containers, runner.program) if pod else None
    started = _started(runner, pod)
    asked = _asked_by(runner, pod, mark)
    return EndingEvidence(
        fingerprint=mark,
        pod_reason=(pod and pod.reason) or "",
        vanished=_vanished(runner, pod),
        deleted=asked is _AskedBy.ANOTHER,
        retired=None if _vanished(runner, pod) else _retired(runner, started, asked, mark),
        unasked=asked is _AskedBy.NO_CLIENT,
        forced=f"forced by {runner.forced_by}: {runner.retire_reason}" if runner.forced_by else "",
        job=_had_job(runner, started, mark),
        lost_communication=_was_lost(runner, mark),
        started=started,
        registered=Certainty.NO if runner.unregistered else Certainty.UNKNOWN,
        node=(pod.node if pod else None) or runner.node,
    )


class _AskedBy(Enum):
    """The client whose deletion request ended a Pod."""

    NO_CLIENT = auto()
    US = auto()
    ANOTHER = auto()


def _asked_by(runner: Runner, pod: Pod | None, mark: Fingerprint | None) -> _AskedBy:
    """Our request can arrive when the Pod has just ended by itself, or a moment after another client's.
    The Pod's own times decide."""
    ours = runner.deletion_asked_at
    arrived = pod.deletion_requested_at if pod else None
    if arrived is None or (mark and mark.finished_at and mark.finished_at < arrived):
        return _AskedBy.NO_CLIENT
    if ours is None or arrived < ours - CLOCKS_DIFFER:
        return _AskedBy.ANOTHER
    return _AskedBy.US


def _vanished(runner: Runner, pod: Pod | None) -> bool:
    """There was a Pod, and it disappeared before its end was seen."""
    return pod is None and runner.pod_uid is not None


def _started(runner: Runner, pod: Pod | None) -> Certainty:
    """Where one container polls and runs, that it started says nothing."""
    if pod is None and runner.pod_uid is None:
        return Certainty.NO  # its Pod was never seen
    if runner.shape == "single":
        return Certainty.UNKNOWN
    if runner.job is not None or runner.job_marked_at is not None:
        return Certainty.YES
    if pod is not None and (now := ever_started(pod.containers)) is not Certainty.UNKNOWN:
        return now
    if runner.started or runner.pod_uid is None:
        return Certainty.YES if runner.started else Certainty.NO
    if runner.started is None or (runner.delivery and runner.deletion_asked_at is None):
        return Certainty.UNKNOWN  # it held a JIT, and may have started since its Pod was last seen
    return Certainty.NO


def _was_given_nothing(runner: Runner, started: Certainty, mark: Fingerprint | None) -> bool:
    """No JIT was ever stored for it, so it cannot have executed anything. But its row may lack the JIT
    (I70): its runner started all the same, or it was adopted, or it ended as a poller never does."""
    if runner.delivery is not None or started is Certainty.YES:
        return False
    if runner.shape == "gated" or started is Certainty.NO:
        return True
    return runner.heard_at is not None and not ended_in_good_order(mark)


def _retired(
    runner: Runner, started: Certainty, asked: _AskedBy, mark: Fingerprint | None
) -> Retired | None:
    """Why paddock ended the runner; `None` if paddock did not. A runner that exits when its retirement
    has come no further than the fence ended by itself. But one that never got a JIT left because it was
    told to, and one whose record paddock had removed left because of that."""
    if runner.state is not RunnerState.RETIRING or asked is _AskedBy.ANOTHER:
        return None
    ours = asked is _AskedBy.US or started is Certainty.NO
    told = _was_given_nothing(runner, started, mark) and not _was_killed(runner, mark)
    return runner.retired if ours or told or _missed_its_record(runner, mark) else None


def _was_killed(runner: Runner, mark: Fingerprint | None) -> bool:
    """A poller that is told to leave exits with a code of its own. Where one container polls and runs,
    a container that was killed, and not by paddock, may have been a runner that a restored backup does
    not know of (I70)."""
    return runner.shape == "single" and mark is not None and mark.exit_code == _KILLED


def _missed_its_record(runner: Runner, mark: Fingerprint | None) -> bool:
    """Its exit code is the one that it has when it finds its registration deleted."""
    if runner.deregistered_at is None or mark is None or mark.finished_at is None:
        return False
    codes = dialect(mark.program).lost_registration
    return mark.exit_code in codes and mark.finished_at >= runner.deregistered_at


def _had_job(runner: Runner, started: Certainty, mark: Fingerprint | None) -> Certainty:
    """A retired runner showed no job in two proofs (I65)."""
    if runner.job is not None:
        return Certainty.YES
    proved = runner.deletion_asked_at is not None and runner.deregistered_at is not None
    given_nothing = _was_given_nothing(runner, started, mark)
    return Certainty.NO if proved or given_nothing else Certainty.UNKNOWN


def _was_lost(runner: Runner, mark: Fingerprint | None) -> Certainty:
    """GitHub reported its job as completed while it lived, so they had not lost each other. Unless its
    container had long ended, and only another container kept the Pod."""
    if runner.done_at is None:
        return Certainty.UNKNOWN
    ended = mark.finished_at if mark else None
    late = ended is not None and runner.done_at - ended >= LEASE_RAN_OUT
    return Certainty.UNKNOWN if late else Certainty.NO


def _may_have_had_a_job(runner: Runner, evidence: EndingEvidence) -> bool:
    """Its job may be done although GitHub has not said so yet: the job is not served again before
    GitHub was asked (I68). This holds also if it was busy by its own word, and GitHub has not named its
    job."""
    if runner.state is RunnerState.DONE:
        return False
    return evidence.job is Certainty.UNKNOWN and evidence.started is not Certainty.NO


def _lost_communication(news: LateNews) -> Certainty:
    """GitHub says so only on its web pages. It completes a job that it lost only when the lease has run
    out, long after its runner ended, and always as a failure."""
    if news.job_state is not JobState.COMPLETED or news.completed_at is None:
        return Certainty.UNKNOWN
    late = news.completed_at - news.ended_at >= LEASE_RAN_OUT
    return Certainty.YES if late and news.conclusion == "failure" else Certainty.NO


async def note_refusal(store: RefusedVersionStore, runner: RunnerId, fields: RunnerFields) -> bool:
    """GitHub refused a runner because of its version. Returns false if the runner had a job: then it
    was not refused.

    GitHub may refuse a version before its date, and has refused versions by mistake. So the version,
    and not the key, is stopped, and it is tried again: first after an hour. If the version is not
    known, the runner's key backs off for as long. Either way it is neither a fault of the runner group
    nor counted as an end without a job."""
    refused = await store.refuse_version(runner, REFUSED)
    if refused is None:
        return False
    key = BackOffSubject(BackOffScope.KEY, refused.key)
    if refused.version is None:
        await store.back_off(key, VERSION_REFUSED)
    else:
        # Where only the log shows the refusal, the end was counted before the log was read.
        await store.recover_from_backoffs([key])
    _log.warning("version.refused", **fields, version=refused.version)
    return True
