"""The end of a runner, recorded before its Pod is deleted (I30, I58).

The fingerprint first, then the last words if it ended abnormally, then the verdict and `gone` in
one transaction; the Pod goes last. A crash anywhere in between is made up for by the next round,
which finds the Pod still there.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog
from prometheus_client import Counter

from paddock.domain.backoffs import ENDED_WITHOUT_A_JOB, BackOffScope, Subject
from paddock.domain.endings import Ending, EndingEvidence, classify, says_it_had_a_job
from paddock.domain.fingerprints import Answer, Fingerprint, ever_started, fingerprint
from paddock.domain.pods import Pod
from paddock.domain.runners import Conflict, Runner
from paddock.ports import Clock, Fleet, FleetUnavailable, Store

_log = structlog.get_logger()

TAIL_LINES: Final = 200
TAIL_BYTES: Final = 64 * 1024
#: Best effort: a node that does not answer must not hold up the reap of its Pod (I57).
TAIL_TIMEOUT: Final = 5.0

ENDINGS = Counter("paddock_runner_endings_total", "Runners ended, by class.", ["ending"])


class Conclusion:
    def __init__(self, *, store: Store, fleet: Fleet, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock

    async def conclude(self, runner: Runner, pod: Pod) -> Ending | None:
        """Record how the runner of a terminal Pod ended, and reap the Pod. `None` if the row had
        moved on: it is looked at again."""
        evidence = _evidence(runner, pod)
        classified = classify(evidence)
        tail = await self._last_words(pod) if classified.ending.abnormal else None
        mark = evidence.fingerprint
        concluded = await self._store.conclude_runner(
            runner.id,
            generation=runner.generation,
            state=runner.state,
            ending=classified.ending,
            why=classified.why,
            ended_at=(mark and mark.finished_at) or self._clock.now(),
            fingerprint=mark,
            log_tail=tail,
            evidence=msgspec.json.encode(evidence).decode(),
        )
        if isinstance(concluded, Conflict):
            return None
        ENDINGS.labels(classified.ending).inc()
        _log.info(
            "runner ended",
            pod=pod.name,
            pool=pod.pool,
            exitCode=mark and mark.exit_code,
            signal=mark and mark.signal,
            reason=mark and mark.reason,
            ending=str(classified.ending),
        )
        await self._judge_key(concluded, mark)
        await self._fleet.delete(pod.name, uid=pod.uid)
        return classified.ending

    async def _judge_key(self, runner: Runner, mark: Fingerprint | None) -> None:
        """A key whose runners keep ending without a job backs off before it drains the App's mint
        budget; one that gives jobs is forgiven (I69). A runner that never had a JIT says nothing of
        its key. Not in the transaction of the end: a crash here loses one count."""
        if runner.key is None or runner.delivery is None:
            return
        key = Subject(BackOffScope.KEY, runner.key)
        if runner.job is not None or says_it_had_a_job(mark):
            # Where there is nothing to forgive this deletes nothing, and so writes nothing.
            await self._store.recover_from_backoffs([key])
        else:
            await self._store.back_off(key, ENDED_WITHOUT_A_JOB)

    async def _last_words(self, pod: Pod) -> str | None:
        try:
            async with asyncio.timeout(TAIL_TIMEOUT):
                tail = await self._fleet.log_tail(
                    pod.name, uid=pod.uid, lines=TAIL_LINES, most_bytes=TAIL_BYTES
                )
        except (TimeoutError, FleetUnavailable):
            return None
        # PostgreSQL keeps any text but one with a NUL in it.
        return None if tail is None else tail.replace("\0", "")


def _evidence(runner: Runner, pod: Pod) -> EndingEvidence:
    return EndingEvidence(
        fingerprint=fingerprint(pod.containers),
        pod_reason=pod.reason or "",
        deleted=pod.deletion_requested_at is not None,
        job=_had_job(runner),
        started=ever_started(pod.containers),
    )


def _had_job(runner: Runner) -> Answer:
    """A Pod for which no name was ever chosen cannot have executed anything."""
    if runner.job is not None:
        return Answer.YES
    return Answer.NO if runner.generation == 0 else Answer.UNKNOWN
