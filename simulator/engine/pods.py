"""The life of a Pod: scheduled, pulled, polling, running, and every way to die.

The poller follows the agent's protocol (`paddock.agent.poll`), the runner that of the fake GitHub.
Both are coroutines in virtual time. Killing a Pod cancels its life and reports how it died.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, Protocol
from uuid import UUID

from paddock.domain.pods.fingerprints import ContainerState, Running, Terminated, Waiting
from paddock.domain.pods.pod import Phase
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.handover import Answer, Handover, Leave, NothingYet
from paddock.fakes.github import FakeGitHub
from paddock.fakes.github.runners import (
    Cancellation,
    JobGoneError,
    Offer,
    RegistrationDeletedError,
    RunnerRefused,
    SessionConflictError,
    VersionDeprecatedError,
)
from simulator.engine.faults import Fault, Faults
from simulator.engine.fleet import Jit, SimFleet, SimPod
from simulator.engine.replica_process import Processes
from simulator.engine.time import VirtualClock
from simulator.engine.trace import Trace

# The agent's own numbers (paddock.agent.poll, paddock.agent.backoff).
_WAIT: Final = 30.0
_ACK_SECONDS: Final = 3.0
_MOST_REFUSALS: Final = 10
_LEFT, _TOKEN_REFUSED = 79, 77
# The runner's (paddock.fakes.runner).
_POLL: Final = 50.0
_CONFLICT_LIMIT: Final = 240.0
_RENEW: Final = 60.0
#: A node under load shows a container's output this much later; for a second look even later.
_LAG: Final = (5.0, 60.0)
#: What every runner prints and no verdict may contain.
TOKEN: Final = "ghs_0123456789abcdefghijABCDEFGHIJ0123456789"  # noqa: S105 - a fake's
#: A Pod that is told to stop is killed after this.
_GRACE: Final = 30.0

#: How a Pod that paddock asked to go may be judged, apart from what really killed it.
OURS: Final = frozenset(
    {
        Ending.LEFT,
        Ending.SURPLUS,
        Ending.NEVER_STARTED,
        Ending.NEVER_REGISTERED,
        Ending.NEVER_RAN,
        Ending.TERMINATED,
    }
)


class NoReplicaReached(Exception):
    """No replica received the request."""


class AnswerLost(Exception):
    """A replica may have served the request; its answer did not arrive."""


class Unavailable(Exception):
    """503: retry."""


class Network(Protocol):
    """How Pods reach paddock."""

    async def poll(self, pod: SimPod, wait: float) -> Answer | None: ...

    async def acknowledge(self, pod: SimPod, delivery: UUID) -> bool | Leave: ...

    async def report_job(self, pod: SimPod) -> None: ...


class ProcessExit(Exception):
    """The runner's process ended: its code, how it really ended, and how it may be judged."""

    def __init__(
        self, code: int, fate: str, endings: frozenset[Ending], reason: str = "Error"
    ) -> None:
        super().__init__(fate)
        self.code = code
        self.fate = fate
        self.endings = endings
        self.reason = reason


