"""One seed, from an empty database to the verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import structlog
from pydantic import SecretStr

from paddock.domain.github.budgets import BudgetLimits
from paddock.domain.github.objects import GitHubAppId
from paddock.domain.recovery import diagnosis
from paddock.domain.recovery.actions import NoAction
from paddock.domain.recovery.evidence import AnyEvidence
from paddock.domain.recovery.rule import Question, Rule
from paddock.domain.recovery.thresholds import RecoveryTerms, Thresholds
from paddock.domain.runners.runner import Claim, Match
from paddock.fakes.github import FakeGitHub, Timing
from paddock.fakes.github.keys import public_half
from paddock.fakes.github.records import Delivery
from paddock.forensics.post_mortem import LOG_CAPTURED
from paddock.github.apps import Apps, GitHubApp, host_of
from paddock.github.budget import MemoryBudget
from paddock.ports import Store
from paddock.store.store import PgStore
from simulator.engine.checks import Checks, Promise, Violation
from simulator.engine.database import Session, database_over
from simulator.engine.faults import ALL, Fault, FaultMix, Faults
from simulator.engine.fleet import DEPRECATED, Jit, SimFleet, SimPod
from simulator.engine.gates import Leases, StoreGate, WakeupTransport
from simulator.engine.github import API_URL, GitHubTimers, seen_at_github
from simulator.engine.ledger import Ledger
from simulator.engine.loop import Turn, VirtualLoop
from simulator.engine.loop_intervals import LoopIntervals
from simulator.engine.pods import Pods, must_not_break
from simulator.engine.promptness import Prompt
from simulator.engine.recovery_times import DONE_ACTIONS, Times
from simulator.engine.replica_process import Processes, ReplicaProcess
from simulator.engine.replicas import ReplicaContext, SimReplica, Site
from simulator.engine.scale import LARGE, SMALL, Scale, scale_of
from simulator.engine.time import SeededIds, VirtualClock
from simulator.engine.trace import Trace, TraceLine
from simulator.engine.workload import Stage, Story
from simulator.limit_check import LimitCheck
from simulator.waste_checks import WasteChecks

APP_ID: Final = 310_001
SECRET: Final = "simulated"  # noqa: S105 - a fake's

#: Within this much virtual time after faults have stopped everything must be right. GitHub itself
#: needs up to 15 minutes to give up a job whose runner died. paddock asks again after 5 minutes about
#: a record that GitHub calls busy.
SETTLES_WITHIN: Final = 3600.0
#: If nothing has changed for this long, nothing will: it is longer than all of recovery's thresholds.
#: (That an account has removed the App is confirmed three times, a quarter of an hour apart.)
STANDS_STILL: Final = 2400.0
_LOOK_EVERY: Final = 20.0
#: A replica is this many times as likely to die while it mints. A crash there leaves most for recovery
#: to settle.
_AT_A_MINT: Final = 20.0
#: A machine without NTP is off by minutes after some weeks.
_MOST_SKEW: Final = 300.0
#: A day is a quarter of an hour: for what GitHub gives up after a day or two, and paddock notices as
#: late. In some of these worlds GitHub gives up too late.
_SHORT_DAYS: Final = (900.0, 1400.0)
#: A little more than a minute longer than the time after which paddock calls a lease expired.
_SHORT_LEASE: Final = 420.0
#: No drawn job lasts this long: it stands for GitHub's five days.
_LONGEST_JOB: Final = 1500.0
_TERMS: Final = RecoveryTerms(thresholds=Thresholds(removed=_LONGEST_JOB))
_SHORT_TERMS: Final = RecoveryTerms(
    thresholds=Thresholds(
        in_progress=120.0,
        no_job=130.0,
        unheard=140.0,
        job_expired=150.0,
        job_end=1000.0,
        removed=_LONGEST_JOB,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedPlan:
    """What a run is made of; equal plans give equal runs."""

    seed: int
    jobs: int = SMALL.jobs
    faults: frozenset[Fault] = ALL
    replicas: int = 2
    large: bool = False

    @classmethod
    def of(cls, seed: int, *, faults: frozenset[Fault] = ALL, jobs: int | None = None) -> SeedPlan:
        """Every fifth seed is a large world."""
        scale = scale_of(seed)
        jobs = scale.jobs if jobs is None else jobs
        return cls(seed=seed, jobs=jobs, faults=faults, large=scale is LARGE)

    @property
    def scale(self) -> Scale:
        return LARGE if self.large else SMALL


@dataclass(slots=True, kw_only=True)
class Result:
    plan: SeedPlan
    steps: int
    virtual: float
    seconds: float
    digest: str
    violations: list[Violation]
    exercised: dict[str, int]
    #: By rule, how long each recovery took.
    times: dict[str, list[float]] = field(default_factory=dict)
    lines: list[TraceLine] = field(default_factory=list)


class Key:
    """The App's private key, read once: the client reads its file for every token."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.public = public_half(path.read_text())


