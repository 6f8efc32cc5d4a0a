"""Fleets to look at: empty, busy, chaotic. They are written by the real store, step by step, so every
row, event and verdict is one that paddock itself would have written. Only time runs faster."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from paddock.domain.accounts import InstallationFacts, MintBudget
from paddock.domain.github.backoffs import BackOffCause, BackOffScope, BackOffSubject, BackOffTerms
from paddock.domain.github.deliveries import DeliveryState, NewDelivery, Settlement
from paddock.domain.ids import AccountId, AppId, GitHubRunnerId, HostId, JobId, PoolId, RunnerId
from paddock.domain.jobs.facts import Executor, JobFacts, JobReport, Refusal, RepositoryFacts
from paddock.domain.limits import UNLIMITED, Limits
from paddock.domain.names import PoolName, pod_name
from paddock.domain.pods.fingerprints import Certainty, Fingerprint
from paddock.domain.pools.sizing import Decision, SizeTerms
from paddock.domain.recovery.evidence import JobWord
from paddock.domain.recovery.records import ActionOutcome, ActionTaken
from paddock.domain.runners.endings import EndingEvidence, Retired, classify
from paddock.domain.runners.runner import Runner, WaitingPod
from paddock.domain.runners.vitals import Sample, VitalsReport
from paddock.domain.states import JobState, RunnerState
from paddock.pools.spec import parse_pools
from paddock.store.database import Database
from paddock.store.store import PgStore
from tests.support.runner_rows import conclude_runner, read_runner
from tests.support.time import SeededIds

_STEP: Final = timedelta(seconds=10)

#: A forged job name, to see whether a page or a command believes it.
HOSTILE: Final = "<script>alert('job')</script> & \"quotes\" \u202egnp.exe"

_POOLS: Final = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux-x64}
spec:
  labels: [self-hosted, linux, x64]
  resources: {vcpu: 4, memory: 16Gi}
  minIdle: 6
  maxRunners: 60
  template: {spec: {containers: [{name: runner, image: "ghcr.io/acme/runner:2.327.1"}]}}
---
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux-arm64}
spec:
  labels: [self-hosted, linux, arm64]
  resources: {vcpu: 8, memory: 32Gi}
  minIdle: 4
  maxRunners: 24
  template: {spec: {containers: [{name: runner, image: "ghcr.io/acme/runner:2.327.1-arm64"}]}}
---
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {name: macos-14}
spec:
  labels: [self-hosted, macos, arm64]
  shape: single
  resources: {vcpu: 6, memory: 14Gi}
  minIdle: 2
  maxRunners: 10
  template: {spec: {containers: [{name: runner, image: "ghcr.io/acme/macos:14.5"}]}}
"""
_SHARES: Final = {"linux-x64": 0.64, "linux-arm64": 0.24, "macos-14": 0.12}
_FLOORS: Final = {"linux-x64": 6, "linux-arm64": 4, "macos-14": 2}
_MAXIMA: Final = {"linux-x64": 60, "linux-arm64": 24, "macos-14": 10}

_ACCOUNTS: Final = (
    ("acme", ("acme/api", "acme/web", "acme/infra"), 3, Limits(runners=40)),
    ("globex", ("globex/monorepo",), 2, Limits(runners=16, vcpu_milli=96_000)),
    ("initech", ("initech/tps-reports", "initech/printer"), 1, Limits(runners=6)),
    ("octocat", ("octocat/hello-world",), 1, UNLIMITED),
)
_JOBS: Final = (
    ("ci", "unit tests (3.12)"),
    ("ci", "unit tests (3.13)"),
    ("ci", "lint"),
    ("ci", "build and push image"),
    ("release", "publish"),
    ("nightly", "end to end (chromium)"),
    ("nightly", "fuzz parser"),
)


