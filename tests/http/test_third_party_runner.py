"""`paddock up` with github-act-runner, a runner program that others wrote: how each of its ends looks
to paddock and to GitHub. `make runner` builds it.

GitHub is unavailable for seconds here (`PADDOCK_TEST_OUTAGE=120`: for two minutes); its leases are
shortened where a case waits for one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.fakes.github import FaultKind, Faults
from paddock.fakes.github.jobs import LOST_COMMUNICATION
from paddock.fakes.github.records import Job
from tests.support.processes import paddock
from tests.support.third_party import (
    OUTAGE,
    REPEATED,
    REPORTS_FOR,
    ThirdPartySite,
    processes_in,
    third_party_site,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
]

#: What a job needs to be lost within seconds.
SHORT_LEASE = 8.0
#: The pool's memory is 256 MiB.
MUCH_MEMORY = "python3 -c \"x = b'x' * (1 << 30); print(len(x))\""


@pytest.fixture
async def site() -> AsyncIterator[ThirdPartySite]:
    async with third_party_site() as site:
        yield site


@dataclass(frozen=True)
class Cause:
    """What happens to a runner, and what paddock and GitHub must say of it."""

    name: str
    endings: set[str]
    conclusion: str
    script: str | None = None
    act: Callable[[ThirdPartySite, str, Job], None] = lambda site, pod, job: None
    #: Its job ends by itself afterwards.
    finishes: bool = False
    says: str | None = None


def told_to_go(site: ThirdPartySite, pod: str, job: Job) -> None:
    """As a drain does: the Pod is deleted, its runner gets SIGTERM."""
    (site.data_dir / "runners" / pod / "deleting").write_text("2026-01-01T00:00:00Z")


def killed(site: ThirdPartySite, pod: str, job: Job) -> None:
    os.kill(site.runner_of(pod), signal.SIGKILL)


def cancelled(site: ThirdPartySite, pod: str, job: Job) -> None:
    site.fake.jobs.cancel(job)


def deleted_by_mistake(site: ThirdPartySite, pod: str, job: Job) -> None:
    assert job.runner is not None
    site.fake.runners.delete(job.runner)


CAUSES = (
    Cause("success", {"completed"}, "success", script="echo hello"),
    Cause("failure", {"completed"}, "failure", script="exit 3"),
    Cause("cancelled", {"completed"}, "cancelled", act=cancelled),
    Cause("deleted record", {"completed"}, "success", act=deleted_by_mistake, finishes=True),
    Cause("SIGTERM", {"terminated"}, "cancelled", act=told_to_go, says="Running Job"),
    Cause("SIGKILL", {"guest-oom-or-kill"}, "failure", act=killed, says="Running Job"),
    # Without a cgroup of its own the kernel's kill cannot be told from another.
    Cause("out of memory", {"host-oom", "completed", "guest-oom-or-kill"}, "failure", MUCH_MEMORY),
)


async def test_each_end_has_its_verdict_its_log_and_githubs_view(site: ThirdPartySite) -> None:
    await site.pool(idle=len(CAUSES))
    site.timing(lost_lingers=(0.0, 0.0), lease=SHORT_LEASE)
    jobs = {
        cause.name: site.queue(
            cause.script or site.gate("gate" if cause.finishes else "never"), name=cause.name
        )[0]
        for cause in CAUSES
    }
    pods = {name: await site.begins(job) for name, job in jobs.items()}
    # The lease of the others is not renewed within these seconds.
    site.timing(lease=600.0)
    for job in jobs.values():
        if job.spec.name != "SIGKILL":
            site.fake.jobs.renew(job)
    for cause in CAUSES:
        await site.until(
            "SELECT state <> 'running' FROM runners WHERE pod_name = $1", pods[cause.name]
        )
        cause.act(site, pods[cause.name], jobs[cause.name])
    site.open()
    limited = "with their pool's memory as limit" in site.log()
    wrong = {}
    for cause in CAUSES:
        verdict = await site.verdict(pods[cause.name])
        conclusion = await site.completes(jobs[cause.name])
        expected = {"host-oom"} if cause.name == "out of memory" and limited else cause.endings
        if (
            verdict["ending"] not in expected
            or conclusion != cause.conclusion
            or bool(verdict["log"]) is (verdict["ending"] == "completed")
            or (cause.says or "") not in verdict["log"]
        ):
            wrong[cause.name] = (verdict, conclusion)
    assert not wrong
    assert jobs["SIGKILL"].annotation == LOST_COMMUNICATION
    assert "hello" in site.fake.uploads.of(jobs["success"].id).text()
    assert {step["conclusion"] for step in jobs["success"].steps} == {"success"}
    await site.settled()


async def test_a_matrix_of_forty(site: ThirdPartySite) -> None:
    await site.pool(idle=4, most=12)
    jobs = site.queue("echo $GITHUB_REPOSITORY", jobs=40)
    assert [await site.completes(job) for job in jobs] == ["success"] * 40
    # A runner has one job.
    assert len({job.runner.id for job in jobs if job.runner}) == 40
    await site.until("SELECT count(*) = 40 FROM verdicts WHERE ending = 'completed'")
    await site.settled()


REFUSED_ONCE = (
    *REPEATED,
    (FaultKind.NOT_FOUND, "runner.acknowledge"),
    (FaultKind.REPLY_LOST, "runner.complete"),
)


async def test_a_call_that_is_refused_once(site: ThirdPartySite) -> None:
    """The runner repeats it, or ends and its job runs on another."""
    ends = {}
    for fault, route in REFUSED_ONCE:
        site.inject(fault, route)
        [job] = site.queue("echo hello")
        ends[fault, route] = await site.completes(job)
    assert set(ends.values()) == {"success"}, ends
    await site.settled()


async def test_a_job_whose_runner_never_got_the_answer_is_lost(site: ThirdPartySite) -> None:
    """GitHub believes that it runs. paddock ends nothing, and its runner gives up by itself."""
    site.timing(lease=SHORT_LEASE, lost_lingers=(0.0, 0.0))
    site.inject(FaultKind.REPLY_LOST, "runner.acquire")
    [job] = site.queue("echo hello")
    assert await site.completes(job) == "failure"
    assert job.annotation == LOST_COMMUNICATION


@pytest.mark.parametrize(
    "phase", ["runner.session", "runner.message", "runner.acquire", "runner.complete", "busy"]
)
async def test_github_is_unavailable_for_a_while(site: ThirdPartySite, phase: str) -> None:
    """To runners and to paddock; it begins when the runner is in this phase. A result that the runner
    gives up to report is lost."""
    lost = phase == "runner.complete" and OUTAGE > REPORTS_FOR
    if lost:
        site.timing(lease=OUTAGE + 30.0, lost_lingers=(0.0, 0.0))
    if phase != "busy":
        site.inject(FaultKind.UNAVAILABLE, phase, times=None, seconds=OUTAGE)
    [job] = site.queue(site.gate() if phase == "busy" else "echo hello")
    if phase == "busy":
        # Before its step runs, a refused feed makes it panic.
        await site.happens(lambda: bool(site.fake.uploads.of(job.id).feed), "its step runs")
        site.inject(FaultKind.UNAVAILABLE, "runner", times=None, seconds=OUTAGE)
    else:
        await site.until("SELECT count(*) > 0 FROM runners WHERE acknowledged_at IS NOT NULL")
    site.inject(FaultKind.UNAVAILABLE, None, times=None, seconds=OUTAGE)
    await asyncio.sleep(OUTAGE if phase == "busy" else 0)
    site.open()
    assert await site.completes(job) == ("failure" if lost else "success")
    assert (job.annotation == LOST_COMMUNICATION) is lost
    assert job.runner is not None
    assert (await site.verdict(job.runner.name.rpartition("-")[0]))["ending"] == "completed"
    if not lost:  # GitHub called it busy: paddock looks for its record again five minutes later
        await site.settled()


@pytest.mark.parametrize("phase", ["claimed", "online", "busy", "ended"])
async def test_the_server_is_killed(site: ThirdPartySite, phase: str) -> None:
    """The runner that it started goes on, and the next server records its end."""
    match phase:
        case "claimed":
            site.fake.set_faults(Faults(latency=(3.0, 3.0)))
        case "online":
            site.fake.set_faults(Faults(assign_delay=(15.0, 15.0)))
        case _:
            pass
    [job] = site.queue(site.gate())
    match phase:
        case "claimed":
            await site.until("SELECT count(*) > 0 FROM runners WHERE state = 'claimed'")
        case "online":
            await site.happens(
                lambda: any(map(site.fake.world.online, site.fake.world.runners.values())),
                "a runner is online",
            )
        case _:
            await site.begins(job)
    await site.kill()
    site.fake.set_faults(Faults())
    if phase == "ended":
        site.open()
        assert await site.completes(job) == "success"
    await site.start()
    pod = await site.begins(job)
    site.open()
    assert await site.completes(job) == "success"
    assert (await site.verdict(pod))["ending"] == "completed"
    if phase in ("busy", "ended"):
        assert len(site.fake.truth.mints) == 1
    await site.settled()


async def test_an_idle_runner_whose_registration_is_deleted_is_replaced(
    site: ThirdPartySite,
) -> None:
    site.fake.set_faults(Faults(assign_delay=(10.0, 10.0)))
    [job] = site.queue("echo hello")
    world = site.fake.world
    await site.happens(lambda: any(map(world.online, world.runners.values())), "a runner is online")
    site.fake.set_faults(Faults())
    [record] = world.runners.values()
    site.fake.runners.delete(record)
    first = await site.verdict(record.name.rpartition("-")[0])
    assert (first["ending"], first["code"]) == ("crash", 1)
    assert "this runner has been removed" in first["log"]
    assert await site.completes(job) == "success"
    await site.settled()


#: As an image's own script starts it: no line in the log, and no name that paddock knows.
SILENT = """
  runnerCommand: [/bin/sh, -c, "exec ./github-act-runner run > /dev/null 2>&1"]