class Pods:
    """Gives every new Pod a life."""

    def __init__(
        self,
        *,
        fleet: SimFleet,
        github: FakeGitHub,
        network: Network,
        processes: Processes,
        clock: VirtualClock,
        rng: random.Random,
        faults: Faults,
        trace: Trace,
    ) -> None:
        self.fleet = fleet
        self.github = github
        self.network = network
        self.clock = clock
        self.rng = rng
        self.faults = faults
        self.trace = trace
        self._processes = processes
        self._news: dict[int, asyncio.Event] = {}
        #: Called when a Pod receives a JIT, and when a job begins on it.
        self.on_handed: Callable[[SimPod, Jit], None] = lambda _pod, _jit: None
        github.runners.on_news(lambda runner: self.news(runner.id).set())
        fleet.on_created = self._begin

    def news(self, runner_id: int) -> asyncio.Event:
        return self._news.setdefault(runner_id, asyncio.Event())

    def _begin(self, pod: SimPod) -> None:
        pod.life = self._processes.spawn(_Life(pod, self).live(), name=f"the life of {pod.name}")
        pod.life.add_done_callback(must_not_break)

    # Deaths from outside.

    def kill(
        self,
        pod: SimPod,
        fate: str,
        endings: set[Ending],
        *,
        code: int = 137,
        reason: str = "Error",
        pod_reason: str | None = None,
    ) -> None:
        """All its processes end at once; the kubelet reports it."""
        if not pod.alive:
            return
        self.end_processes(pod)
        container: Literal["runner", "poller", "none"] = "poller"
        if pod.runner is not None and pod.started:
            container = "none" if pod.runner.terminated else "runner"
        if pod.lingers:
            # The kubelet may report either end: its container's, or its Pod's.
            pod.lingers, pod.endings = False, pod.endings | endings
        self.fleet.finish(
            pod,
            fate,
            endings,
            code=code,
            reason=reason,
            pod_reason=pod_reason,
            container=container,
        )

    def silence(self, pod: SimPod, fate: str, endings: set[Ending]) -> None:
        """Its node is dead, and the API does not show it."""
        if not pod.alive:
            return
        self.end_processes(pod)
        self.fleet.fated(pod, fate, endings)
        pod.silent = True
        self.trace.note(pod.name, f"{fate}; no watch sees it")

    def vanish(self, pod: SimPod, fate: str) -> None:
        """Deletes the object by force, in any state."""
        if pod.removed:
            return
        self.end_processes(pod)
        self.fleet.fated(pod, fate, {Ending.HARD_DELETED})
        pod.endings.add(Ending.HARD_DELETED)
        self.fleet.remove(pod, fate)

    def end_processes(self, pod: SimPod) -> None:
        if pod.life is not None:
            pod.life.cancel()
        pod.process = False
        if pod.jit is not None:
            self.github.runners.died(pod.jit.runner_id)


def must_not_break(life: asyncio.Task[None]) -> None:
    """A bug in the simulator must not look like a Pod that hangs."""
    if not life.cancelled() and (error := life.exception()) is not None:
        life.get_loop().call_exception_handler({"message": life.get_name(), "exception": error})


