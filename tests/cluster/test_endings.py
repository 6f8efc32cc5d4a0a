"""How runners end: real containers, real causes, and a server that does not know the cause."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from paddock.fakes.github.records import Step
from paddock.fleet.kube.objects import VERDICT_FINALIZER
from paddock.forensics.post_mortem import LOG_CAPTURED
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds
from tests.support.background import meanwhile
from tests.support.gate import Gate
from tests.support.kube import runner_template
from tests.support.kube_site import PATIENCE, KubeSite
from tests.support.runner_rows import read_samples

# Ten Pods start, live and end, each of four containers.
pytestmark = pytest.mark.timeout(900)

#: The runner's memory; what its job takes of it before it takes all.
LIMIT, TAKEN = 160 << 20, 90 << 20
#: What a Pod may write to the volume `scratch` before its kubelet throws it out.
SCRATCH = 8 << 20
#: Longer than a request for a log may take.
NODE_AWAY = 8.0


async def delete(site: KubeSite, pod: str) -> None:
    await site.place.api.delete(f"{site.place.pods}/{pod}")


async def strip_and_delete(site: KubeSite, pod: str) -> None:
    path = f"{site.place.pods}/{pod}"
    await site.place.api.patch(path, {"metadata": {"finalizers": None}})
    await site.place.api.delete(path, gracePeriodSeconds=0)


@dataclass(frozen=True)
class Cause:
    """What happens to a runner, and what paddock must find out."""

    name: str
    ending: str
    #: What its job does.
    script: Callable[[Gate], str]
    #: The verdict's fields, as far as they are certain.
    exact: dict[str, Any] = field(default_factory=dict)
    #: How the fake runner ends when its job is done.
    die: str | None = None
    #: Whether the verdict keeps the log; `None`: if the log could still be read.
    words: bool | None = True
    #: What the cluster had to say.
    told: str = ""


def ended(code: int, reason: str) -> dict[str, Any]:
    return {"exit_code": code, "reason": reason}


def later(gate: Gate) -> str:
    """Ends later, while no server runs."""
    return gate.wait("later")


def stay(gate: Gate) -> str:
    return gate.wait("never")


def fill(gate: Gate) -> str:
    count = 4 * SCRATCH >> 20
    return f"dd if=/dev/zero of=/scratch/much bs=1M count={count}; {stay(gate)}"


def take(gate: Gate) -> str:
    wait = f"import urllib.request as u; x = b'x' * {TAKEN}; u.urlopen('{gate.url}/later').read()"
    return f'python3 -c "{wait}"'


OOM = Cause("out of memory", "host-oom", take, ended(137, "OOMKilled"), die="oom")
#: A kubelet removes these and their logs when they have stopped: the server must read them before.
DELETED = Cause("deleted while busy", "terminated", stay)
EVICTED = Cause("evicted", "evicted", fill, told="scratch")
#: The server did not see this one, unless it ended slowly.
UNSEEN = Cause("deleted while no watch ran", "terminated", stay, words=None)
STRIPPED = Cause("hard delete", "hard-deleted", stay, words=False)
LATER = (
    Cause("clean exit", "completed", later, ended(0, "Completed"), die="exit=0", words=False),
    OOM,
    Cause("SIGKILL inside", "guest-oom-or-kill", later, ended(137, "Error"), die="sigkill"),
    Cause("a crash", "crash", later, ended(139, "Error"), die="exit=139"),
)
CAUSES = (
    # A runner that is asked to return its job's result exits with 100 or more.
    Cause("a job's end", "completed", lambda _: "true", ended(100, "Error"), words=False),
    Cause("failing tests", "completed", lambda _: "exit 1", ended(102, "Error"), words=False),
    *LATER,
    DELETED,
    EVICTED,
    UNSEEN,
    STRIPPED,
)


async def test_every_end_is_told_apart_and_recorded_before_its_pod_is_gone(site: KubeSite) -> None:
    """I30, I58: also of those that end while no server is there to see it, and no API server."""
    seed = secrets.randbits(32)
    causes = Random(seed).sample(CAUSES, len(CAUSES))
    await site.server()
    await site.pool(minIdle=len(causes), template=template(), provisioning={"maxStarting": 10})
    await site.until(f"SELECT count(*) >= {len(causes)} FROM runners WHERE state = 'idle'")
    async with gone_unrecorded(site) as unrecorded:
        jobs = {
            cause.name: site.queue(steps=(Step("work", cause.script(site.gate)),), die=cause.die)
            for cause in causes
        }
        for cause in (DELETED, UNSEEN, STRIPPED):
            await site.busy(jobs[cause.name])
        pods = {name: await site.pod_of(job) for name, job in jobs.items()}
        await delete(site, pods[DELETED.name])
        for cause in (DELETED, EVICTED):
            await site.verdict(pods[cause.name])
        # Its log will tell nothing of it.
        await seen_to_take(site, pods[OOM.name], TAKEN)
        await site.end()
        await delete(site, pods[UNSEEN.name])
        await strip_and_delete(site, pods[STRIPPED.name])
        site.gate.open("later")
        for cause in LATER:
            await site.place.api.until(f"{site.place.pods}/{pods[cause.name]}", has_ended)
        await site.disturb()
        verdicts = {name: await site.verdict(pod) for name, pod in pods.items()}
    wrong = {
        cause.name: found for cause in causes if (found := mistakes(cause, verdicts[cause.name]))
    }
    assert not wrong, f"drawn with {seed}"
    assert unrecorded <= {pods[STRIPPED.name]}, f"drawn with {seed}"


async def test_a_log_is_read_when_its_node_answers_again(site: KubeSite) -> None:
    """I79, I80: a runner crashes while no server runs, and its node is away when a server is back. Its
    capacity is free at once; its Pod is kept until its log was read."""
    await site.server()
    await site.pool(template=template())
    job = site.queue(steps=(Step("work", later(site.gate)),), die="exit=139")
    pod = await site.busy(job)
    await site.end()
    site.gate.open("later")
    await site.place.api.until(f"{site.place.pods}/{pod}", has_ended)
    await site.place.cluster.stop("kubelet")
    await site.server("another")
    await site.until("SELECT gone_at IS NOT NULL FROM runners WHERE pod_name = $1", pod)
    await asyncio.sleep(NODE_AWAY)
    assert await site.rows("SELECT count(*) FROM verdicts WHERE log_tail IS NULL") == [(1,)]
    kept = await site.place.api.get(f"{site.place.pods}/{pod}")
    assert VERDICT_FINALIZER in kept["metadata"]["finalizers"]
    await site.place.cluster.start("kubelet")
    verdict = await site.verdict(pod)
    assert (verdict["ending"], verdict["exit_code"]) == ("crash", 139)
    assert "Running job" in verdict["log_tail"]
    assert len([line for line in site.log("another").splitlines() if LOG_CAPTURED in line]) == 1
    await site.place.api.until_gone(f"{site.place.pods}/{pod}")


def has_ended(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def template() -> dict[str, Any]:
    scratch = {"name": "scratch", "emptyDir": {"sizeLimit": str(SCRATCH)}}
    return runner_template(
        resources={"limits": {"memory": str(LIMIT)}},
        volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
        spec={"volumes": [scratch]},
    )


def mistakes(cause: Cause, verdict: dict[str, Any]) -> list[str]:
    found = []
    expected = {"ending": cause.ending, "abnormal": cause.ending != "completed", **cause.exact}
    if wrong := {name: verdict[name] for name in expected if verdict[name] != expected[name]}:
        found.append(f"{wrong}: {verdict['why']}")
    words = verdict["log_tail"]
    if cause.words is not None and bool(words) is not cause.words:
        found.append(f"last words: {words!r}")
    if words and "Running job" not in words:
        found.append(f"not its own words: {words!r}")
    if cause.told not in json.dumps(verdict["evidence"]):
        found.append(f"not told: {verdict['evidence']}")
    return found


@asynccontextmanager
async def gone_unrecorded(site: KubeSite) -> AsyncIterator[set[str]]:
    """Pods that were deleted before their end was recorded."""
    found: set[str] = set()

    async def look() -> None:
        before: set[str] = set()
        while True:
            listed = (await site.place.api.get(site.place.pods))["items"]
            there = {pod["metadata"]["name"] for pod in listed}
            recorded = await site.rows("SELECT pod_name FROM runners WHERE gone_at IS NOT NULL")
            found.update(before - there - {name for (name,) in recorded})
            before = there
            await asyncio.sleep(0.1)

    async with meanwhile(look()):
        yield found


async def seen_to_take(site: KubeSite, pod: str, most: int) -> None:
    """Waits until its vitals show this use."""
    store = PgStore(site.database, clock=SystemClock(), ids=SystemIds(), actor="test")
    runner = await store.find_runner(pod)
    assert runner is not None
    async with asyncio.timeout(PATIENCE):
        while True:
            if any(
                (each.memory_used or 0) >= most for each in await read_samples(store, runner.id)
            ):
                return
            await asyncio.sleep(0.2)
