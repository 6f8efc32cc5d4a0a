"""Incidents of `paddock up --demo chaos`: they happened in real installations, and are repeated here
on real processes and the fake GitHub.

Each does its harm, names the job and the Pod, and waits for the end by the fake GitHub's ground truth.
An incident does not help paddock to find and repair it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from paddock.demo.demo import Demo
from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import PodOrder
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import RunnerSummary
from paddock.domain.states import RunnerState
from paddock.fakes.github import FakeGitHub, FaultKind
from paddock.fakes.github.records import Job, JobStatus, Session
from paddock.fakes.github.runners import SessionConflictError
from paddock.fleet.local.pod_directory import PodDirectory
from paddock.ports import Clock, Fleet, Ids
from paddock.ports.runners import RetireByHandStore

_LOOK: Final = 0.1
_MINT: Final = "generate-jitconfig"
#: paddock has to ask GitHub twice, and a busy machine is slow.
_NOT_ASSIGNED: Final = 35.0


class IncidentOver(Exception):
    """What the incident waits for cannot happen any more."""


@dataclass(slots=True, kw_only=True)
class Case:
    """One incident: its job and Pod, and what paddock must find."""

    name: str
    job: int | None = None
    pod: str | None = None
    #: The verdict on the Pod must be one of these endings, found by one of these rules.
    endings: list[Ending] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    #: The story must contain these words: the job's while it lasts, or the Pod's or job's afterwards.
    meanwhile: str | None = None
    afterwards: str | None = None


class SessionBlocker:
    """Runners whose session GitHub never opens: they run, retry, and never come online."""

    def __init__(self, fake: FakeGitHub) -> None:
        self._fake = fake
        self._muted: set[str] = set()
        self._next: asyncio.Future[str] | None = None
        self._connect = fake.runners.connect
        fake.runners.connect = self._refuse  # type: ignore[method-assign]

    async def next_runner(self) -> str:
        """The name of the next runner that tries."""
        self._next = asyncio.get_running_loop().create_future()
        return await self._next

    def _refuse(self, *, client_id: str, secret: str, version: str) -> Session:
        record = self._fake.world.by_client_id.get(client_id)
        if record is not None and not record.removed:
            if self._next is not None and not self._next.done():
                self._muted.add(client_id)
                self._next.set_result(record.name)
            if client_id in self._muted:
                raise SessionConflictError("A session for this runner already exists.")
        return self._connect(client_id=client_id, secret=secret, version=version)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentContext:
    """The demonstration that incidents act on."""

    demo: Demo
    store: RetireByHandStore
    fleet: Fleet
    #: Where the fleet keeps its Pods.
    runners: Path
    clock: Clock
    ids: Ids
    #: Whether runners have a memory limit of their own.
    limited: bool
    mute: SessionBlocker
    #: One organisation has all the trouble with GitHub, one kind at a time.
    trouble: asyncio.Lock = field(default_factory=asyncio.Lock)
    reserved: set[str] = field(default_factory=set)

    async def completed(self, job: Job) -> None:
        while job.status is not JobStatus.COMPLETED:  # noqa: ASYNC110 - the fake has no events for this
            await asyncio.sleep(_LOOK)

    async def executor(self, job: Job) -> str:
        """The Pod that executes the job."""
        while job.runner is None:
            if job.status is JobStatus.COMPLETED:
                raise IncidentOver
            await asyncio.sleep(_LOOK)
        return job.runner.name.rpartition("-")[0]

    async def gone(self, pod: str) -> None:
        while True:
            runner = await self.store.find_runner(pod)
            if runner is not None and runner.state is RunnerState.GONE:
                return
            await asyncio.sleep(_LOOK * 3)

    async def idle(self) -> RunnerSummary:
        """A runner that waits for work, has its directory, and was not harmed by an incident."""
        while True:
            for runner in await self.store.list_runners(pool="demo"):
                whole = self.directory(runner.pod).path.is_dir()
                if runner.state is RunnerState.IDLE and whole and runner.pod not in self.reserved:
                    return runner
            await asyncio.sleep(_LOOK)

    async def reserve(self) -> str:
        """Reserves an idle runner for one incident; returns its Pod."""
        pod = (await self.idle()).pod
        self.reserved.add(pod)
        return pod

    def directory(self, pod: str) -> PodDirectory:
        return PodDirectory.at(self.runners, pod)


#: Called once, as soon as the incident's job or Pod is known.
Tell = Callable[[Case], None]
#: Does the harm, and returns when the incident is over.
Harm = Callable[[IncidentContext, Tell], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    name: str
    source: str
    tells: str
    harm: Harm


INCIDENTS: Final[list[Incident]] = []


def _incident(name: str, source: str, tells: str) -> Callable[[Harm], Harm]:
    def add(harm: Harm) -> Harm:
        INCIDENTS.append(Incident(name=name, source=source, tells=tells, harm=harm))
        return harm

    return add


async def _dies(
    around: IncidentContext, tell: Tell, *, name: str, die: str, ending: Ending
) -> None:
    job = around.demo.queue_one(name, die=die)
    pod = await around.executor(job)
    tell(Case(name=name, job=job.id, pod=pod, endings=[ending], afterwards=ending))
    # GitHub notices when the lease expires.
    await around.completed(job)
    await around.gone(pod)


@_incident("killed", "S3", "a runner is killed in the middle of its job, without a word")
async def _killed(around: IncidentContext, tell: Tell) -> None:
    await _dies(around, tell, name="killed", die="sigkill", ending=Ending.GUEST_OOM_OR_KILL)


@_incident("out-of-memory", "S3", "a job takes all the memory its runner has, and more")
async def _out_of_memory(around: IncidentContext, tell: Tell) -> None:
    # Where runners have no memory limit, the evidence is the same as of any other kill (I58).
    ending = Ending.HOST_OOM if around.limited else Ending.GUEST_OOM_OR_KILL
    await _dies(around, tell, name="out-of-memory", die="oom", ending=ending)


@_incident(
    "deleted-from-outside", "S1", "an operator deletes a Pod by hand while it executes a job"
)
async def _deleted(around: IncidentContext, tell: Tell) -> None:
    job = around.demo.queue_one("deleted-from-outside", seconds=30)
    pod = await around.executor(job)
    tell(
        Case(
            name="deleted-from-outside",
            job=job.id,
            pod=pod,
            endings=[Ending.TERMINATED],
            afterwards="a client other than paddock asked for its Pod's deletion",
        )
    )
    await asyncio.to_thread(around.directory(pod).request_deletion, around.clock.now())
    await around.completed(job)
    await around.gone(pod)


@_incident("mint-fails", "I17", "GitHub answers the next two mints of one organisation with a 500")
async def _mint_fails(around: IncidentContext, tell: Tell) -> None:
    async with around.trouble:
        _, repository = around.demo.troubled
        owner = repository.owner.login
        around.demo.fake.inject(FaultKind.SERVER_ERROR, owner=owner, path=_MINT, times=2)
        job = around.demo.queue_one("mint-fails", repository=repository)
        tell(Case(name="mint-fails", job=job.id, afterwards="A mint for its kind failed"))
        await around.completed(job)


@_incident("webhook-lost", "I8", "a job is queued, and its webhook is lost on the way")
async def _webhook_lost(around: IncidentContext, tell: Tell) -> None:
    fake = around.demo.fake
    before = fake.world.faults
    fake.set_faults(msgspec.structs.replace(before, hook_failed=1.0))
    try:
        # When no runner is about to come online that GitHub could assign it to.
        job = around.demo.queue_one("webhook-lost", repository=around.demo.lazy)
    finally:
        fake.set_faults(before)
    tell(Case(name="webhook-lost", job=job.id, afterwards="its webhook was late or lost"))
    await around.completed(job)


@_incident("stray", "S1", "an operator makes a Pod that no row knows")
async def _stray(around: IncidentContext, tell: Tell) -> None:
    pod = PodName(f"demo-{around.ids.suffix(10)}")
    order = PodOrder(runner=RunnerId(around.ids.uuid()), name=pod, pool="demo", spec="{}")
    await around.fleet.create(order)
    tell(Case(name="stray", pod=pod, rules=["pod-without-row", "pod-ended"]))
    await around.gone(pod)


@_incident("never-registers", "S2", "a runner gets its JIT and never comes online; its job waits")
async def _never_registers(around: IncidentContext, tell: Tell) -> None:
    muted = asyncio.create_task(around.mute.next_runner())
    job = around.demo.queue_one("never-registers")
    pod = (await muted).rpartition("-")[0]
    tell(
        Case(
            name="never-registers",
            job=job.id,
            pod=pod,
            endings=[Ending.NEVER_REGISTERED],
            rules=["suspect", "never-registered"],
            afterwards="GitHub never saw it online",
        )
    )
    await around.completed(job)
    await around.gone(pod)


@_incident("vanished", "S3", "an idle Pod and all that is left of it disappears")
async def _vanished(around: IncidentContext, tell: Tell) -> None:
    pod = await around.reserve()
    tell(
        Case(
            name="vanished",
            pod=pod,
            endings=[Ending.HARD_DELETED],
            rules=["pod-gone"],
            afterwards="hard-deleted",
        )
    )
    await asyncio.to_thread(shutil.rmtree, around.directory(pod).path, ignore_errors=True)
    await around.gone(pod)


@_incident("claim-lost", "I41", "GitHub makes a runner, and its answer with the JIT is lost")
async def _claim_lost(around: IncidentContext, tell: Tell) -> None:
    async with around.trouble:
        _, repository = around.demo.troubled
        owner = repository.owner.login
        around.demo.fake.inject(FaultKind.REPLY_LOST, owner=owner, path=_MINT, times=1)
        job = around.demo.queue_one("claim-lost", repository=repository)
        tell(Case(name="claim-lost", job=job.id, afterwards="A mint for its kind failed"))
        await around.completed(job)


@_incident("suspended", "I17", "an organisation suspends the App for ten seconds")
async def _suspended(around: IncidentContext, tell: Tell) -> None:
    async with around.trouble:
        installation, repository = around.demo.troubled
        # In this order: GitHub sends nothing to an App that is suspended.
        job = around.demo.queue_one("suspended", repository=repository)
        around.demo.fake.accounts.suspend(installation)
        try:
            tell(Case(name="suspended", job=job.id, meanwhile="is suspended"))
            await asyncio.sleep(10.0)
        finally:
            around.demo.fake.accounts.unsuspend(installation)
        await around.completed(job)


@_incident("not-assigned", "I51", "a runner group does not let a repository use it")
async def _not_assigned(around: IncidentContext, tell: Tell) -> None:
    async with around.trouble:
        _, repository = around.demo.troubled
        fake = around.demo.fake
        [group] = fake.world.groups[repository.owner.id]
        fake.accounts.set_group_repositories(group, [])
        try:
            job = around.demo.queue_one("not-assigned", repository=repository)
            tell(
                Case(
                    name="not-assigned",
                    job=job.id,
                    rules=["unassigned"],
                    meanwhile="GitHub does not assign it",
                )
            )
            await asyncio.sleep(_NOT_ASSIGNED)
        finally:
            fake.accounts.set_group_repositories(group, [repository])
        await around.completed(job)