class _Life:
    def __init__(self, pod: SimPod, pods: Pods) -> None:
        self.pod = pod
        self.pods = pods
        self.fleet = pods.fleet
        self.github = pods.github
        self.faults = pods.faults
        self.rng = pods.rng

    async def live(self) -> None:
        pod, fleet = self.pod, self.fleet
        stopping = asyncio.create_task(self._stop())
        try:
            await self._schedule()
            await self._pull()
            jit = await self._poll()
            if jit is None:
                return
            await self._start()
            await self._run(jit)
        except ProcessExit as end:
            self._dead()
            pod.lingers = self.faults.strike(Fault.POD_LINGERS)
            fleet.finish(pod, end.fate, set(end.endings), code=end.code, reason=end.reason)
            if pod.lingers:
                await asyncio.Event().wait()
        finally:
            stopping.cancel()

    def _dead(self) -> None:
        self.pod.process = False
        if self.pod.jit is not None:
            self.github.runners.died(self.pod.jit.runner_id)

    async def _stop(self) -> None:
        """Told to stop: the poller exits at once, a runner within its grace period."""
        pod = self.pod
        await pod.told.wait()
        endings = set(OURS) if pod.deleted_by else {Ending.TERMINATED, Ending.NEVER_STARTED}
        fate = "deleted by us" if pod.deleted_by else "deleted by a foreign hand"
        await asyncio.sleep(self.rng.uniform(0.2, 3.0))
        if pod.process and pod.jit is not None:
            await self._unload(pod.jit)
        self.pods.kill(pod, fate, endings, code=143)

    async def _unload(self, jit: Jit) -> None:
        """A runner cancels its job and tries to report it."""
        job = self.github.truth.executing(jit.runner_id)
        if job is None:
            return
        await asyncio.sleep(self.rng.uniform(0.5, _GRACE - 5))
        runner = self.github.world.by_client_id.get(jit.client_id)
        if runner is None or runner.session is None or self.rng.random() < 0.3:
            return
        try:
            self.github.runners.complete(runner.session.id, job, "cancelled")
        except RunnerRefused:
            return

    # On the way to a poller.

    async def _schedule(self) -> None:
        pod, faults = self.pod, self.faults
        await asyncio.sleep(self.rng.uniform(0.05, 0.8))
        if faults.strike(Fault.UNSCHEDULABLE):
            pod.unschedulable = "0/4 nodes are available: 4 Insufficient cpu."
            self.fleet.trouble(pod, "no node takes it")
            self.fleet.tell(pod, "unschedulable")
            await asyncio.sleep(self.rng.choice((30.0, 120.0, 3600.0)))
        while (node := self.fleet.place(pod)) is None:
            pod.unschedulable = "0/4 nodes are available: 4 node(s) were unschedulable."
            await asyncio.sleep(10.0)
        pod.unschedulable, pod.node = None, node
        self.fleet.tell(pod, f"scheduled on {node}")

    async def _pull(self) -> None:
        pod, faults, rng = self.pod, self.faults, self.rng
        await asyncio.sleep(rng.uniform(0.1, 0.5))
        pod.poller = ContainerState(waiting=Waiting("PodInitializing"))
        pod.runner = ContainerState(waiting=Waiting("PodInitializing"))
        self.fleet.tell(pod, "pulls its image")
        node = self.fleet.nodes[pod.node or ""]
        if node.bad:
            faults.happened(Fault.BAD_NODE)
            pod.poller = ContainerState(waiting=Waiting("CreateContainerError"))
            self.fleet.trouble(pod, "its node is bad")
            self.fleet.tell(pod, f"cannot start on {node.name}")
            await asyncio.Event().wait()
        if pod.stuck or faults.strike(Fault.PULL_FAILS):
            pod.poller = ContainerState(waiting=Waiting("ImagePullBackOff"))
            self.fleet.trouble(pod, "its image is not there")
            self.fleet.tell(pod, "cannot pull its image")
            await asyncio.Event().wait()
        slow = faults.strike(Fault.SLOW_PULL)
        await asyncio.sleep(rng.uniform(60.0, 420.0) if slow else rng.uniform(0.5, 6.0))

    # The poller.

    async def _poll(self) -> Jit | None:
        """The JIT that it received, staged and acknowledged; `None` if the Pod ended instead."""
        pod = self.pod
        running = ContainerState(running=Running(self.pods.clock.now()))
        if pod.shape == "single":
            pod.runner, pod.phase, pod.started = running, Phase.RUNNING, True
            self.say('{"at": "2026-01-05T09:00:00Z", "event": "polling"}')
        else:
            pod.poller, pod.shows_version_since = running, self.pods.clock.now()
        self.fleet.tell(pod, "asks for work")
        handed = await self._work()
        if isinstance(handed, int):
            self._poller_failed(handed)
            return None
        jit = Jit.read(handed.jit)
        pod.jit = jit
        self.pods.on_handed(pod, jit)
        self.fleet.tell(pod, f"holds the JIT of {jit.runner_name}")
        if await self._acknowledge(handed.delivery) is False:
            self._poller_failed(_LEFT)
            return None
        if pod.shape == "gated":
            pod.poller = ContainerState(
                terminated=Terminated(exit_code=0, finished_at=self.pods.clock.now())
            )
            self.fleet.tell(pod, "its poller ended")
        return jit

    def _poller_failed(self, code: int) -> None:
        container = "runner" if self.pod.shape == "single" else "poller"
        fate = "told to leave" if code == _LEFT else "token refused"
        self.fleet.finish(
            self.pod,
            fate,
            set(OURS) | {Ending.CRASH} if self.pod.shape == "single" else set(OURS),
            code=code,
            container=container,  # type: ignore[arg-type]
        )

    async def _work(self) -> Handover | int:
        failures = refusals = 0
        while True:
            try:
                answer = await self.pods.network.poll(self.pod, _WAIT)
            except AnswerLost:
                if self.faults.strike(Fault.POLLER_HANGS):
                    self.fleet.trouble(self.pod, "its poller hangs")
                    await asyncio.Event().wait()
                failures += 1
                if failures > 1:
                    await asyncio.sleep(self._backoff(failures))
                continue
            except (NoReplicaReached, Unavailable):
                failures += 1
                await asyncio.sleep(self._backoff(failures))
                continue
            match answer:
                case Handover():
                    return answer
                case Leave():
                    return _LEFT
                case NothingYet():
                    failures = refusals = 0
                case None:
                    refusals += 1
                    failures += 1
                    if refusals >= _MOST_REFUSALS:
                        return _TOKEN_REFUSED
                    await asyncio.sleep(self._backoff(failures))

    async def _acknowledge(self, delivery: UUID) -> bool:
        """False if it is told to leave."""
        deadline = self.pods.clock.monotonic() + _ACK_SECONDS
        pause = 0.1
        while self.pods.clock.monotonic() < deadline:
            try:
                answer = await self.pods.network.acknowledge(self.pod, delivery)
            except (NoReplicaReached, AnswerLost, Unavailable):
                await asyncio.sleep(pause)
                pause *= 2
            else:
                return answer is True
        self.pods.trace.note(self.pod.name, "not acknowledged; goes on")
        return True

    def _backoff(self, failures: int) -> float:
        return min(15.0, 0.5 * 2.0 ** min(failures, 16)) * self.rng.uniform(0.5, 1.0)

    # The runner.

    async def _start(self) -> None:
        pod, faults, rng = self.pod, self.faults, self.rng
        if faults.strike(Fault.LOG_LATE):
            pod.log_lag = rng.uniform(*_LAG)
        if pod.shape == "single":
            pod.process = True
            await asyncio.sleep(rng.uniform(0.2, 1.0))
            return
        if faults.strike(Fault.NEVER_STARTS):
            pod.runner = ContainerState(waiting=Waiting("CreateContainerError"))
            self.fleet.trouble(pod, "its container is broken")
            self.fleet.tell(pod, "its runner does not start")
            await asyncio.Event().wait()
        slow = faults.strike(Fault.SLOW_START)
        await asyncio.sleep(rng.uniform(20.0, 200.0) if slow else rng.uniform(0.2, 2.0))
        pod.runner = ContainerState(running=Running(self.pods.clock.now()))
        pod.phase, pod.started, pod.process = Phase.RUNNING, True, True
        if faults.strike(Fault.UNRECOGNISED):
            self.fleet.look_strange(pod, seconds=rng.uniform(20.0, 400.0))
        self.fleet.tell(pod, "its runner started")

    async def _run(self, jit: Jit) -> None:
        rng, faults = self.rng, self.faults
        self.say(self.pod.speech.started)
        await asyncio.sleep(rng.uniform(0.5, 3.0))
        if faults.strike(Fault.NEVER_REGISTERS):
            self.fleet.trouble(self.pod, "never registers")
            await asyncio.Event().wait()
        session = await self._connect(jit, self.pod.version)
        for line in self.pod.speech.connected:
            self.say(line)
        self.say(f"token {TOKEN}")
        self.pods.trace.note(self.pod.name, "is online")
        if faults.strike(Fault.LEAVES):
            await asyncio.sleep(rng.uniform(0.1, 2.0))
            self.github.runners.disconnect(session)
            raise ProcessExit(0, "left without a job", frozenset({Ending.NEVER_RAN}), "Completed")
        await self._listen(jit, session)

    async def _connect(self, jit: Jit, version: str) -> str:
        until = self.pods.clock.monotonic() + _CONFLICT_LIMIT
        while True:
            try:
                session = self.github.runners.connect(
                    client_id=jit.client_id, secret=jit.secret, version=version
                )
            except SessionConflictError:
                if self.pods.clock.monotonic() > until:
                    raise ProcessExit(5, "session conflict", frozenset({Ending.CRASH})) from None
                await asyncio.sleep(30.0)
            except RegistrationDeletedError:
                self.say("runner registration has been deleted")
                # It cannot have had a job; which class is right depends on which component removed its
                # record.
                endings = frozenset({Ending.CRASH, *OURS})
                raise ProcessExit(1, "registration deleted", endings) from None
            else:
                return session.id

    async def _listen(self, jit: Jit, session: str) -> None:
        news, is_zombie = self.pods.news(jit.runner_id), False
        while True:
            news.clear()
            try:
                found = None if is_zombie else self.github.runners.poll(session)
            except VersionDeprecatedError:
                self.github.runners.disconnect(session)
                ending = frozenset({Ending.RUNNER_OUTDATED})
                raise ProcessExit(7, "outdated", ending) from None
            except RegistrationDeletedError:
                if self.faults.strike(Fault.ZOMBIE):
                    is_zombie, found = True, None
                    self.fleet.trouble(self.pod, "listens for ever")
                else:
                    self.say("runner registration has been deleted")
                    endings = frozenset({Ending.CRASH, *OURS})
                    raise ProcessExit(1, "registration deleted", endings) from None
            if isinstance(found, Offer):
                await asyncio.sleep(self.rng.uniform(0.05, 0.5))
                try:
                    assignment = self.github.runners.acquire(session, found.job_id)
                except (JobGoneError, RegistrationDeletedError):
                    continue
                await _Job(self, jit, session, assignment.job_id, assignment.name).execute()
            try:
                async with asyncio.timeout(_POLL):
                    await news.wait()
            except TimeoutError:
                continue

    def say(self, text: str) -> None:
        self.fleet.say(self.pod, text)