class OrderedIds(SeededIds):
    """Later ids sort after earlier ones, as the real ones do."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._count = 0

    def uuid(self) -> UUID:
        self._count += 1
        return UUID(int=(0x0190 << 112) + (self._count << 64) + self._random.getrandbits(60))


class SetClock:
    """Shows the time it was set to."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class _Working:
    """A runner between two steps of its life, and when the next one is due."""

    runner: Runner
    pool: str
    due: datetime
    job: JobId | None = None
    vitals: list[Sample] = field(default_factory=list)
    fate: str | None = None


class Scene:
    def __init__(self, database: Database, *, until: datetime | None = None, seed: int = 7) -> None:
        self.database = database
        self.until = until or datetime.now(UTC)
        self.clock = SetClock(self.until)
        self.ids = OrderedIds(seed)
        self.store = PgStore(database, clock=self.clock, ids=self.ids, actor="paddock-0")
        self.dice = random.Random(seed)
        self.host = HostId(0)
        self.app = AppId(0)
        self.pools: dict[str, PoolId] = {}
        self.accounts: dict[str, AccountId] = {}
        self.repositories: dict[str, RepositoryFacts] = {}
        self.facts: dict[JobId, JobFacts] = {}
        self.places: dict[JobId, tuple[str, str, str]] = {}
        self.crew: dict[RunnerId, _Working] = {}
        self.fates: list[str] = []
        self.peril = 0.0
        self._numbers = iter(range(70_001, 10**9))
        self._github_ids = iter(range(9_001, 10**9))
        self._last_sizes: dict[str, tuple[int, int]] = {}

    async def begin(self) -> None:
        self.host = await self.store.ensure_host("github.com", api_url="https://api.github.com")
        self.app = await self.store.ensure_app(
            self.host, 4711, slug="paddock", mints=MintBudget(per_minute=None, per_hour=None)
        )

    async def populate(self) -> None:
        facts = parse_pools(_POOLS, name="the scene")
        for fact, pool in zip(facts, await self.store.apply_pools(facts), strict=True):
            self.pools[fact.name] = pool
        for index, (login, repositories, weight, limits) in enumerate(_ACCOUNTS, 1):
            self.accounts[login] = await self.store.record_installation(
                InstallationFacts(
                    host=self.host,
                    app=self.app,
                    id=1000 + index,
                    account_id=2000 + index,
                    login=login,
                    kind="organization" if login != "octocat" else "user",
                    state="active",
                    all_repositories=True,
                ),
                limits=limits,
                weight=weight,
            )
            for number, name in enumerate(repositories):
                self.repositories[name] = RepositoryFacts(
                    github_id=3000 + 10 * index + number, full_name=name
                )
            await self.store.record_repositories(
                self.host,
                self.accounts[login],
                [self.repositories[name] for name in repositories],
            )

    async def live(self, *, minutes: int, rate: float) -> None:
        """This many minutes until the present, with about `rate` new jobs in each."""
        began = self.clock.at = self.until - timedelta(minutes=minutes)
        carry = 0.0
        while self.clock.at < self.until:
            swing = 1 + 0.7 * math.sin((self.clock.at - began) / timedelta(minutes=5))
            carry += rate * swing * (_STEP / timedelta(minutes=1))
            await self.queue(int(carry))
            carry -= int(carry)
            await self._size()
            await self._step()
            self.clock.at = min(self.clock.at + _STEP, self.until)

    async def queue(self, count: int, *, account: str | None = None, name: str = "") -> list[JobId]:
        reports = []
        for _ in range(count):
            login = account or self.dice.choices(list(self.accounts), (5, 3, 2, 1))[0]
            repository = self.dice.choice(
                [each for each in self.repositories if each.startswith(f"{login}/")]
            )
            pool = self.dice.choices(list(_SHARES), list(_SHARES.values()))[0]
            workflow, title = self.dice.choice(_JOBS)
            job = JobId(next(self._numbers))
            facts = JobFacts(
                host=self.host,
                id=job,
                run_id=int(job) // 4,
                run_attempt=1,
                name=name or title,
                workflow=workflow,
                labels=("self-hosted", *pool.split("-")[:1]),
                created_at=self.clock.at - timedelta(seconds=self.dice.uniform(0.1, 1.2)),
                state=JobState.QUEUED,
            )
            self.facts[job], self.places[job] = facts, (login, repository, pool)
            reports.append(self._report(facts))
        if reports:
            await self._deliver("queued", len(reports))
            await self.store.apply_jobs(reports, why="webhook: queued")
        return [report.facts.id for report in reports]

    def _report(self, facts: JobFacts, refusal: Refusal | None = None) -> JobReport:
        login, repository, pool = self.places[facts.id]
        return JobReport(
            facts=facts,
            account=self.accounts[login],
            repository=self.repositories[repository],
            served=refusal or self.pools[pool],
        )

    async def _deliver(self, action: str, count: int) -> None:
        new = [
            NewDelivery(
                host=self.host,
                app=self.app,
                guid=str(self.ids.uuid()),
                event="workflow_job",
                action=action,
                installation=1001,
                payload=b"{}",
            )
            for _ in range(count)
        ]
        await self.store.store_deliveries(new)
        taken = await self.store.take_deliveries(count)
        await self.store.apply_deliveries(
            reports=(),
            settled=[Settlement(number=each.number, state=DeliveryState.APPLIED) for each in taken],
            postponed=(),
        )

    async def _size(self) -> None:
        queued = self._queued_by_pool()
        decisions = []
        for name, pool in self.pools.items():
            crew = [each for each in self.crew.values() if each.pool == name]
            occupied = sum(each.runner.key is not None for each in crew)
            floor, most = _FLOORS[name], _MAXIMA[name]
            target = min(most, occupied + queued.get(name, 0) + floor)
            if self._last_sizes.get(name) != (occupied, target):
                terms = SizeTerms(
                    occupied=occupied,
                    queued=queued.get(name, 0),
                    withheld=0,
                    min_idle=floor,
                    size=None,
                    maximum=most,
                    settled=target,
                    room=None,
                )
                asked = queued.get(name, 0)
                why = f"{target} wanted: {occupied} occupied, {asked} queued, {floor} idle"
                decisions.append(
                    Decision(pool=pool, wanted=target, target=target, terms=terms, why=why)
                )
                self._last_sizes[name] = (occupied, target)
            await self._plan(name, min(12, target - len(crew)))
        await self.store.record_decisions(decisions)

    def _queued_by_pool(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for job, facts in self.facts.items():
            if facts.state is JobState.QUEUED:
                pool = self.places[job][2]
                found[pool] = found.get(pool, 0) + 1
        return found

    async def _plan(self, name: str, count: int) -> None:
        if count <= 0:
            return
        pods = [
            (RunnerId(self.ids.uuid()), pod_name(PoolName(name), self.ids.suffix(10)))
            for _ in range(count)
        ]
        for runner in await self.store.plan_runners(
            self.pools[name], pods, why="the pool wants more"
        ):
            due = self.clock.at + timedelta(seconds=self.dice.uniform(6, 25))
            self.crew[runner.id] = _Working(runner=runner, pool=name, due=due)

    async def _step(self) -> None:
        for working in list(self.crew.values()):
            if working.due <= self.clock.at:
                await self._next(working)
        await self._match()

    async def _match(self) -> None:
        idle = [each for each in self.crew.values() if each.runner.state is RunnerState.IDLE]
        match = await self.store.match(
            [
                WaitingPod(
                    id=each.runner.id,
                    pool=each.runner.pool,
                    pod_name=each.runner.pod_name,
                    generation=each.runner.generation,
                )
                for each in idle
            ]
        )
        for claim in match.claims:
            working = self.crew[claim.runner]
            await self._refresh(working)
            working.job = claim.hint
            self.clock.at += timedelta(milliseconds=self.dice.uniform(20, 90))
            await self._arm(working)

    async def _arm(self, working: _Working) -> None:
        armed = await self.store.arm_runner(
            working.runner.id,
            generation=working.runner.generation,
            github_id=GitHubRunnerId(next(self._github_ids)),
            delivery=self.ids.uuid(),
            sealed_jit=b"sealed",
            sealing_key="k1",
        )
        assert isinstance(armed, Runner)
        working.runner = armed
        working.due = self.clock.at + timedelta(seconds=self.dice.uniform(0.3, 12))

    async def _next(self, working: _Working) -> None:
        runner = working.runner
        match runner.state:
            case RunnerState.BOOTING:
                heard = await self.store.hear_pod(runner.pod_name, pod_uid=f"uid-{runner.pod_name}")
                assert heard is not None
                working.runner = heard.runner
                await self._place(working)
                working.due = self.until + _STEP
            case RunnerState.ARMED:
                assert runner.delivery is not None
                assert runner.pod_uid is not None
                running = await self.store.acknowledge_delivery(
                    runner.pod_name, pod_uid=runner.pod_uid, delivery=runner.delivery
                )
                assert isinstance(running, Runner)
                working.runner = running
                working.due = self.clock.at + timedelta(seconds=self.dice.uniform(2, 15))
            case RunnerState.RUNNING:
                await self._start(working)
            case RunnerState.BUSY:
                await self._finish(working)
            case RunnerState.DONE:
                await self.conclude(working, exit_code=100, reason="Error")
            case _:
                pass

    async def _place(self, working: _Working) -> None:
        node = f"node-{'abc'[sum(map(ord, working.runner.pod_name)) % 3]}{working.pool[-2:]}"
        async with self.database.transaction() as connection:
            await connection.execute(
                "UPDATE runners SET node = $2, started = true WHERE id = $1",
                working.runner.id,
                node,
            )

    async def _start(self, working: _Working) -> None:
        job = working.job
        if job is None or self.facts[job].state is not JobState.QUEUED:
            working.due = self.until + _STEP
            return
        runner = working.runner
        assert runner.github_id is not None
        assert runner.name is not None
        await self._tell(
            self._with(
                job,
                state=JobState.IN_PROGRESS,
                started_at=self.clock.at,
                executor=Executor(github_id=runner.github_id, name=runner.name),
            )
        )
        await self._refresh(working)
        seconds = min(self.dice.lognormvariate(4.6, 0.8), 1500)
        working.due = self.clock.at + timedelta(seconds=seconds)
        if self.fates and self.dice.random() < self.peril:
            working.fate = self.fates.pop(0)
        await self._measure(working, seconds)

    def _with(self, job: JobId, **changes: Any) -> JobFacts:
        self.facts[job] = replace(self.facts[job], **changes)
        return self.facts[job]

    async def _tell(self, facts: JobFacts) -> None:
        await self.store.apply_jobs([self._report(facts)], why=f"webhook: {facts.state}")

    async def _measure(self, working: _Working, seconds: float) -> None:
        """The values that it will have measured by its end, or has by now."""
        limit = 16 * 2**30
        began = self.clock.at.timestamp()
        count = int(min(seconds, (self.until - self.clock.at).total_seconds()) / 5)
        used, cpu, samples = 0.8 * 2**30, 0.0, []
        for number in range(min(count, 240)):
            share = number / max(1, count)
            growth = 1.2 if working.fate == "oom" else 0.45
            used = min(
                limit * 0.999,
                2**30 * (0.8 + 15 * growth * share**1.3) + self.dice.gauss(0, 1.5e8),
            )
            cpu += self.dice.uniform(4, 19)
            pressed = not working.pool.startswith("macos")  # only Linux measures that
            samples.append(
                Sample(
                    at=began + 5 * number,
                    memory_used=max(2e8, used),
                    memory_limit=limit,
                    oom_kills=0,
                    memory_pressure=max(0.0, self.dice.gauss(60 * (share**6), 1))
                    if pressed
                    else None,
                    cpu_pressure=max(0.0, self.dice.gauss(12, 6)) if pressed else None,
                    io_pressure=max(0.0, self.dice.gauss(2, 1)) if pressed else None,
                    cpu_seconds=cpu,
                    disk_used=4e9 + 2e9 * share,
                    load=self.dice.uniform(1, 4),
                )
            )
        for start in range(0, len(samples), 64):
            report = VitalsReport(
                pod_name=working.runner.pod_name,
                pod_uid=working.runner.pod_uid or "",
                samples=samples[start : start + 64],
                job_started_at=self.clock.at,
            )
            await self.store.add_vitals([report])

    async def _finish(self, working: _Working) -> None:
        job = working.runner.job or working.job
        assert job is not None
        if working.fate is not None:
            await self._die(working, job)
            return
        conclusion = self.dice.choices(("success", "failure", "cancelled"), (88, 9, 3))[0]
        await self._tell(
            self._with(
                job,
                state=JobState.COMPLETED,
                completed_at=self.clock.at,
                conclusion=conclusion,
            )
        )
        await self._refresh(working)
        working.due = self.clock.at + timedelta(seconds=self.dice.uniform(2, 14))

    async def _die(self, working: _Working, job: JobId) -> None:
        tail = "\n".join(
            [
                f"{self.clock.at:%Y-%m-%d %H:%M:%S}Z: Running job: {self.facts[job].name}",
                "Linking target/release/acme-api",
                f"<b>error</b>: {HOSTILE}",
                "collect2: fatal error: ld terminated with signal 9 [Killed]",
                "compilation terminated.",
            ]
        )
        match working.fate:
            case "oom":
                await self.conclude(working, exit_code=137, reason="OOMKilled", tail=tail)
            case "vanished":
                await self.conclude(working, vanished=True)
            case "evicted":
                await self.conclude(
                    working, exit_code=137, reason="Error", pod_reason="Evicted", tail=tail
                )
            case "node-lost":
                await self.conclude(working, exit_code=137, reason="ContainerStatusUnknown")
            case _:
                await self.conclude(working, exit_code=134, reason="Error", tail=tail)
        self._with(job, state=JobState.COMPLETED, completed_at=self.clock.at, conclusion="failure")
        await self._tell(self.facts[job])

    async def conclude(
        self,
        working: _Working,
        *,
        exit_code: int | None = None,
        reason: str = "",
        pod_reason: str = "",
        vanished: bool = False,
        retired: Retired | None = None,
        tail: str | None = None,
    ) -> None:
        runner = working.runner
        mark = None
        if exit_code is not None:
            mark = Fingerprint(exit_code=exit_code, reason=reason, finished_at=self.clock.at)
        had_a_job = runner.job is not None
        evidence = EndingEvidence(
            fingerprint=mark,
            pod_reason=pod_reason,
            vanished=vanished,
            retired=retired,
            job=Certainty.YES if had_a_job else Certainty.NO,
            registered=Certainty.YES if had_a_job else Certainty.NO,
            started=Certainty.YES,
            node=runner.node,
            circumstances=("Pod event OOMKilling: Memory cgroup out of memory",)
            if reason == "OOMKilled"
            else (),
        )
        told = classify(evidence)
        encoded = msgspec.json.encode(evidence).decode()
        gone = await conclude_runner(
            self.store,
            runner.id,
            generation=runner.generation,
            state=runner.state,
            ending=told.ending,
            why=told.why,
            ended_at=self.clock.at,
            fingerprint=mark,
            log_tail=tail,
            evidence=encoded,
        )
        assert isinstance(gone, Runner), gone
        await self.act(
            "pod-gone" if vanished else "pod-ended", "conclude", told.why, runner, encoded
        )
        del self.crew[runner.id]

    async def act(
        self,
        rule: str,
        action: str,
        why: str,
        runner: Runner,
        evidence: str = "{}",
        outcome: ActionOutcome = ActionOutcome.DONE,
    ) -> None:
        await self.store.acting_as("paddock-0/recovery").record_action(
            ActionTaken(
                rule=rule,
                action=action,
                outcome=outcome,
                why=why,
                evidence=evidence,
                runner=runner.id,
                pod_name=runner.pod_name,
            )
        )

    async def _refresh(self, working: _Working) -> None:
        found = await read_runner(self.store, working.runner.id)
        assert found is not None
        working.runner = found

    def of_state(self, *states: RunnerState) -> Sequence[_Working]:
        return [each for each in self.crew.values() if each.runner.state in states]

    async def go_wrong(self) -> None:
        """All kinds of trouble for which an operator opens the dashboard at night."""
        operator = self.store.acting_as("operator:ana")
        for working in list(self.of_state(RunnerState.RUNNING))[:3]:
            suspect = await self.store.suspect_runner(
                working.runner.id, generation=working.runner.generation
            )
            assert isinstance(suspect, Runner)
            await self.act(
                "suspect",
                "suspect",
                "its container is up for 74 s, GitHub calls it offline",
                suspect,
            )
        for working in list(self.of_state(RunnerState.IDLE))[:2]:
            why = "not heard for 131 s while others were answered"
            fenced = await self.store.fence_runner(
                working.runner.id,
                generation=working.runner.generation,
                state=working.runner.state,
                why=why,
            )
            assert isinstance(fenced, Runner)
            await self.act("silent", "fence", why, fenced)
            working.runner = fenced
        job = JobId(next(self._numbers))
        self.places[job] = ("acme", "acme/api", "linux-x64")
        facts = JobFacts(
            host=self.host,
            id=job,
            run_id=1,
            run_attempt=1,
            name=HOSTILE,
            workflow="ci",
            labels=("self-hosted", "linux", "gpu"),
            created_at=self.clock.at - timedelta(minutes=23),
            state=JobState.QUEUED,
        )
        self.facts[job] = facts
        refusal = Refusal(
            reason="near-miss", detail="no pool has the label gpu; linux-x64 has the others"
        )
        await self.store.apply_jobs([self._report(facts, refusal)], why="webhook: queued")
        await self.database.rows(
            "UPDATE jobs SET trusted = false, trust_why = 'its code comes from the fork mallory/api' "
            "WHERE id = $1 RETURNING id",
            job,
        )
        waiting = await self.queue(14, account="initech")
        await self.store.note_job_check(self.host, waiting[0], answer=JobWord.QUEUED)
        await operator.pause_account(self.accounts["octocat"], why="abuse report 4711")
        await operator.pause_pool(self.pools["macos-14"], why="new Xcode image")
        await self.store.back_off(
            BackOffSubject(BackOffScope.ACCOUNT, int(self.accounts["globex"])),
            BackOffTerms(
                cause=BackOffCause.MINT_FAILED,
                reason="GitHub refused the App: 403, resource not accessible by integration",
                seconds=240,
                ceiling=1800,
            ),
        )
        await self._dead_delivery()

    async def _dead_delivery(self) -> None:
        await self.store.store_deliveries(
            [
                NewDelivery(
                    host=self.host,
                    app=self.app,
                    guid=str(self.ids.uuid()),
                    event="workflow_job",
                    action="queued",
                    installation=None,
                    payload=b"{}",
                )
            ]
        )
        [taken] = await self.store.take_deliveries(1)
        await self.store.apply_deliveries(
            reports=(),
            settled=[
                Settlement(
                    number=taken.number,
                    state=DeliveryState.DEAD,
                    note="it names no installation <at all>",
                )
            ],
            postponed=(),
        )


async def empty(database: Database) -> Scene:
    scene = Scene(database)
    await scene.begin()
    return scene


async def busy(database: Database, *, minutes: int = 6, rate: float = 11) -> Scene:
    scene = Scene(database)
    await scene.begin()
    await scene.populate()
    await scene.live(minutes=minutes, rate=rate)
    return scene


async def chaotic(database: Database, *, minutes: int = 6, rate: float = 11) -> Scene:
    scene = Scene(database)
    await scene.begin()
    await scene.populate()
    scene.fates = ["oom", "crash", "oom", "vanished", "evicted", "oom", "node-lost", "crash"] * 3
    scene.peril = min(0.3, 2 * len(scene.fates) / (minutes * rate))
    await scene.live(minutes=minutes, rate=rate)
    await scene.go_wrong()
    return scene
