"""Real Pods with github-act-runner, a runner program that others wrote. `make runner` builds it.

Runners in several situations live side by side: the start of their Pods takes most of the time. GitHub
is unavailable for seconds here (`PADDOCK_TEST_OUTAGE=120`: for two minutes).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from paddock.fakes.github import FaultKind, Faults
from paddock.fakes.github.faults import Injected
from paddock.fakes.github.jobs import LOST_COMMUNICATION
from paddock.fakes.github.records import Job, Step
from paddock.fakes.github.truth import Ending
from tests.support.kube import template
from tests.support.kube_site import PATIENCE, KubeSite
from tests.support.processes import paddock
from tests.support.third_party import OUTAGE, REPEATED, REPORTS_FOR, third_party_runner
from tools.cluster.images import ACT_RUNNER

pytestmark = pytest.mark.timeout(900)

IDLE = "SELECT count(*) >= $1 FROM runners WHERE state = 'idle'"
#: Of a runner's container.
LIMIT = 96 << 20
#: Reads until its memory is used up.
TAKE_ALL = "tail /dev/zero"
HELLO: dict[str, Any] = {"steps": (Step("work", "echo hello"),)}
#: As an image's own script starts it: no line in the log, and no name that paddock knows.
SILENT = ["/bin/sh", "-c", "exec ./github-act-runner run > /dev/null 2>&1"]
#: A fault of so many calls lasts until the test ends it.
UNTIL_ENDED = 1 << 30


@pytest.fixture(autouse=True)
def built() -> None:
    third_party_runner()


async def nothing(_site: KubeSite, _pod: str, _job: Job) -> None:
    pass


async def cancelled(site: KubeSite, _pod: str, job: Job) -> None:
    site.fake.jobs.cancel(job)


async def drained(site: KubeSite, pod: str, _job: Job) -> None:
    await site.place.api.delete(f"{site.place.pods}/{pod}")


async def deleted_by_mistake(site: KubeSite, _pod: str, job: Job) -> None:
    assert job.runner is not None
    site.fake.runners.delete(job.runner)


@dataclass(frozen=True)
class Cause:
    name: str
    ending: str
    conclusion: str
    #: What its job does; `None`: it waits until the test ends it.
    script: str | None = None
    act: Callable[[KubeSite, str, Job], Awaitable[None]] = nothing
    #: Its job ends by itself afterwards.
    finishes: bool = False


CAUSES = (
    Cause("success", "completed", "success", "echo hello"),
    Cause("failure", "completed", "failure", "exit 3"),
    Cause("cancelled", "completed", "cancelled", act=cancelled),
    Cause("deleted record", "completed", "success", act=deleted_by_mistake, finishes=True),
    Cause("SIGTERM", "terminated", "cancelled", act=drained),
    # Steps are children of the runner.
    Cause("SIGKILL", "guest-oom-or-kill", "failure", "kill -9 $PPID; sleep 600"),
    # The runner outlives its step and exits with 0.
    Cause("out of memory", "host-oom", "failure", TAKE_ALL),
)


def pool(**more: Any) -> dict[str, Any]:
    container = template(image=ACT_RUNNER, resources={"limits": {"memory": str(LIMIT)}})
    # It repeats a report of the job's end that fails, ten seconds later.
    container["spec"]["terminationGracePeriodSeconds"] = 60
    return {"template": container, "provisioning": {"maxStarting": 10}, **more}


async def test_each_end_has_its_verdict_its_log_and_githubs_view(site: KubeSite) -> None:
    world = site.fake.world
    await ready(site, pods=len(CAUSES))
    world.timing = replace(world.timing, lease=90.0, lost_lingers=(0.0, 0.0))
    jobs = {}
    for cause in CAUSES:
        script = cause.script or site.gate.wait("gate" if cause.finishes else "never")
        jobs[cause.name] = site.queue(name=cause.name, steps=(Step("work", script),))
    pods = {name: await site.pod_of(job) for name, job in jobs.items()}
    for cause in CAUSES:
        if cause.act is not nothing:
            await site.busy(jobs[cause.name])
            await cause.act(site, pods[cause.name], jobs[cause.name])
    site.gate.open("gate")
    wrong = {}
    for cause in CAUSES:
        verdict, job = await site.verdict(pods[cause.name]), jobs[cause.name]
        await completed(site, job)
        said = "Running Job" in (verdict["log_tail"] or "")
        seen = (verdict["ending"], job.conclusion, said)
        if seen != (cause.ending, cause.conclusion, cause.ending != "completed"):
            wrong[cause.name] = (seen, verdict["why"], verdict["log_tail"])
    assert not wrong, wrong
    assert jobs["SIGKILL"].annotation == LOST_COMMUNICATION
    assert "hello" in site.fake.uploads.of(jobs["success"].id).text()
    # GitHub called the killed runner busy when its record was to be removed. It has given it up since;
    # paddock looks again five minutes later.
    await nothing_is_left(site, pods.values(), but=pods["SIGKILL"])


async def test_a_matrix_of_forty(site: KubeSite) -> None:
    await site.server()
    await site.pool(**pool(minIdle=4, maxRunners=12))
    jobs = [site.queue(steps=(Step("work", "echo hello"),)) for _ in range(40)]
    await asyncio.gather(*(completed(site, job, patience=3 * PATIENCE) for job in jobs))
    assert {job.conclusion for job in jobs} == {"success"}
    assert len({job.runner.id for job in jobs if job.runner}) == 40
    await site.until("SELECT count(*) = 40 FROM verdicts WHERE ending = 'completed'")


async def test_refused_calls_and_a_deleted_registration_cost_no_job(site: KubeSite) -> None:
    """The runner repeats its call, or ends and another one runs its job."""
    world = site.fake.world
    await ready(site, pods=1 + len(REPEATED))
    site.fake.set_faults(Faults(assign_delay=(10.0, 10.0)))
    jobs = [site.queue(**HELLO)]
    await site.happens(lambda: len(world.sessions) == 1, "a runner is online")
    site.fake.set_faults(Faults())
    [record] = world.runners.values()
    site.fake.runners.delete(record)
    verdict = await site.verdict(record.name.rpartition("-")[0])
    assert (verdict["ending"], verdict["exit_code"]) == ("crash", 1)
    assert "this runner has been removed" in verdict["log_tail"]
    for kind, route in REPEATED:
        jobs.append(await refused_once(site, kind, route))
    await all_succeed(site, jobs)
    await nothing_leaks(site)


async def refused_once(site: KubeSite, kind: FaultKind, route: str) -> Job:
    """The job whose runner met the fault, most probably."""
    began = len(site.fake.truth.executions)
    fault = site.fake.inject(kind, route=route)
    job = site.queue(**HELLO)
    await site.happens(lambda: fault.times == 0, f"{route} is refused")
    if route == "runner.acquire":
        # The next fault is for another runner, not for this one's next attempt.
        await site.happens(lambda: len(site.fake.truth.executions) > began, "it is repeated")
    return job


async def test_github_is_unavailable_to_runners_in_each_phase(site: KubeSite) -> None:
    """And to paddock. A result that the runner gives up to report is lost."""
    lost = {"complete"} if OUTAGE > REPORTS_FOR else set[str]()
    world = site.fake.world
    await ready(site, pods=5)
    if lost:  # the busy runner renews its lease each minute, when it can
        world.timing = replace(world.timing, lease=OUTAGE + 90.0, lost_lingers=(0.0, 0.0))
    jobs = {phase: site.queue(**begun(site, phase)) for phase in ("busy", "complete")}
    for job in jobs.values():
        await step_runs(site, job)
    # The later phases first: a runner that cannot open a session does not get as far.
    faults = []
    for phase, sessions in (("acquire", 3), ("message", 4), ("session", 4)):
        faults.append(unavailable(site, f"runner.{phase}"))
        jobs[phase] = site.queue(**HELLO)
        await stopped(site, faults[-1], sessions=sessions)
    # Not `runner`, all its calls: runners then took up to five minutes to end.
    faults += [unavailable(site, each) for each in ("runner.renew", "runner.complete", None)]
    site.gate.open("complete")
    await asyncio.sleep(OUTAGE)
    assert [phase for phase, job in jobs.items() if job.completed_at] == []
    for fault in faults:
        fault.times = 0
    site.gate.open("busy")
    await all_succeed(site, [job for phase, job in jobs.items() if phase not in lost])
    for phase in lost:
        await completed(site, jobs[phase], patience=PATIENCE + OUTAGE)
        assert (jobs[phase].conclusion, jobs[phase].annotation) == ("failure", LOST_COMMUNICATION)
    if not lost:  # GitHub called it busy: paddock looks for its record again five minutes later
        await nothing_leaks(site)


def unavailable(site: KubeSite, route: str | None = None, *, path: str | None = None) -> Injected:
    return site.fake.inject(FaultKind.UNAVAILABLE, route=route, path=path, times=UNTIL_ENDED)


async def stopped(site: KubeSite, fault: Injected, *, sessions: int) -> None:
    """A runner has met the fault, and so many have a session: a busy one polls too."""
    await site.happens(
        lambda: fault.times != UNTIL_ENDED and len(site.fake.world.sessions) == sessions,
        f"a runner meets {fault}",
    )


def begun(site: KubeSite, gate: str) -> dict[str, Any]:
    return {"steps": (Step("work", f"echo begun; {site.gate.wait(gate)}"),)}


async def step_runs(site: KubeSite, job: Job) -> None:
    """Before, a refused feed makes the runner panic."""
    await site.happens(lambda: bool(site.fake.uploads.of(job.id).feed), "its step runs")


async def test_the_server_is_killed_with_runners_in_each_phase(site: KubeSite) -> None:
    """They go on, and the next server records their ends."""
    world = site.fake.world
    server = await ready(site, pods=4)
    jobs = {phase: site.queue(**site.gate.job(phase)) for phase in ("busy", "ended")}
    began = {phase: await site.busy(job) for phase, job in jobs.items()}
    site.fake.set_faults(Faults(assign_delay=(15.0, 15.0)))
    jobs["online"] = site.queue(**HELLO)
    await site.happens(lambda: len(world.sessions) == 3, "a runner is online")
    site.fake.set_faults(Faults(latency=(3.0, 3.0)))
    jobs["claimed"] = site.queue(**HELLO)
    await site.until("SELECT count(*) > 0 FROM runners WHERE state = 'claimed'")
    await site.kill(server)
    assert jobs["online"].runner is None
    site.fake.set_faults(Faults())
    site.gate.open("ended")
    await completed(site, jobs["ended"])
    await site.server("another")
    assert jobs["busy"].completed_at is None
    site.gate.open("busy")
    await all_succeed(site, jobs.values())
    for phase, pod in began.items():
        assert await site.pod_of(jobs[phase]) == pod
    await nothing_leaks(site)


async def test_a_job_outlives_the_server_and_the_api_server(site: KubeSite) -> None:
    """I65, I89: also if GitHub has forgotten its runner by mistake, neither webhooks nor lists tell of
    the job, and an operator sends the runner away, whether or not paddock knows its program."""
    await site.server()
    await site.pool(**pool(maxRunners=1))
    await site.pool("silent", **pool(maxRunners=1, labels=["silent"], runnerCommand=SILENT))
    jobs = {
        "known": site.queue(**site.gate.job()),
        "unknown": site.queue(**site.gate.job(labels=("silent",))),
    }
    await site.until("SELECT count(*) = 2 FROM jobs")
    site.fake.set_faults(Faults(hook_lost=1.0))
    lists = unavailable(site, path="/actions/runs")
    pods = {program: await site.pod_of(job) for program, job in jobs.items()}
    for program, job in jobs.items():
        await deleted_by_mistake(site, pods[program], job)
        retired = await paddock(
            "runners", "retire", pods[program], PADDOCK_DATABASE_URL=site.database_url
        )
        assert retired.code == 0, retired.err
    state = "SELECT state = $2 FROM runners WHERE pod_name = $1"
    await site.until(state, pods["known"], "busy")
    await site.happens(lambda: site.log().count("retire.waits_for_log") > 2, "its log is read")
    await site.until(state, pods["unknown"], "retiring")
    await site.disturb()
    assert [job.completed_at for job in jobs.values()] == [None, None]
    site.fake.set_faults(Faults())
    lists.times = 0
    site.gate.open()
    await all_succeed(site, jobs.values(), endings={"completed", "left"})
    await nothing_leaks(site)


async def ready(site: KubeSite, *, pods: int) -> asyncio.subprocess.Process:
    """A server, and so many Pods that wait for work. There are never more."""
    server = await site.server()
    await site.pool(**pool(minIdle=pods, maxRunners=pods))
    await site.until(IDLE, pods)
    return server


async def completed(site: KubeSite, job: Job, *, patience: float = PATIENCE) -> None:
    await site.happens(
        lambda: job.completed_at is not None, f"{job.spec.name} completes", patience=patience
    )


async def all_succeed(
    site: KubeSite, jobs: Iterable[Job], *, endings: Iterable[str] = ("completed",)
) -> None:
    """Each began on one runner only, which ended by itself, so that its log is not kept."""
    for job in jobs:
        await completed(site, job, patience=PATIENCE + OUTAGE)
        assert job.conclusion == "success"
        assert [each.how for each in site.fake.truth.executions_of(job.id)] == [Ending.COMPLETED]
        verdict = await site.verdict(await site.pod_of(job))
        assert verdict["ending"] in endings, verdict["why"]
        assert not verdict["log_tail"]


async def nothing_leaks(site: KubeSite) -> None:
    """When no pool wants Pods any more: no Pod, no record at GitHub, no row that is not gone, no
    debt."""
    for each in (await site.place.api.get(site.place.pools))["items"]:
        path = f"{site.place.pools}/{each['metadata']['name']}"
        await site.place.api.patch(path, {"spec": {"minIdle": 0, "maxRunners": 0}})
    await site.until("SELECT NOT EXISTS (SELECT FROM runners WHERE state <> 'gone')")
    await site.until("SELECT NOT EXISTS (SELECT FROM mints WHERE state <> 'settled')")
    await site.place.api.until(site.place.pods, lambda found: not found["items"])
    assert list(site.fake.world.runners.values()) == []


async def nothing_is_left(site: KubeSite, pods: Iterable[str], *, but: str) -> None:
    """Of these Pods: no record at GitHub, no Pod, and no debt but that of one."""
    for pod in pods:
        await site.place.api.until_gone(f"{site.place.pods}/{pod}")
    left = [runner.name for runner in site.fake.world.runners.values()]
    assert left == []
    await site.until(
        "SELECT NOT EXISTS (SELECT FROM mints m JOIN runners r ON r.id = m.runner_id"
        " WHERE r.state = 'gone' AND m.state <> 'settled' AND r.pod_name <> $1)",
        but,
    )
