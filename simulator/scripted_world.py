"""A scripted world: the simulator without random draws, where a script acts at exact moments.

Seeds find unforeseen faults. A known incident, or a foreseen fault that needs a coincidence of
seconds, is written as a script (`simulator.scenarios`). The services, fakes and checkers are the same;
the script replaces the drawn story.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec

from paddock.domain.limits import Limits
from paddock.domain.runners.handover import Answer, Handover, Leave
from paddock.domain.runners.runner import Match
from paddock.fakes.github import FakeGitHub, JobSpec, Reply, Request
from paddock.fakes.github.records import Job, JobStatus
from paddock.ports import Store
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.engine.faults import Fault
from simulator.engine.fleet import SimPod
from simulator.engine.loop import Turn
from simulator.engine.loop_intervals import LoopIntervals
from simulator.engine.pods import AnswerLost, Network
from simulator.engine.replica_process import ReplicaProcess
from simulator.engine.replicas import SimReplica
from simulator.engine.scale import LINUX, Described
from simulator.engine.simulation import Key, Result, SeedPlan, Simulation, simulate
from simulator.engine.trace import TraceLine
from simulator.engine.workload import Story

#: By this time the first Pods ask for work.
WARM: Final = 25.0
_LOOK: Final = 0.25

Script = Callable[["Scene"], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    source: str
    tells: str
    script: Script


class _Scripted(Simulation):
    meddled_with = False

    def __init__(self, scenario: Scenario, *args: Any, **options: Any) -> None:
        self._scenario = scenario
        self.watchers: list[Callable[[Turn], None]] = []
        super().__init__(*args, **options)

    def _draw_rhythm(self) -> LoopIntervals:
        return LoopIntervals(slow=False)

    def _story(self) -> Story:
        drawn = super()._story()
        return _Script(drawn.stage, drawn.rng, 0, tell=self._scenario.script, simulation=self)

    def _on_turn(self, turn: Turn) -> None:
        super()._on_turn(turn)
        for watcher in list(self.watchers):
            watcher(turn)


class _Script(Story):
    def __init__(self, *parts: Any, tell: Script, simulation: _Scripted) -> None:
        super().__init__(*parts)
        self._tell = tell
        self._simulation = simulation

    async def unfold(self) -> None:
        await self._tell(Scene(self, self._simulation))


@dataclass(slots=True)
class Scene:
    """What a script can read and do."""

    story: Story
    simulation: _Scripted
    _forced: dict[Fault, Callable[[], bool]] = field(default_factory=dict)

    # Reading the world.

    @property
    def github(self) -> FakeGitHub:
        return self.story.stage.github

    @property
    def session(self) -> Session:
        return self.simulation._session  # noqa: SLF001 - the stage is the simulation's own

    @property
    def operator(self) -> Store:
        return self.story.stage.operator

    @property
    def living(self) -> list[SimPod]:
        return [pod for pod in self.story.stage.fleet.there() if pod.alive]

    def on(self, job: Job) -> SimPod | None:
        """The Pod that executes this job."""
        return next((pod for pod in self.living if self.executes(pod) == job.id), None)

    def executes(self, pod: SimPod) -> int | None:
        if pod.jit is None or not pod.process:
            return None
        return self.github.truth.executing(pod.jit.runner_id)

    def replica_of(self, turn: Turn) -> SimReplica | None:
        replicas = self.story.stage.replicas
        return next((each for each in replicas if each.machine is turn.actor), None)

    # Actions.

    def note(self, what: str) -> None:
        self.story.stage.trace.note("script", what)

    def queue(
        self,
        seconds: float,
        *,
        repository: str = "acme/site",
        labels: Sequence[str] = LINUX,
        gated: bool = False,
    ) -> Job:
        ledger, clock = self.story.stage.ledger, self.story.stage.clock
        ledger.first_job = min(ledger.first_job, clock.monotonic())
        place = next(each for each in self.story.repositories if each.full_name == repository)
        spec = JobSpec(name="build", labels=tuple(labels), seconds=seconds, gated=gated)
        [job] = self.github.jobs.queue_run(place, [spec]).jobs
        self.note(f"{repository}: job {job.id} of {seconds:.0f} s")
        return job

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until(self, seen: Callable[[], object], *, within: float = 300.0) -> bool:
        """Whether the condition became true. If it did not, the script goes on: the checks decide."""
        deadline = self.story.stage.clock.monotonic() + within
        while not seen():
            if self.story.stage.clock.monotonic() > deadline:
                return False
            await asyncio.sleep(_LOOK)
        return True

    async def executed(self, job: Job, *, within: float = 900.0) -> bool:
        return await self.until(lambda: job.status is JobStatus.COMPLETED, within=within)

    async def started(self, job: Job, *, within: float = 300.0) -> SimPod | None:
        await self.until(lambda: self.on(job), within=within)
        return self.on(job)

    async def limit(self, login: str, limits: int | Limits) -> None:
        """Set before the first claim: so it has always held. A number is of runners."""
        limits = limits if isinstance(limits, Limits) else Limits(runners=limits)
        await self.story.operators.limit(login, limits)
        self.story.stage.ledger.limits[login] = [(-math.inf, limits)]

    async def limit_repository(self, full_name: str, limits: int | Limits) -> None:
        """From now on. A number is of runners."""
        limits = limits if isinstance(limits, Limits) else Limits(runners=limits)
        if not await self.story.operators.limit_repository(full_name, limits):
            raise LookupError(f"{full_name} has had no job: paddock does not know it yet.")
        self.note(f"{full_name} may have {limits}")

    async def describe(self, pool: Described) -> None:
        """Applies an existing pool again."""
        await self.story.operators.operate(lambda store: store.apply_pools([pool.facts()]))
        self.note(f"describes {pool}")

    def at_turn(self, seen: Callable[[Turn], bool], act: Callable[[Turn], None]) -> None:
        """Acts just before the first turn that matches."""
        watchers = self.simulation.watchers

        def watch(turn: Turn) -> None:
            if isinstance(turn.actor, ReplicaProcess) and seen(turn):
                watchers.remove(watch)
                act(turn)

        watchers.append(watch)

    def broken(self, promise: Promise, what: str) -> None:
        self.simulation.checks.violate(promise, what)

    # Faults.

    def force(self, fault: Fault, when: Callable[[], bool]) -> None:
        """The fault occurs at each opportunity at which `when` is true."""
        faults = self.simulation.faults
        if not self._forced:
            strike = faults.strike

            def forced(fault: Fault, *, times: float = 1.0) -> bool:
                if fault in self._forced and faults.on and self._forced[fault]():
                    faults.happened(fault)
                    return True
                return strike(fault, times=times)

            faults.strike = forced  # type: ignore[method-assign]
        self._forced[fault] = when
        faults.loses_wakeups |= fault is Fault.WAKEUP_LOST

    def force_once(self, fault: Fault) -> None:
        left = [True]
        self.force(fault, lambda: bool(left) and left.pop())

    def at_github(self, **faults: Any) -> None:
        world = self.github.world
        self.github.set_faults(msgspec.structs.replace(world.faults, **faults))

    def answer_runner_lists(self, change: Callable[[Request, Reply], Reply]) -> None:
        """Called for each page when a scope's runners are listed."""

        def listed(request: Request) -> bool:
            return request.path.endswith("/actions/runners") and "name" not in request.query

        self.answer(listed, change)

    def answer(
        self, asked: Callable[[Request], bool], change: Callable[[Request, Reply], Reply]
    ) -> None:
        """Changes GitHub's successful answers to such requests."""
        answer = self.github.request

        def changed(request: Request) -> Reply:
            reply = answer(request)
            hit = request.method == "GET" and asked(request) and reply.status == 200
            return change(request, reply) if hit else reply

        self.github.request = changed  # type: ignore[method-assign]

    def serve_with_one_replica(self) -> None:
        """The others get no requests of Pods, and no webhooks."""
        site = self.simulation._site  # noqa: SLF001 - the stage is the simulation's own
        site.replicas = site.replicas[:1]

    def hold_matches(self, until: Callable[[SimPod], Awaitable[object]]) -> None:
        """A replica gets the answer to a match only after that: called for each claimed Pod."""
        for replica in self.story.stage.replicas:
            assert replica.dispatcher is not None
            store: Any = replica.dispatcher._store  # noqa: SLF001 - as its network would
            store.match = partial(self._hold, store.match, until)

    async def _hold(
        self,
        match: Callable[[object], Awaitable[Match]],
        until: Callable[[SimPod], Awaitable[object]],
        pods: object,
    ) -> Match:
        done = await match(pods)
        for claim in done.claims:
            pod = self.story.stage.fleet.named(claim.name.rpartition("-")[0])
            if pod is not None:
                await until(pod)
        return done

    def delay_polls(self, seconds: float) -> None:
        """So long is a Pod's request on its way to a replica."""
        self._network(partial(_Slow, seconds))

    def mute_sidecars(self) -> None:
        """No replica receives the sidecars' reports that a job began."""
        self._network(_Muted)

    def lose_next_jit(self) -> None:
        """The answer that carries the next JIT does not arrive."""
        self._network(_LosesOne)

    def lose_acknowledgements(self) -> None:
        """No replica hears that a Pod holds its JIT."""
        self._network(_Unheard)

    def _network(self, kind: Callable[[Network], Network]) -> None:
        pods = self.story.stage.pods
        pods.network = kind(pods.network)


