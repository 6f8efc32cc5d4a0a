"""The promises, checked against the ground truth.

The ground truth is the fakes' state: which Pod executes which job, which Pod holds a JIT, how a
process really died. Our rows are read only at the end, to be checked against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from paddock.domain.runners.endings import LOG_WANTED_FOR, Ending, EndingEvidence, classify
from paddock.domain.states import RUNNER_TRANSITIONS, JobState, RunnerState
from paddock.fakes.github import FakeGitHub
from paddock.fakes.github.records import Job, JobStatus
from paddock.forensics.conclusion import CLOCKS_DIFFER
from paddock.forensics.masking import MASK
from paddock.forensics.post_mortem import TAIL_BYTES, TAIL_LINES
from simulator.engine.database import Session
from simulator.engine.faults import Faults
from simulator.engine.fleet import Jit, Node, SimFleet, SimPod
from simulator.engine.ledger import Ledger
from simulator.engine.pods import OURS, TOKEN
from simulator.engine.time import BEGINNING

#: A version counts as known to be refused after this: a claim is minted within 45 s, and the Pod is
#: handed its JIT within some seconds more.
_VERSION_KNOWN: Final = timedelta(seconds=60)


class Promise(StrEnum):
    LIVE_JOB = "a live job's Pod is never deleted"
    LIMIT = "no limit is exceeded by a new claim"
    PROMPT = "a job whose key has a warm idle Pod is claimed, and its JIT given, within seconds"
    ONE_HAND = "a JIT is in one Pod's hands only"
    ACCEPTED = "no JIT is given to a Pod whose runner version GitHub is known to refuse"
    CUT_OFF = "no Pod is cut off before its JIT has arrived"
    LEGAL = "every transition is legal"
    SERVED = "every job is completed, or waits for a true reason"
    VERDICT = "every end has a verdict that matches it"
    NO_LEAK = "no record, Pod or capacity is leaked"
    KNOWN = "what is known of a job is what became of it"
    ENOUGH = "no more runners are given out than jobs want"
    FIT = "no new Pod is put on a host that says it is unfit, or that starts none"
    ASKED_ONCE = "a webhook that has arrived is not asked for again"
    REPLAYS = "a seed replays exactly"
    #: Not one of the product's promises: no mutant may name it.
    SOUND = "no service fails in an unforeseen way"


@dataclass(frozen=True, slots=True)
class Violation:
    promise: Promise
    what: str
    step: int
    at: float

    def __str__(self) -> str:
        return f"{self.promise}: {self.what} (step {self.step}, {self.at:.1f} s)"


#: Hosts are read every few seconds. A decision made before the last reading is still carried out.
FIT_WITHIN: Final = 30.0
#: The same where loops look up to six times less often. It counts from the last time that hosts could
#: not be read, or that a replica stalled.
_FIT_AT_LAST: Final = 120.0


class Checks:
    def __init__(
        self,
        *,
        fleet: SimFleet,
        github: FakeGitHub,
        ledger: Ledger,
        faults: Faults,
        session: Session,
        step: Callable[[], int],
        now: Callable[[], float],
        on_violation: Callable[[Violation], None],
        strict: bool,
    ) -> None:
        """`strict`: the world has neither operators nor unscripted faults."""
        self._fit_within = FIT_WITHIN if strict else _FIT_AT_LAST
        self._fleet = fleet
        self._github = github
        self._ledger = ledger
        self._faults = faults
        self._session = session
        self._step = step
        self._now = now
        self._on_violation = on_violation
        self.violations: list[Violation] = []
        self._hands: dict[str, SimPod] = {}

    def violate(self, promise: Promise, what: str) -> None:
        violation = Violation(promise, what, self._step(), self._now())
        self.violations.append(violation)
        self._on_violation(violation)

    # After every step: the fakes report every act here that could break a promise.

    def deleting(self, pod: SimPod, by: str) -> None:
        job = self._executing(pod)
        if job is not None:
            self.violate(Promise.LIVE_JOB, f"{by} deletes {pod.name} while it executes job {job}")

    def stamping(self, pod: SimPod) -> None:
        if pod.alive and pod.jit is None:
            self.violate(
                Promise.CUT_OFF, f"{pod.name} is stamped while its poller still waits for work"
            )

    def placing(self, pod: SimPod, node: Node) -> None:
        made = (pod.created_at - BEGINNING).total_seconds()
        seen = max(node.unfit_since, self._faults.hosts_unread_at)
        known = node.fault is not None and made - seen > self._fit_within
        if known and not pod.by_hand:
            self.violate(
                Promise.FIT,
                f"{pod.name} is put on {node.name}, unfit for {made - node.unfit_since:.0f} s",
            )

    def handed(self, pod: SimPod, jit: Jit) -> None:
        holder = self._hands.setdefault(jit.text, pod)
        if holder is not pod:
            self.violate(
                Promise.ONE_HAND, f"{pod.name} got the JIT of {jit.runner_name}, {holder.name}'s"
            )

        self._check_version(pod, jit)

    def _check_version(self, pod: SimPod, jit: Jit) -> None:
        """Whether GitHub had told the end of the Pod's version, the end had come, and the Pod had shown
        the version, all before the claim was made."""
        world = self._github.world
        record = world.by_client_id.get(jit.client_id)
        told = record and world.version_answers.get((record.owner.login, pod.version))
        if not told or told[0].runtime_deprecates_at is None or pod.shows_version_since is None:
            return
        known_at = max(told[0].runtime_deprecates_at, told[1], pod.shows_version_since)
        if world.time - known_at > _VERSION_KNOWN:
            self.violate(
                Promise.ACCEPTED,
                f"{pod.name} got the JIT of {jit.runner_name}, and GitHub refuses {pod.version} since "
                f"{told[0].runtime_deprecates_at}",
            )

    def refused(self, method: str, error: Exception) -> None:
        """The store raised an error that it never should raise."""
        name = type(error).__name__
        illegal = name in (
            "CheckViolationError",
            "UniqueViolationError",
            "ForeignKeyViolationError",
        )
        self.violate(
            Promise.LEGAL if illegal else Promise.SOUND, f"{method} raised {name}: {error}"
        )

    def broke(self, what: str) -> None:
        self.violate(Promise.SOUND, what)

    def _executing(self, pod: SimPod) -> int | None:
        if pod.jit is None or not pod.process:
            return None
        return self._github.truth.executing(pod.jit.runner_id)

    # After faults have stopped.

    async def shortcomings(self) -> list[tuple[Promise, str]]:
        """What is still wrong at the end."""
        rows = await self._rows()
        return [
            *self._jobs(rows),
            *self._pods(rows),
            *self._records(),
            *self._capacity(rows),
            *self._verdicts(rows),
        ]

    async def history(self) -> list[tuple[Promise, str]]:
        """Every step in the log of transitions."""
        steps = await self._session.fetch(
            "SELECT DISTINCT before, after FROM events"
            " WHERE runner_id IS NOT NULL AND before IS NOT NULL ORDER BY before, after"
        )
        found = [
            (Promise.LEGAL, f"a runner went from {row['before']} to {row['after']}")
            for row in steps
            if (RunnerState(row["before"]), RunnerState(row["after"])) not in RUNNER_TRANSITIONS
        ]
        for row in await self._session.fetch(
            "SELECT before, after, job_id FROM events WHERE job_id IS NOT NULL AND before IS NOT NULL"
            " ORDER BY id"
        ):
            before, after = JobState(row["before"]), JobState(row["after"])
            demoted = (before, after) == (JobState.IN_PROGRESS, JobState.QUEUED)
            if after.rank < before.rank and not demoted:
                found.append((Promise.LEGAL, f"job {row['job_id']} fell from {before} to {after}"))
        return found

    async def _rows(self) -> _Rows:
        return _Rows(
            runners=[
                dict(row)
                for row in await self._session.fetch(
                    "SELECT r.id, r.pod_name, r.pod_uid, r.state, r.account_id, r.evidence, v.ending,"
                    "       v.exit_code, v.signal, v.reason, v.log_tail"
                    "  FROM runners r LEFT JOIN verdicts v ON v.runner_id = r.id"
                    " ORDER BY r.created_at, r.id"
                )
            ],
            jobs={
                row["id"]: row["state"]
                for row in await self._session.fetch("SELECT id, state FROM jobs ORDER BY id")
            },
            repositories={
                row["github_id"]
                for row in await self._session.fetch(
                    "SELECT r.github_id FROM repositories r WHERE EXISTS ("
                    "SELECT FROM jobs j WHERE j.repository_id = r.id) ORDER BY 1"
                )
            },
        )

    def _forgotten(self, job: Job, rows: _Rows) -> bool:
        """A restored backup knows neither the job nor another job of its repository. Its webhook
        arrived before, so GitHub does not send it again. Comparison reads only repositories that had
        jobs (I8)."""
        unknown = job.id not in rows.jobs and job.repository.id not in rows.repositories
        return unknown and self._ledger.restored_at > 0

    def _jobs(self, rows: _Rows) -> list[tuple[Promise, str]]:
        found = []
        for job in self._github.world.jobs.values():
            if job.status is not JobStatus.COMPLETED:
                if not self._ledger.waits_rightly(job) and not self._forgotten(job, rows):
                    found.append((Promise.SERVED, f"job {job.id} is {job.status}{_where(job)}"))
            elif job.repository.owner.login in self._ledger.uninstalled:
                continue  # no API tells its conclusion
            elif rows.jobs.get(job.id, "completed") != "completed":
                found.append(
                    (Promise.KNOWN, f"job {job.id} is completed, here it is {rows.jobs[job.id]}")
                )
        found += [
            (Promise.KNOWN, f"job {job} was deleted with its run, here it is {rows.jobs[job]}")
            for job in self._ledger.knowable_deleted_jobs()
            if rows.jobs.get(job, "completed") not in self._ends_of_deleted(job)
        ]
        return found

    def _ends_of_deleted(self, job: int) -> set[str]:
        """The job began, was given back, and then its run was deleted: here it stays in_progress.
        paddock never ends such a job (I37), unless its whole repository is gone."""
        if job in self._ledger.jobs_of_deleted_repositories:
            return {"completed"}
        begun = any(each.job_id == job for each in self._github.truth.executions)
        return {"completed", "in_progress"} if begun else {"completed"}

    def _pods(self, rows: _Rows) -> list[tuple[Promise, str]]:
        found = []
        known = {row["pod_name"] for row in rows.runners if row["state"] != "gone"}
        count: dict[str, int] = {}
        #: Each may be idle by its row, and holds the place of an idle Pod.
        protected: dict[str, int] = {}
        for pod in self._fleet.there():
            if pod.ended or pod.silent:
                found.append((Promise.NO_LEAK, f"{pod.name} ended ({pod.fate}) and is still there"))
            elif _protected(pod) and self._executing(pod) is None:
                protected[pod.pool] = protected.get(pod.pool, 0) + 1
            elif pod.name not in known:
                found.append((Promise.NO_LEAK, f"{pod.name} lives and no row knows it"))
            else:
                count[pod.pool] = count.get(pod.pool, 0) + 1
                if pod.jit is not None and self._executing(pod) is None:
                    found.append((Promise.NO_LEAK, f"{pod.name} holds a JIT and executes nothing"))
        for pool, number in count.items():
            most = self._ledger.most_pods(pool)
            if number > most:
                found.append(
                    (Promise.NO_LEAK, f"pool {pool} has {number} Pods and needs {most} at most")
                )
        for pool, least in self._ledger.least_pods().items():
            if count.get(pool, 0) + protected.get(pool, 0) < least:
                found.append(
                    (Promise.SERVED, f"pool {pool} has {count.get(pool, 0)} Pods, not {least}")
                )
        return found

    def _records(self) -> list[tuple[Promise, str]]:
        held = {pod.jit.runner_id for pod in self._fleet.there() if pod.alive and pod.jit}
        return [
            (Promise.NO_LEAK, f"GitHub still has runner {runner.name}, which no Pod is")
            for runner in self._github.world.runners.values()
            if not runner.foreign and runner.id not in held
            if runner.id not in self._ledger.forgotten_records
            if runner.owner.login not in self._ledger.uninstalled
        ]

    def _capacity(self, rows: _Rows) -> list[tuple[Promise, str]]:
        there = {pod.name for pod in self._fleet.there() if pod.alive}
        return [
            (Promise.NO_LEAK, f"{row['pod_name']} is {row['state']} here and has no living Pod")
            for row in rows.runners
            if row["state"] != "gone" and row["pod_name"] not in there
        ]

    def _verdicts(self, rows: _Rows) -> list[tuple[Promise, str]]:
        by_name = {row["pod_name"]: row for row in rows.runners}
        last = {pod.name: pod for pod in self._fleet.pods}
        found = []
        for pod in last.values():
            row = by_name.get(pod.name)
            if row is None and pod.reaped:
                found.append((Promise.VERDICT, f"{pod.name} was {pod.fate!r}, and no row says so"))
            if not pod.removed or row is None or row["state"] != "gone":
                continue
            accepted = _accepted(pod)
            if row["pod_uid"] is None:
                # No leader saw the Pod, because it existed so briefly. Its row can only say that it
                # left as told, or that it never started.
                accepted |= {Ending.LEFT, Ending.NEVER_STARTED}
            handshake = Ending.HANDSHAKE_FAILED in accepted
            if handshake and self._was_cancelled(pod):
                # GitHub gives up a cancelled job with the same words, whether its runner answered or
                # not.
                accepted.add(Ending.COMPLETED)
            if (handshake or Ending.NEVER_RAN in accepted) and self._unreadable(pod):
                accepted.add(Ending.COMPLETED)
            if row["ending"] not in accepted:
                wanted = " or ".join(sorted(accepted))
                found.append(
                    (
                        Promise.VERDICT,
                        f"{pod.name} really was {pod.fate!r} ({wanted}), judged {row['ending']}",
                    )
                )
            if row["pod_uid"] == pod.uid:
                found += [(Promise.VERDICT, what) for what in self._facts(pod, row)]
        return found

    def _facts(self, pod: SimPod, row: Mapping[str, Any]) -> Iterator[str]:
        """What a row records of an end beside its class: exit code, signal, reason, and the log."""
        written = (row["exit_code"], row["signal"], row["reason"])
        unseen = not pod.reaped and written == _NO_FACTS
        if not unseen and written != _facts_of(pod):
            yield f"{pod.name} ended with {_facts_of(pod)}, its verdict says {written}"
        log, really = row["log_tail"], _log_of(pod)
        if log is not None and log != really:
            yield f"{pod.name} said {really!r}, its verdict says {log!r}"
        unread = log is None and really and pod.reaped and _began_abnormal(row)
        if unread and not self._log_was_given_up(pod):
            yield f"{pod.name} was deleted before its log was read or its time was up"

    def _log_was_given_up(self, pod: SimPod) -> bool:
        """Whether a request for its log failed after its time was up, and before the Pod was
        deleted."""
        if pod.over_at is None or pod.removed_at is None:
            return False
        # Sums of seconds differ in their last digits; the product reads microseconds.
        time_is_up = pod.over_at + LOG_WANTED_FOR.total_seconds() - 1e-6
        return any(
            time_is_up <= at <= pod.removed_at
            for whose in (pod.uid, pod.node)
            for at in self._fleet.log_failures.get(whose, ())
        )

    def log_told(self, pod: str) -> None:
        """A leader has written the log of an ended Pod to its own log."""
        if pod in self._ledger.logs_told:
            self.violate(Promise.VERDICT, f"the log of {pod} was told twice")
        self._ledger.logs_told.add(pod)

    def _unreadable(self, pod: SimPod) -> bool:
        """GitHub no longer reports anything of its runner: its account uninstalled the App, or the
        repository at which it is registered was deleted."""
        if pod.jit is None:
            return False
        runner, world = self._github.world.by_client_id[pod.jit.client_id], self._github.world
        at = runner.repository
        deleted = at is not None and at.full_name.lower() not in world.repositories
        return deleted or runner.owner.login in self._ledger.uninstalled

    def _was_cancelled(self, pod: SimPod) -> bool:
        return any(
            job.cancel_requested
            for job in self._github.world.jobs.values()
            if pod.jit is not None and job.runner is not None and job.runner.id == pod.jit.runner_id
        )


@dataclass(frozen=True, slots=True)
class _Rows:
    runners: list[Mapping[str, Any]]
    jobs: Mapping[int, str]
    #: Endings that mean that a job is known.
    repositories: AbstractSet[int]


#: Reported by the kernel or the kubelet: they count, also if another component asked for the end.
_SAID_BY_THE_NODE: Final = frozenset({Ending.HOST_OOM, Ending.EVICTED, Ending.NODE_LOST})
#: A runner that was told to stop does not say that its job succeeded.
_SUCCEEDED: Final = frozenset({100, 101})


_NO_FACTS: Final = (None, None, None)


def _facts_of(pod: SimPod) -> tuple[int | None, int | None, str | None]:
    """The facts that its kubelet shows, if its runner ran at all."""
    ended = pod.runner.terminated if pod.runner is not None else None
    return _NO_FACTS if ended is None else (ended.exit_code, ended.signal or None, ended.reason)


def _log_of(pod: SimPod) -> str | None:
    """What its runner really wrote, within the size limits. Secrets are masked."""
    lines = [text for _, text in pod.log][-TAIL_LINES:] if pod.started else []
    return "\n".join(lines)[-TAIL_BYTES:].replace(TOKEN, MASK) or None


def _began_abnormal(row: Mapping[str, Any]) -> bool:
    """Judged by the evidence at the moment its end was seen. Later news change its class, not whether
    its log is read."""
    evidence = msgspec.json.decode(row["evidence"], type=EndingEvidence)
    return classify(evidence).ending.abnormal


def _accepted(pod: SimPod) -> set[str]:
    """The accepted classes: how it really ended, and classes that the evidence cannot tell from
    that."""
    accepted = {str(ending) for ending in pod.endings}
    if pod.sent_away and not accepted & _SAID_BY_THE_NODE and pod.code not in _SUCCEEDED:
        # An exit code is evidence only if no component asked for the end: a runner that is told to
        # stop exits with 0 as if it were done, and one that is slow to stop is killed as if by the
        # kernel.
        accepted.add(Ending.TERMINATED)
    if pod.uncounted and accepted & {Ending.HANDSHAKE_FAILED, Ending.NEVER_RAN}:
        # The runner's name was lost with a backup, so GitHub's record of its job is not found. What is
        # left is that it exited cleanly.
        accepted.add(Ending.COMPLETED)
    if pod.sent_away and not pod.deleted_by and _asked_nearly_at_once(pod):
        accepted |= OURS
    if pod.poller.waiting is not None and Ending.HARD_DELETED in accepted:
        accepted.add(Ending.NEVER_STARTED)  # equally true of it
    return accepted


def _asked_nearly_at_once(pod: SimPod) -> bool:
    """Whether our request came so soon after another's that different clocks cannot order them."""
    first, ours = pod.deletion_requested_at, pod.wanted_gone_at
    return first is not None and ours is not None and ours - first <= CLOCKS_DIFFER


def _protected(pod: SimPod) -> bool:
    """A backup lost its row, or the row's knowledge of it, or its job. Its runner runs, and its log
    shows a job. No other evidence can say that the job is over, so paddock leaves it alone (I34)."""
    running = pod.runner is not None and pod.runner.terminated is None
    forgotten = pod.uncounted or pod.forgotten
    return forgotten and running and any("running job" in line.lower() for _, line in pod.log)


def _where(job: Job) -> str:
    return f" on {job.runner.name}" if job.runner else ""