class _Job:
    """A runner executing its one job."""

    def __init__(self, life: _Life, jit: Jit, session: str, job: int, name: str) -> None:
        self._life = life
        self._jit = jit
        self._session = session
        self._job = job
        self._name = name
        self._github = life.github
        #: The job as the server assigned it; its repository may be deleted meanwhile.
        self._given = life.github.world.jobs[job]
        self._fate: Fault | None = None

    async def execute(self) -> None:
        life, pod, rng = self._life, self._life.pod, self._life.rng
        life.say(pod.speech.running.format(name=self._name))
        life.pods.trace.note(pod.name, f"executes job {self._job}")
        reporting = asyncio.create_task(life.pods.network.report_job(pod))
        try:
            self._fate = life.faults.first(
                Fault.OOM,
                Fault.SIGKILL,
                Fault.SIGTERM,
                Fault.RUNNER_CRASH,
                Fault.WORKER_KILLED,
                Fault.NO_COMPLETION,
                Fault.HANG,
                Fault.GIVEN_BACK,
            )
            seconds = self._given.spec.seconds
            if self._fate not in (None, Fault.WORKER_KILLED, Fault.NO_COMPLETION):
                seconds *= rng.uniform(0.1, 1.0)
            if self._fate is Fault.GIVEN_BACK:
                seconds = rng.uniform(0.2, 2.0)
            cancelled = await self._steps(seconds)
            await self._end(cancelled=cancelled)
        finally:
            reporting.cancel()

    async def _steps(self, seconds: float) -> bool:
        """Whether it was cancelled."""
        clock, news = self._life.pods.clock, self._life.pods.news(self._jit.runner_id)
        until = clock.monotonic() + seconds
        renew_at = clock.monotonic() + _RENEW
        while (left := until - clock.monotonic()) > 0:
            news.clear()
            # An executing runner goes on, and reports its result, also without its registration, and if
            # its version is refused after GitHub gave its job back.
            with suppress(RegistrationDeletedError, VersionDeprecatedError):
                if isinstance(self._github.runners.poll(self._session), Cancellation):
                    await asyncio.sleep(self._life.rng.uniform(0.2, 5.0))
                    return True
            if clock.monotonic() >= renew_at:
                renew_at += _RENEW
                self._renew()
            try:
                async with asyncio.timeout(min(left, renew_at - clock.monotonic() + 0.001)):
                    await news.wait()
            except TimeoutError:
                continue
        return False

    def _renew(self) -> None:
        try:
            self._github.runners.renew(self._session, self._job)
        except RegistrationDeletedError:
            return
        except JobGoneError:
            self._life.say("the job was given up by GitHub")
            raise self._gave_up() from None

    def _gave_up(self) -> ProcessExit:
        """A program whose exit code does not say so looks as if it had completed its job."""
        speech = self._life.pod.speech
        endings = {Ending.HANDSHAKE_FAILED}
        if not speech.tells_results:
            endings.add(Ending.COMPLETED)
        return ProcessExit(speech.code(105), "gave its job up", frozenset(endings))

    async def _end(self, *, cancelled: bool) -> None:
        life, pod = self._life, self._life.pod
        match self._fate:
            case Fault.OOM:
                raise ProcessExit(137, "oom", frozenset({Ending.HOST_OOM}), "OOMKilled")
            case Fault.SIGKILL:
                raise ProcessExit(137, "sigkill", frozenset({Ending.GUEST_OOM_OR_KILL}))
            case Fault.SIGTERM:
                raise ProcessExit(143, "sigterm", frozenset({Ending.TERMINATED}))
            case Fault.RUNNER_CRASH:
                raise ProcessExit(134, "crash", frozenset({Ending.CRASH}))
            case Fault.GIVEN_BACK:
                asyncio.get_running_loop().call_later(
                    life.rng.uniform(1.0, 20.0),
                    self._github.jobs.give_back,
                    self._given,
                    self._jit.runner_id,
                )
                raise ProcessExit(137, "killed at its start", frozenset({Ending.GUEST_OOM_OR_KILL}))
            case Fault.NO_COMPLETION:
                # GitHub's later answer refines it; the class from the fingerprint alone is accepted
                # too.
                endings = frozenset({Ending.HANDSHAKE_FAILED})
                raise ProcessExit(0, "clean exit, never reported", endings, "Completed")
            case Fault.HANG:
                life.fleet.trouble(pod, "hangs")
                # It executes nothing any more, though it still looks busy.
                life.github.runners.died(self._jit.runner_id)
                await asyncio.Event().wait()
            case _:
                await self._complete(cancelled=cancelled)

    async def _complete(self, *, cancelled: bool) -> None:
        spec = self._given.spec
        conclusion = "cancelled" if cancelled else spec.conclusion
        code = {"success": 100, "failure": 102, "cancelled": 103}.get(conclusion, 100)
        if self._fate is Fault.WORKER_KILLED:
            conclusion, code = "failure", 0
        if self._life.rng.random() < 0.3:
            code = 0  # without ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED
        try:
            self._github.runners.complete(self._session, self._job, conclusion)
        except RunnerRefused:
            raise self._gave_up() from None
        speech = self._life.pod.speech
        self._life.say(speech.finished.format(name=self._name, result=conclusion))
        self._life.pod.process = True
        if self._life.faults.strike(Fault.LINGERS):
            self._life.fleet.trouble(self._life.pod, "does not exit after its job")
            await asyncio.Event().wait()
        await asyncio.sleep(self._life.rng.uniform(0.05, 1.5))
        raise ProcessExit(
            speech.code(code), "completed", frozenset({Ending.COMPLETED}), "Completed"
        )