def simulate(
    plan: SeedPlan,
    *,
    session: Session,
    key: Key,
    keep: bool = False,
    tell: Callable[[TraceLine], None] | None = None,
    world: Callable[..., Simulation] | None = None,
) -> Result:
    """`world` makes the simulation, for a story that the seed does not draw."""
    began = time.perf_counter()
    session.run(_clear(session))
    loop = VirtualLoop(_stream(plan, "turns"))
    asyncio.set_event_loop(None)
    simulation = (world or Simulation)(plan, session, key, loop, keep=keep, tell=tell)
    try:
        loop.run_until_complete(simulation.main())
    finally:
        simulation.end()
        loop.close()
    return Result(
        plan=plan,
        steps=loop.steps,
        virtual=loop.time(),
        seconds=time.perf_counter() - began,
        digest=simulation.trace.digest,
        violations=simulation.violations,
        exercised=dict(sorted(simulation.trace.exercised.items())),
        times=simulation.times,
        lines=simulation.trace.lines,
    )


def _timing(rng: random.Random, *, short: bool) -> Timing:
    """GitHub's delays. In most worlds GitHub gives up a job whose runner died sooner than it really
    does: the wait finds no bugs, and takes most of a run."""
    timing = Timing(queued_for=rng.choice(_SHORT_DAYS)) if short else Timing()
    if rng.random() < 0.25:
        return timing
    return replace(timing, lease=_SHORT_LEASE, lost_lingers=(0.0, 60.0))


def _stream(plan: SeedPlan, name: str) -> random.Random:
    """One generator for each part: more draws in one do not change the others."""
    return random.Random(f"{plan.seed}/{name}")  # noqa: S311


async def _clear(session: Session) -> None:
    rows = await session.fetch(
        "SELECT string_agg(quote_ident(tablename), ', ' ORDER BY tablename) AS all FROM pg_tables"
        " WHERE schemaname = 'public' AND tablename NOT IN"
        " ('schema_migrations', 'runner_transitions', 'terms')"
    )
    await session.execute(f"TRUNCATE {rows[0]['all']} RESTART IDENTITY")
    session.take_heard()