class _Around:
    def __init__(self, network: Network) -> None:
        self._network = network

    async def poll(self, pod: SimPod, wait: float) -> Answer | None:
        return await self._network.poll(pod, wait)

    async def acknowledge(self, pod: SimPod, delivery: UUID) -> bool | Leave:
        return await self._network.acknowledge(pod, delivery)

    async def report_job(self, pod: SimPod) -> None:
        await self._network.report_job(pod)


class _Slow(_Around):
    def __init__(self, seconds: float, network: Network) -> None:
        super().__init__(network)
        self._seconds = seconds

    async def poll(self, pod: SimPod, wait: float) -> Answer | None:
        await asyncio.sleep(self._seconds)
        return await super().poll(pod, wait)


class _Muted(_Around):
    async def report_job(self, pod: SimPod) -> None: ...


class _Unheard(_Around):
    async def acknowledge(self, pod: SimPod, delivery: UUID) -> bool | Leave:
        raise AnswerLost


class _LosesOne(_Around):
    _lost = False

    async def poll(self, pod: SimPod, wait: float) -> Answer | None:
        answer = await super().poll(pod, wait)
        if isinstance(answer, Handover) and not self._lost:
            self._lost = True
            raise AnswerLost
        return answer


def play(
    scenario: Scenario,
    plan: SeedPlan,
    *,
    session: Session,
    key: Key,
    keep: bool = False,
    tell: Callable[[TraceLine], None] | None = None,
) -> Result:
    """A scenario from beginning to verdict."""
    world = partial(_Scripted, scenario)
    return simulate(plan, session=session, key=key, keep=keep, tell=tell, world=world)
