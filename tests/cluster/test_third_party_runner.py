"""Real Pods with github-act-runner, a runner program that others wrote. `make runner` builds it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from paddock.fakes.github.jobs import LOST_COMMUNICATION
from paddock.fakes.github.records import Job, Step
from tests.support.kube import template
from tests.support.kube_site import PATIENCE, KubeSite
from tests.support.third_party import third_party_runner
from tools.cluster.images import ACT_RUNNER

pytestmark = pytest.mark.timeout(900)

IDLE = "SELECT count(*) >= $1 FROM runners WHERE state = 'idle'"
#: Of a runner's container.
LIMIT = 96 << 20
#: Reads until its memory is used up.
TAKE_ALL = "tail /dev/zero"


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
    await site.server()
    await site.pool(**pool(minIdle=len(CAUSES)))
    await site.until(IDLE, len(CAUSES))
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
        await completed(job)
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
    await asyncio.gather(*(completed(job, within=3 * PATIENCE) for job in jobs))
    assert {job.conclusion for job in jobs} == {"success"}
    assert len({job.runner.id for job in jobs if job.runner}) == 40
    await site.until("SELECT count(*) = 40 FROM verdicts WHERE ending = 'completed'")


async def test_a_job_outlives_the_server_and_the_api_server(site: KubeSite) -> None:
    """Also if GitHub has forgotten its runner by mistake, and an operator sends the runner away."""
    await site.server()
    await site.pool(**pool())
    job = site.queue(**site.gate.job())
    pod = await site.busy(job)
    await deleted_by_mistake(site, pod, job)
    await site.disturb()
    assert job.completed_at is None
    site.gate.open()
    assert await site.until("SELECT ending::text FROM verdicts") == "completed"
    assert job.conclusion == "success"


async def completed(job: Job, *, within: float = PATIENCE) -> None:
    async with asyncio.timeout(within):
        while job.completed_at is None:  # noqa: ASYNC110 -- another's doing
            await asyncio.sleep(0.2)


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
