"""The promise of promptness, checked against the ground truth (I77).

Every half second of virtual time the check looks at GitHub's queued jobs whose webhook has arrived. A
job is served while a runner of its scope and pool is claimed and has no job yet. If a job is not
served although a Pod of its pool has long waited for work, one of these reasons must hold: a limit, a
pause, a back-off, an App that is not installed, a database that does not answer. There are no other
reasons (docs/simulation.md). A Pod that was claimed gets its JIT as quickly.

It counts acts and facts: webhooks that arrived, claims that were committed, requests that are open at
a replica, jobs that began. Rows are read last, and only as an excuse: whether the Pod is idle, and
whether a back-off is written that GitHub's answers confirm.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from paddock.domain.limits import NOTHING, Resources
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Claim, Conflict, Match
from paddock.fakes.github import FakeGitHub
from paddock.fakes.github.records import Delivery, Job, JobStatus, RunnerEnd
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.engine.faults import Faults
from simulator.engine.fleet import Jit, SimFleet, SimPod
from simulator.engine.gates import Leases
from simulator.engine.ledger import Ledger
from simulator.engine.replica_process import ReplicaProcess
from simulator.engine.time import BEGINNING

#: A job is claimed within this long of the last moment at which it had a reason to wait. A Pod is told
#: its JIT within this long of the moment at which it is written and the Pod asks.
WITHIN: Final = 5.0
#: The same where wake-ups are lost: the loops that apply deliveries and match look again by themselves
#: after 5 s and 4 s.
WITHIN_WITHOUT_WAKEUPS: Final = 13.0
_LOOK_EVERY: Final = 0.5

#: A claim without a JIT is taken over after its mint's deadline, or released when stale.
_CLAIM_LASTS: Final = 330.0
#: A runner that ended without a reported job counts as supply until paddock has asked GitHub (I68).
_SUPPLY_AFTER_END: Final = 150.0
#: Within this paddock knows of a runner that executes another key's job, or a job without a webhook.
_STRAYED: Final = 150.0
#: A runner that is busy by its own word counts for this long from when paddock learned it (I73).
_BUSY_COUNTS: Final = timedelta(minutes=2)
#: The place of an ended Pod is free when the leader has seen its end: the watch may be late, the list
#: may fail, and the leader may stall.
_END_SEEN: Final = 180.0
#: Within this recovery looks at the rows that a restored backup brought back.
_RESTORED: Final = 330.0
#: A pool was applied again: its Pods and its jobs' keys follow.
_DESCRIBED: Final = 15.0
#: The same where the wake-up of the loop that looks at refused jobs is lost.
_DESCRIBED_WITHOUT_WAKEUPS: Final = 320.0
#: The App was just installed: its account and runner groups are read first.
_INSTALLED: Final = 20.0
#: If the webhook of an installation is lost, paddock reads all installations again within this.
_INSTALLATIONS_READ: Final = 960.0
#: An installation's mints per minute, less what a burst takes (`Surroundings`).
_MINTS_PER_MINUTE: Final = 150
#: The longest back-off, and the mint that it follows.
_BACKOFF: Final = 3700.0
#: After the moment that GitHub named: the refused mint, and the match after the back-off.
_AFTER_RESET: Final = 60.0
#: The longest back-off after an error of GitHub's own (5xx), and the mint that follows it.
_SERVER_ERROR: Final = 360.0
#: The longest back-off of an account without an answer, and of all accounts if GitHub is unreachable.
_NO_ANSWER: Final = 150.0
_UNREACHABLE: Final = 25.0
#: Within this paddock finds out that GitHub does not assign a job: a runner was idle beside it for a
#: minute, and two answers say that it is queued.
_EXPLAINED: Final = 180.0
#: The node causes such ends; they are no reason to let a key wait.
_WITH_ITS_NODE: Final = frozenset({Ending.NODE_LOST, Ending.EVICTED, Ending.HARD_DELETED})


_Begun = Mapping[str, tuple[int, Job | None]]


@dataclass(slots=True, eq=False)
class _Claimed:
    at: float
    claim: Claim
    labels: frozenset[str]
    pod: str
    #: The replica that holds the Pod's request, and so made the claim; `None` if the Pod has hung up.
    replica: ReplicaProcess | None

    armed_at: float = math.inf
    released: bool = False


@dataclass(slots=True)
class _Refusal:
    """A mint, or a token for one, that GitHub refused."""

    owner: str
    #: A refusal for one repository says nothing of its account.
    repository: str | None
    status: int
    at: float
    #: Until then it is a reason to wait.
    until: float
    #: A request by the App itself, with its own key.
    by_app: bool = False


@dataclass(slots=True, kw_only=True)
class Prompt:
    fleet: SimFleet
    github: FakeGitHub
    ledger: Ledger
    session: Session
    faults: Faults
    leases: Leases
    now: Callable[[], float]
    violate: Callable[[Promise, str], None]
    #: At this age paddock takes a queued job for one that GitHub no longer has (`job-end`).
    given_up_after: float
    #: When the webhook that queued a job first arrived.
    _known: dict[int, float] = field(default_factory=dict)
    #: The last moment at which a job was served, or had a reason to wait.
    _fine: dict[int, float] = field(default_factory=dict)
    #: Jobs of which any webhook has arrived.
    _heard_of: set[int] = field(default_factory=set)
    _claims: list[_Claimed] = field(default_factory=list)
    _refusals: list[_Refusal] = field(default_factory=list)
    _unusable: dict[str, float] = field(default_factory=dict)
    #: Jobs that came while a Pod waited for them and no excuse held.
    judged: int = 0

    # Facts reported to the check.

    def delivered(self, delivery: Delivery, status: int) -> None:
        if delivery.event != "workflow_job" or not 200 <= status < 300:
            return
        job: int = delivery.payload["workflow_job"]["id"]
        self._heard_of.add(job)
        if delivery.action == "queued" and not self.github.truth.executions_of(job):
            self._known.setdefault(job, self.now())
            self._count(self.github.world.jobs.get(job))

    def _count(self, job: Job | None) -> None:
        """Whether the check can fail: a job comes while a Pod waits for it, and no excuse holds."""
        pool = None if job is None else self.ledger.fits(job)
        if job is None or pool is None:
            return
        now, owner = self.now(), job.repository.owner.login
        warm = any(self._waits(pod, now) > 0 for pod in self.fleet.pods_of(pool))
        if warm and not self._excuse(owner, self.ledger.labels[pool]) and not self._excuse_of(job):
            self.judged += 1

    def committed(self, method: str, args: tuple[Any, ...], result: object) -> None:
        """A store method has changed rows, whether or not its caller got an answer."""
        if method == "match" and isinstance(result, Match):
            for claim in result.claims:
                self._note(claim)
        elif method == "take_over_claim" and isinstance(result, Claim):
            self._release(result.runner)
            self._note(result)
        elif method == "release_runner" and not isinstance(result, Conflict):
            self._release(args[0])
        elif method == "arm_runner" and not isinstance(result, Conflict):
            for each in self._claims:
                if each.claim.runner == args[0] and not each.released:
                    each.armed_at = self.now()

    def _note(self, claim: Claim) -> None:
        name = claim.name.rpartition("-")[0]
        pod = self.fleet.named(name)
        replica = None if pod is None or pod.asks is None else pod.asks.replica
        labels = frozenset(claim.labels)
        self._claims.append(_Claimed(self.now(), claim, labels, name, replica))
        self._look_anew(name)

    def _release(self, runner: object) -> None:
        for each in self._claims:
            if each.claim.runner == runner and not each.released:
                each.released = True
                self._look_anew(each.pod)

    def _look_anew(self, name: str) -> None:
        """A Pod that was claimed counts as waiting from the moment it is free again."""
        pod = self.fleet.named(name)
        if pod is not None and pod.asks is not None:
            pod.asks.since = self.now()

    def answered(self, path: str, status: int, headers: Mapping[str, str]) -> None:
        """GitHub answered a replica; 0 is no answer. A mint needs a token first."""
        parts = path.split("/")
        if len(parts) == 4 and parts[1:3] == ["app", "installations"] and status == 404:
            self._unusable[self._owner(parts[3])] = self.now()
        if 200 <= status < 300 or parts[-1] not in ("generate-jitconfig", "access_tokens"):
            return
        now, until = self.now(), self._reason_until(status, headers)
        if parts[-1] == "access_tokens":
            owner = self._owner(parts[3])
            self._refusals.append(_Refusal(owner, None, status, now, until, by_app=True))
        else:
            repository = "/".join(parts[2:4]) if parts[1] == "repos" else None
            self._refusals.append(_Refusal(parts[2], repository, status, now, until))

    def _reason_until(self, status: int, headers: Mapping[str, str]) -> float:
        """A used-up quota is a reason until it is renewed, an error of GitHub's own for minutes, any
        other refusal for the longest back-off."""
        if not status:
            return self.now() + _NO_ANSWER
        if status >= 500:
            return self.now() + _SERVER_ERROR
        if headers.get("x-ratelimit-remaining") != "0":
            return self.now() + _BACKOFF
        reset_at = datetime.fromtimestamp(int(headers["x-ratelimit-reset"]), UTC)
        return (reset_at - BEGINNING).total_seconds() + _AFTER_RESET

    def _owner(self, installation: str) -> str:
        found = self.github.world.installations.get(int(installation))
        return "" if found is None else found.account.login

    # The check itself.

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if self._known:
                await self._look()

    async def _look(self) -> None:
        now = self.now()
        self._claims = [each for each in self._claims if self._matters(each)]
        waiting = self._waiting(now)
        begun = self._begun()
        for (owner, labels), jobs in waiting.items():
            for job in self._served(owner, labels, jobs, begun, now):
                self._fine[job.id] = now
            excused = self._excuse(owner, labels)
            for job in jobs:
                if excused or self._excuse_of(job):
                    self._fine[job.id] = now
            await self._judge(owner, labels, jobs, now)
        await self._judge_handing(now)

    def _waiting(self, now: float) -> Mapping[tuple[str, frozenset[str]], list[Job]]:
        """By owner and pool: queued jobs that have never begun, in the order in which their first
        webhook arrived. All others are forgotten."""
        found: dict[tuple[str, frozenset[str]], list[Job]] = defaultdict(list)
        for number in list(self._known):
            job = self.github.world.jobs.get(number)
            if job is None or job.status is not JobStatus.QUEUED:
                del self._known[number]
                self._fine.pop(number, None)
                continue
            self._fine.setdefault(number, now)
            pool = self.ledger.fits(job)
            if pool is None:
                self._fine[number] = now
            else:
                owner = job.repository.owner.login
                found[owner, self.ledger.labels[pool]].append(job)
        return found

    def _served(
        self,
        owner: str,
        labels: frozenset[str],
        jobs: Iterable[Job],
        begun: _Begun,
        now: float,
    ) -> list[Job]:
        """The jobs that claimed runners may serve. A runner of a repository serves only that
        repository, one of an organisation serves all."""
        supply: dict[str | None, int] = defaultdict(int)
        for each in self._claims:
            if each.claim.login == owner and each.labels == labels:
                supply[each.claim.repository] += self._supplies(each, labels, begun, now)
        served = []
        for scope_of in (lambda job: job.repository.full_name, lambda _job: None):
            # A job that GitHub does not assign takes no runner from one that it does.
            for job in sorted(jobs, key=self._unassignable):
                scope = scope_of(job)
                if job not in served and supply[scope] > 0:
                    supply[scope] -= 1
                    served.append(job)
        return served

    def _supplies(self, each: _Claimed, labels: frozenset[str], begun: _Begun, now: float) -> bool:
        if each.released:
            return False
        if each.claim.name in begun:
            # It counts for a job of its key until its own job is known.
            return self._strayed(each, labels, begun) and now - each.at < _STRAYED
        pod = self.fleet.named(each.pod)
        if pod is None or not pod.alive or pod.silent:
            return self._lasts(each, now) and self._ended(each.pod, now) < _SUPPLY_AFTER_END
        handed = pod.jit is not None and pod.jit.runner_name == each.claim.name
        return handed or self._lasts(each, now)

    def _strayed(self, each: _Claimed, labels: frozenset[str], begun: _Begun) -> bool:
        """Whether the job that it began is another key's, or one whose webhook has not arrived: paddock
        may not know it (I73)."""
        number, job = begun[each.claim.name]
        pool = None if job is None else self.ledger.fits(job)
        return not (number in self._heard_of and (job is None or self._has(pool, labels)))

    def _has(self, pool: str | None, labels: frozenset[str]) -> bool:
        return pool is not None and self.ledger.labels[pool] == labels

    def _lasts(self, each: _Claimed, now: float) -> bool:
        return now - max(each.at, self._steady) < _CLAIM_LASTS

    @property
    def _steady(self) -> float:
        """Since when the database has answered the current leader. Each leader starts recovery
        anew."""
        return max(self.leases.changed_at, self.faults.database_troubled_at)

    def _ended(self, name: str, now: float) -> float:
        """How long ago; a Pod that never existed counts as just ended."""
        pod = self.fleet.last(name)
        ended = now if pod is None or pod.ended_at is None else pod.ended_at
        return now - max(ended, self._steady)

    def _begun(self) -> _Begun:
        """By a runner's name: the job that it began."""
        jobs = self.github.world.jobs
        return {
            each.runner_name: (each.job_id, jobs.get(each.job_id))
            for each in self.github.truth.executions
        }

    def _matters(self, each: _Claimed) -> bool:
        return self._lasts(each, self.now()) or self._held(each)

    # Reasons to wait.

    def _excuse(self, owner: str, labels: frozenset[str]) -> bool:
        """A reason that holds for every job of this account in this pool."""
        now, ledger = self.now(), self.ledger
        pool = next(name for name, own in ledger.labels.items() if own == labels)
        recent = (
            now - ledger.restored_at < _RESTORED
            or now - ledger.described_at.get(pool, now) < _DESCRIBED
        )
        return (
            recent
            or owner in ledger.paused
            or pool in ledger.paused
            or not self._installed(owner, now)
            or self._over_limit(owner, pool)
            or self._full(pool)
            or self._mints(owner, now) >= _MINTS_PER_MINUTE
        )

    def _mints(self, owner: str, now: float) -> int:
        """Claims of the last minute, which GitHub counts for an installation."""
        return sum(each.claim.login == owner and now - each.at < 60 for each in self._claims)

    def _excuse_of(self, job: Job) -> bool:
        """A repository limit, an age at which GitHub has long given the job up, or a runner group that
        its repository may not use."""
        pool = self.ledger.fits(job)
        assert pool is not None
        assert job.queued_at is not None
        if (self.github.world.time - job.queued_at).total_seconds() > self.given_up_after:
            return True
        return self._unassignable(job) or self._over_limit(job.repository.full_name, pool)

    def _unassignable(self, job: Job) -> bool:
        """Its repository may not use the default runner group."""
        group = self.github.world.groups[job.repository.owner.id][0]
        return group.visibility == "selected" and job.repository.id not in group.repositories

    def _deregistered(self, jit: Jit) -> bool:
        return self.github.world.by_client_id[jit.client_id].removed is RunnerEnd.DELETED

    def _unassigned_since(self, owner: str, labels: frozenset[str]) -> float:
        """When the first webhook arrived of the oldest queued job that GitHub does not assign."""
        jobs = self.github.world.jobs
        return min(
            (
                known
                for number, known in self._known.items()
                if (job := jobs.get(number)) is not None
                and job.status is JobStatus.QUEUED
                and job.repository.owner.login == owner
                and self._has(self.ledger.fits(job), labels)
                and self._unassignable(job)
            ),
            default=math.inf,
        )

    def _installed(self, owner: str, now: float) -> bool:
        """paddock has long known that it may use the App."""
        here = [
            each
            for each in self.github.world.installations.values()
            if each.account.login == owner and not each.removed
        ]
        if not here or here[0].suspended_at is not None:
            self._unusable[owner] = now
            return False
        time, created, changed = self.github.world.time, here[0].created_at, here[0].updated_at
        if changed != created and (time - changed).total_seconds() < _INSTALLATIONS_READ:
            return False
        age = (time - created).total_seconds()
        unusable = self._unusable.get(owner, -_INSTALLATIONS_READ)
        return age >= _INSTALLED and now - unusable >= _INSTALLATIONS_READ

    def _over_limit(self, whose: str, pool: str) -> bool:
        history = self.ledger.limits.get(whose)
        if not history:
            return False
        used, cost, begun = NOTHING, NOTHING, self._begun()
        for pod in self.fleet.pods_of(pool):
            cost = cost.at_least(pod.cost)
        for each in self._claims:
            if self._held(each) and self._counts(each, whose, begun):
                used += self._cost(each.pod)
        return not history[-1][1].admit(used, cost)

    def _counts(self, each: _Claimed, whose: str, begun: _Begun) -> bool:
        """What counts against a repository: runners registered there, and runners of its organisation
        that execute one of its jobs, or may do so, as far as paddock knows (I78)."""
        if whose == each.claim.login or each.claim.repository is not None:
            return whose in (each.claim.login, each.claim.repository)
        if each.claim.login != whose.partition("/")[0]:
            return False
        _, job = begun.get(each.claim.name, (0, None))
        if job is None or job.started_at is None or job.repository.full_name == whose:
            return True
        return (self.github.world.time - job.started_at).total_seconds() < _STRAYED

    def _cost(self, name: str) -> Resources:
        pod = self.fleet.last(name)
        return Resources() if pod is None else pod.cost

    def _held(self, each: _Claimed) -> bool:
        """A Pod holds a place as long as it exists, and until its end was seen."""
        pod = self.fleet.last(each.pod)
        if each.released or pod is None:
            return False
        over = pod.over_at or pod.removed_at or self.now()
        return pod.alive or self.now() - max(over, self._steady) < _END_SEEN

    def _full(self, pool: str) -> bool:
        size = self.ledger.size.get(pool)
        held = {each.pod for each in self._claims if self._held(each)}
        own = {pod.name for pod in self.fleet.pods_of(pool)}
        return size is not None and len(held & own) >= size

    # The verdict.

    async def _judge(
        self, owner: str, labels: frozenset[str], jobs: Sequence[Job], now: float
    ) -> None:
        within = WITHIN_WITHOUT_WAKEUPS if self.faults.loses_wakeups else WITHIN
        waits = {job.id: now - self._since(job) for job in jobs}
        waiting = [job for job in jobs if waits[job.id] > _LOOK_EVERY]
        pool = next(name for name, own in self.ledger.labels.items() if own == labels)
        if not waiting or not any(self._waits(pod, now) for pod in self.fleet.pods_of(pool)):
            return
        spare = await self._busy_since_lately(owner, labels, now)
        # A runner that the check gave to a forgotten job serves one that paddock knows.
        for job in jobs:
            spare += self._fine[job.id] == now and await self._forgotten(job)
        for job in waiting:
            if spare > 0:
                spare -= 1
                self._fine[job.id] = now
            elif (
                await self._backs_off(owner, job, labels)
                or await self._forgotten(job)
                or await self._still_refused(job, pool, now)
            ):
                self._fine[job.id] = now
            elif waits[job.id] > within:
                await self._accuse(job, pool, waits[job.id], within, now)

    async def _accuse(self, job: Job, pool: str, waited: float, within: float, now: float) -> None:
        warm = [pod for pod in self.fleet.pods_of(pool) if self._waits(pod, now) > within]
        idle = await self._idle(warm) if warm else ()
        for pod in [pod for pod in warm if pod.name in idle][:1]:
            self.violate(
                Promise.PROMPT,
                f"job {job.id} of {job.repository.full_name} has waited for {waited:.1f} s,"
                f" and {pod.name} ({pool}) for {self._waits(pod, now):.1f} s",
            )

    async def _judge_handing(self, now: float) -> None:
        """A Pod that asks the replica that claimed it gets its JIT. To another replica it may still be
        idle, until that replica writes who has asked."""
        for each in self._claims:
            pod = self.fleet.named(each.pod)
            if pod is None or pod.asks is None or pod.asks.replica is not each.replica:
                continue
            ready = max(each.armed_at, self.faults.database_troubled_at)
            waited = min(now - ready, self._waits(pod, now))
            if waited > WITHIN and not each.released and await self._armed(each):
                self.violate(
                    Promise.PROMPT,
                    f"{pod.name} has asked for {waited:.1f} s for the JIT of {each.claim.name},"
                    " which is written",
                )

    async def _armed(self, each: _Claimed) -> bool:
        query = "SELECT FROM runners WHERE name = $1 AND state = 'armed'"
        return bool(await self.session.fetch(query, each.claim.name))

    def _since(self, job: Job) -> float:
        return max(self._fine[job.id], self.faults.database_troubled_at)

    def _waits(self, pod: SimPod, now: float) -> float:
        """How long its request has been open at a replica that could answer."""
        if pod.asks is None or not pod.alive or pod.silent or pod.told.is_set():
            return 0.0
        if self.github.world.refuses_version(pod.version):
            return 0.0  # GitHub would give it no job
        replica = pod.asks.replica
        if not replica.alive or replica.stalled:
            return 0.0
        return now - max(pod.asks.since, replica.responsive_since)

    async def _idle(self, pods: Iterable[SimPod]) -> set[str]:
        rows = await self.session.fetch(
            "SELECT pod_name FROM runners WHERE state = 'idle' AND pod_name = ANY($1)"
            " ORDER BY pod_name",
            [pod.name for pod in pods],
        )
        return {row["pod_name"] for row in rows}

    async def _forgotten(self, job: Job) -> bool:
        """A restored backup does not know that it is queued, and comparison has not found it again.
        (SERVED checks in the end that comparison finds it.) A late webhook may have made its row anew,
        as of a job that waits for its approval."""
        if self._known[job.id] > self.ledger.restored_at:
            return False
        query = "SELECT FROM jobs WHERE id = $1 AND state <> 'waiting'"
        return not await self.session.fetch(query, job.id)

    async def _busy_since_lately(self, owner: str, labels: frozenset[str], now: float) -> int:
        """How many runners began a job that paddock cannot know of, and were found busy only long after
        their claim: each counts for one more job."""
        begun = self._begun()
        names = [
            each.claim.name
            for each in self._claims
            if each.claim.login == owner and each.labels == labels and not each.released
            if now - each.at >= _STRAYED
            if each.claim.name in begun and self._strayed(each, labels, begun)
        ]
        if not names:
            return 0
        rows = await self.session.fetch(
            "SELECT FROM runners WHERE name = ANY($1) AND state = 'busy' AND job_id IS NULL"
            " AND busy_at > $2",
            names,
            BEGINNING + timedelta(seconds=now) - _BUSY_COUNTS,
        )
        return len(rows)

    async def _still_refused(self, job: Job, pool: str, now: float) -> bool:
        """No single pool took it until a moment ago, and the wake-up that tells of the pool is lost: it
        is looked at again. paddock may have learned of the job from GitHub's lists, before its
        webhook."""
        described = self.ledger.described_at[pool]
        if not self.faults.loses_wakeups or now - described >= _DESCRIBED_WITHOUT_WAKEUPS:
            return False
        query = "SELECT FROM jobs WHERE id = $1 AND refusal IS NOT NULL AND created_at < $2"
        before = BEGINNING + timedelta(seconds=described + _DESCRIBED)
        return bool(await self.session.fetch(query, job.id, before))

    async def _backs_off(self, owner: str, job: Job, labels: frozenset[str]) -> bool:
        rows = await self.session.fetch(
            """SELECT b.scope::text AS scope FROM backoffs b
                WHERE b.until > $2 AND CASE b.scope
                      WHEN 'app' THEN true
                      WHEN 'account' THEN b.subject IN (SELECT id FROM accounts WHERE login = $1)
                      ELSE b.subject IN (SELECT key_id FROM jobs WHERE id = $3
                                          UNION SELECT repository_id FROM jobs WHERE id = $3) END
                ORDER BY 1""",
            owner,
            BEGINNING + timedelta(seconds=self.now()),
            job.id,
        )
        return any(self._confirms(row["scope"], owner, job, labels) for row in rows)

    def _confirms(self, scope: str, owner: str, job: Job, labels: frozenset[str]) -> bool:
        """Whether GitHub's answers, or runners that ended, justify such a back-off."""
        recent = [each for each in self._refusals if self.now() < each.until]
        match scope:
            case "app":
                return any(
                    each.owner == owner
                    or (each.by_app and each.status in (401, 403, 429))
                    or (not each.status and self.now() - each.at < _UNREACHABLE)
                    for each in recent
                )
            case "account":
                return any(
                    each.owner == owner and (each.repository is None or each.status != 404)
                    for each in recent
                )
            case _:
                here = (None, job.repository.full_name)
                refused = any(each.owner == owner and each.repository in here for each in recent)
                return refused or self._jobless(owner, labels) >= 3

    def _jobless(self, owner: str, labels: frozenset[str]) -> int:
        """Runners of this account and pool that lately ended without a job, and not because of their
        node. Nor does one count whose record was deleted while a job waited that GitHub does not
        assign: that job alone has to wait (I17)."""
        begun, since = self._begun(), self.now() - _BACKOFF
        unassigned = self._unassigned_since(owner, labels)
        return sum(
            pod.jit is not None
            and pod.ended_at is not None
            and pod.ended_at > since
            and not pod.endings & _WITH_ITS_NODE
            and not (self._deregistered(pod.jit) and unassigned < pod.ended_at - _EXPLAINED)
            and pod.jit.runner_name not in begun
            and self.github.world.by_client_id[pod.jit.client_id].owner.login == owner
            for pod in self.fleet.pods
            if self.ledger.labels.get(pod.pool) == labels
        )