"""


@pytest.mark.parametrize("dialect", ["known", "unknown"])
async def test_a_busy_runner_that_github_forgot_outlives_its_retirement(
    site: ThirdPartySite, dialect: str
) -> None:
    """I65, I89: its record is deleted by mistake, no webhook tells of its job, and an operator sends it
    away."""
    await site.pool(idle=1, more=SILENT if dialect == "unknown" else "")
    [job] = site.queue(site.gate())
    await site.until("SELECT count(*) > 0 FROM jobs")
    site.fake.set_faults(Faults(hook_lost=1.0))
    pod = await site.begins(job)
    program = site.runner_of(pod) if dialect == "known" else None
    deleted_by_mistake(site, pod, job)
    retired = await paddock("runners", "retire", pod, "--data-dir", site.data_dir)
    assert retired.code == 0, retired.err
    if dialect == "known":
        await site.until("SELECT state = 'busy' FROM runners WHERE pod_name = $1", pod)
        assert site.runner_of(pod) == program
    else:
        await site.happens(lambda: site.log().count("retire.waits_for_log") > 2, "it waits")
        assert await site.rows("SELECT state FROM runners WHERE pod_name = $1", pod) == [
            ("retiring",)
        ]
        assert processes_in(site.data_dir / "runners" / pod / "work")
    assert job.completed_at is None
    site.open()
    assert await site.completes(job) == "success"
    assert (await site.verdict(pod))["ending"] in ("completed", "left")