class Simulation:
    #: Operators and unscripted faults act in this world.
    meddled_with = True

    def __init__(
        self,
        plan: SeedPlan,
        session: Session,
        key: Key,
        loop: VirtualLoop,
        *,
        keep: bool,
        tell: Callable[[TraceLine], None] | None,
    ) -> None:
        self._plan = plan
        self._session = session
        self._loop = loop
        self._processes = Processes(loop)
        self._over = asyncio.Event()
        self._errors: list[BaseException] = []
        self._rhythm = self._draw_rhythm()
        self.times: dict[str, list[float]] = {}
        clock = self._clock = VirtualClock(loop)
        self._database_clock = VirtualClock(loop)
        self.trace = Trace(step=lambda: loop.steps, now=loop.time, keep=keep, tell=tell)
        mix = FaultMix.draw(plan.faults, _stream(plan, "weather"))
        self.faults = Faults(mix, _stream(plan, "faults"), self.trace)
        short = self.faults.in_the_air(Fault.SHORT_DAY)
        if short:
            self.faults.happened(Fault.SHORT_DAY)
        terms = _SHORT_TERMS if short else _TERMS
        self._github = FakeGitHub(
            now=clock.now,
            rng=_stream(plan, "github"),
            api_url=API_URL,
            timing=_timing(_stream(plan, "day"), short=short),
        )
        self._github.set_faults(self.faults.at_github())
        self._github.world.deprecated_versions.add(DEPRECATED)
        self._app = self._github.accounts.add_app(
            "paddock", app_id=APP_ID, public_keys=[key.public], webhook_secret=SECRET
        )
        self._fleet = SimFleet(
            clock=clock,
            rng=_stream(plan, "fleet"),
            faults=self.faults,
            trace=self.trace,
            nodes=plan.scale.nodes,
        )
        self._ledger = Ledger()
        self.checks = Checks(
            fleet=self._fleet,
            github=self._github,
            ledger=self._ledger,
            faults=self.faults,
            session=session,
            step=lambda: loop.steps,
            now=loop.time,
            on_violation=self._violated,
            strict=not self.meddled_with,
        )
        self._enough = WasteChecks(
            fleet=self._fleet,
            github=self._github,
            ledger=self._ledger,
            now=loop.time,
            violate=self.checks.violate,
            strict=not self.meddled_with,
        )
        self._leases = Leases(self.faults, loop.time)
        self.prompt = Prompt(
            fleet=self._fleet,
            github=self._github,
            ledger=self._ledger,
            session=session,
            faults=self.faults,
            leases=self._leases,
            now=loop.time,
            violate=self.checks.violate,
            given_up_after=terms.thresholds.job_end,
        )
        self._limit_check = LimitCheck(
            fleet=self._fleet,
            github=self._github,
            ledger=self._ledger,
            now=loop.time,
            violate=self.checks.violate,
        )
        self._wakeup_transport = WakeupTransport(session, self.faults)
        apps = Apps(
            [
                GitHubApp(
                    host=host_of(API_URL),
                    app_id=GitHubAppId(APP_ID),
                    api_url=API_URL,
                    private_key_file=key.path,
                    webhook_secrets=(SecretStr(SECRET),),
                    limits=BudgetLimits(),
                )
            ]
        )
        around = ReplicaContext(
            session=session,
            fleet=self._fleet,
            github=self._github,
            apps=apps,
            budget=MemoryBudget(clock, apps.limits),
            processes=self._processes,
            clock=clock,
            database_clock=self._database_clock,
            rng=_stream(plan, "replicas"),
            faults=self.faults,
            trace=self.trace,
            wakeup_transport=self._wakeup_transport,
            leases=self._leases,
            refused=self.checks.refused,
            committed=self._committed,
            answered=self.prompt.answered,
            recovery=terms,
        )
        self._replicas = [
            SimReplica(f"replica-{number}", around, VirtualClock(loop, ahead=ahead))
            for number, ahead in enumerate(self._skews(), 1)
        ]
        self._site = Site(self._replicas, around)
        self._pods = Pods(
            fleet=self._fleet,
            github=self._github,
            network=self._site,
            processes=self._processes,
            clock=clock,
            rng=_stream(plan, "pods"),
            faults=self.faults,
            trace=self.trace,
        )
        self._wire_up()

    @property
    def violations(self) -> list[Violation]:
        return self.checks.violations

    def _skews(self) -> list[float]:
        """By how much each replica's own clock is ahead of the database's."""
        if not self.faults.in_the_air(Fault.CLOCK_SKEW):
            return [0.0] * self._plan.replicas
        self.faults.happened(Fault.CLOCK_SKEW)
        rng = _stream(self._plan, "clocks")
        return [rng.uniform(-_MOST_SKEW, _MOST_SKEW) for _ in range(self._plan.replicas)]

    def _draw_rhythm(self) -> LoopIntervals:
        return LoopIntervals.draw(_stream(self._plan, "rhythm"))

    def _wire_up(self) -> None:
        self._fleet.on_delete = self.checks.deleting
        self._fleet.on_stamp = self.checks.stamping
        self._fleet.on_place = self.checks.placing
        self._pods.on_handed = self._handed
        self._github.truth.on_began = lambda execution: self._limit_check.began(execution.runner_id)
        self._redeliver = self._github.hooks.redeliver
        setattr(self._github.hooks, "redeliver", self._asked_again)  # noqa: B010
        self._finished = self._github.hooks.finished
        setattr(self._github.hooks, "finished", self._delivered)  # noqa: B010
        self._github.hooks.sink = self._site.deliver
        self._loop.on_turn = self._on_turn
        self._loop.set_exception_handler(self._broken)
        structlog.configure(processors=[self._logged], cache_logger_on_first_use=False)
        self._decide = diagnosis.decide
        setattr(diagnosis, "decide", self._deciding)  # noqa: B010

    def _handed(self, pod: SimPod, jit: Jit) -> None:
        self.checks.handed(pod, jit)
        self._limit_check.handed(jit)
        self._enough.handed(pod, jit)

    def _committed(self, name: str, args: tuple[Any, ...], result: object) -> None:
        self.prompt.committed(name, args, result)
        match result:
            case Match():
                self._limit_check.claimed(result.claims)
            case Claim():
                self._limit_check.taken_over(result)
            case _:
                pass

    def _asked_again(self, delivery: Delivery) -> None:
        self._enough.asked_again(delivery)
        self._redeliver(delivery)

    def _delivered(self, delivery_id: int, status: int, **how: Any) -> None:
        self._finished(delivery_id, status, **how)
        delivery = self._github.world.deliveries.get(delivery_id)
        if delivery is not None:
            self.prompt.delivered(delivery, status)
            self._enough.delivered(delivery, status)

    def _deciding(
        self, evidence: AnyEvidence, thresholds: Thresholds
    ) -> tuple[Rule[Any, Any] | None, Question | None]:
        """Counts a rule that at most asks, and then leaves things alone: it leaves no trace of its
        own."""
        rule, question = self._decide(evidence, thresholds)
        if rule is not None and rule.action is NoAction.LEAVE:
            self.trace.count(f"rule {rule.name}")
        return rule, question

    def _on_turn(self, turn: Turn) -> None:
        self.trace.note(turn.actor.name, turn.what)
        times = _AT_A_MINT if turn.what.endswith("/generate-jitconfig") else 1.0
        if isinstance(turn.actor, ReplicaProcess) and self.faults.strike(Fault.CRASH, times=times):
            for replica in self._replicas:
                if replica.machine is turn.actor:
                    replica.crash(f"before {turn.what}")

    def _logged(self, _logger: Any, method: str, event: Any) -> str:
        text = str(event.pop("event", ""))
        broke = event.pop("exc_info", False)
        if broke or method in ("error", "exception", "critical"):
            self.checks.broke(f"{text}: {_words(event)}")
        if text == LOG_CAPTURED:
            self.checks.log_told(event["pod"])
        self.trace.remark("log", f"{text} {_words(event)}")
        raise structlog.DropEvent

    def _broken(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error of the simulator itself, or in a task of the product's whose result was not
        awaited."""
        error = context.get("exception")
        self._errors.append(error or RuntimeError(context["message"]))
        self._over.set()

    def _violated(self, violation: Violation) -> None:
        self.trace.note("checks", f"BROKEN: {violation.promise}: {violation.what}")
        self._over.set()

    async def main(self) -> None:
        story = self._story()
        self._pulse = GitHubTimers(self._github, self._loop)
        for replica in self._replicas:
            replica.start()
        await story.begin()
        unfolding = asyncio.create_task(story.unfold())
        over = asyncio.create_task(self._over.wait())
        watching = asyncio.create_task(self.prompt.watch())
        watching.add_done_callback(must_not_break)
        await asyncio.wait({unfolding, over}, return_when=asyncio.FIRST_COMPLETED)
        if unfolding.done():
            await unfolding
            story.calm()
            self.trace.note("story", "faults stop")
            self._rhythm.calm()
            await self._settle(over)
        unfolding.cancel()
        watching.cancel()
        if self._errors:
            raise self._errors[0]
        await self._count()

    def _story(self) -> Story:
        operator = ReplicaProcess("operator", self._processes)
        calm = Faults(FaultMix({}), _stream(self._plan, "operator"), self.trace)
        gate = StoreGate(
            PgStore(
                database_over(self._session),
                clock=self._clock,
                ids=SeededIds(_stream(self._plan, "operator's ids"), self._clock),
                actor="operator:sim",
            ),
            machine=operator,
            wakeup_transport=self._wakeup_transport,
            faults=calm,
            trace=self.trace,
            refused=self.checks.refused,
            committed=self._committed,
        )
        stage = Stage(
            github=self._github,
            fleet=self._fleet,
            pods=self._pods,
            replicas=self._replicas,
            operator=cast("Store", gate),
            session=self._session,
            leases=self._leases,
            wakeup_transport=self._wakeup_transport,
            ledger=self._ledger,
            clock=self._clock,
            database_clock=self._database_clock,
            faults=self.faults,
            trace=self.trace,
            app=self._app,
            scale=self._plan.scale,
            disasters=_stream(self._plan, "disasters"),
        )
        return Story(stage, _stream(self._plan, "story"), self._plan.jobs)

    async def _settle(self, over: asyncio.Task[Any]) -> None:
        began = changed = self._loop.time()
        found: list[tuple[Promise, str]] = []
        while not over.done():
            await asyncio.wait({over}, timeout=_LOOK_EVERY)
            before, found = found, await self.checks.shortcomings()
            now = self._loop.time()
            changed = now if found != before else changed
            if not found or now > min(began + SETTLES_WITHIN, changed + STANDS_STILL):
                break
        if not over.done():
            self._accuse([*found, *await self.checks.history()])

    def _accuse(self, found: Iterable[tuple[Promise, str]]) -> None:
        for promise, what in found:
            self.checks.violate(promise, what)

    async def _count(self) -> None:
        trace = self.trace
        for kind, query in _COUNTED:
            for row in await self._session.fetch(query):
                trace.exercised[f"{kind} {row['what']}"] += row["times"]
        actions = await self._session.fetch(DONE_ACTIONS)
        if not self._rhythm.slow:
            self.times = Times(self._fleet, self._github).measured([dict(row) for row in actions])
        trace.exercised["PROMPT judged"] += self.prompt.judged
        for fault, times in seen_at_github(self._github).items():
            if times:
                trace.exercised[f"fault {fault}"] += times

    def end(self) -> None:
        """No task of this world acts any more."""
        self._rhythm.end()
        setattr(diagnosis, "decide", self._decide)  # noqa: B010
        for replica in self._replicas:
            replica.machine.alive = False
        for _ in range(1000):
            tasks = [task for task in asyncio.all_tasks(self._loop) if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()


_COUNTED: Final = (
    (
        "step",
        """SELECT before || ' → ' || after AS what, count(*) AS times FROM events
            WHERE runner_id IS NOT NULL AND before IS NOT NULL GROUP BY 1 ORDER BY 1""",
    ),
    ("rule", "SELECT rule AS what, count(*) AS times FROM actions GROUP BY 1 ORDER BY 1"),
    ("ending", "SELECT ending AS what, count(*) AS times FROM verdicts GROUP BY 1 ORDER BY 1"),
)


def _words(event: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in event.items())
