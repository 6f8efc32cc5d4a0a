"""Jobs on the real cluster during rollouts, drains, lost nodes, and with two servers. In each the
server is killed and the API server is away in the middle. GitHub's own record shows whether a job
survived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from signal import SIGKILL, SIGTERM

import pytest

from paddock.fakes.github.records import Job
from tests.support.background import meanwhile
from tests.support.kube import template
from tests.support.kube_site import PATIENCE, KubeSite
from tools.cluster.api import Json, Refused
from tools.cluster.images import RUNNER
from tools.cluster.node import ctr

pytestmark = pytest.mark.timeout(900)

NEW = f"{RUNNER.partition(':')[0]}:2"
IDLE_IN = "SELECT count(*) = $1 FROM runners WHERE state = 'idle'"


#: Pods without a controller need force, which a disruption budget does not yield to.
DRAINING = ("--force", "--delete-emptydir-data", "--timeout=300s")


async def succeeded(*jobs: Job) -> None:
    async with asyncio.timeout(PATIENCE):
        while any(job.completed_at is None for job in jobs):  # noqa: ASYNC110 -- another's doing
            await asyncio.sleep(0.2)
    assert {job.conclusion for job in jobs} == {"success"}


@dataclass
class Seen:
    """Records the Pods several times a second."""

    #: UIDs by the runner they say they are for.
    uids: dict[str, set[str]] = field(default_factory=dict)
    #: The most that lived at a time. An ended Pod is released before it is deleted, so it does not
    #: count.
    most: int = 0


@asynccontextmanager
async def looking(site: KubeSite) -> AsyncIterator[Seen]:
    seen = Seen()

    async def look() -> None:
        while True:
            pods = (await site.place.api.get(site.place.pods))["items"]
            for pod in pods:
                runner = pod["metadata"]["annotations"]["paddock.dev/runner"]
                seen.uids.setdefault(runner, set()).add(pod["metadata"]["uid"])
            seen.most = max(seen.most, sum(map(lives, pods)))
            await asyncio.sleep(0.2)

    async with meanwhile(look()):
        yield seen


def lives(pod: Json) -> bool:
    ended = pod["status"]["phase"] in ("Succeeded", "Failed")
    return not ended and "deletionTimestamp" not in pod["metadata"]


async def test_a_rollout_kills_no_job(site: KubeSite) -> None:
    """Nor does it hold up the rollout."""
    ctr(site.place.cluster.layout, "images", "tag", "--force", RUNNER, NEW)
    await site.server()
    await site.pool(minIdle=2)
    await site.until(IDLE_IN, 2)
    job = site.queue(**site.gate.job())
    old = await site.busy(job)
    await site.pool(minIdle=2, template=template(image=NEW))
    await site.until("SELECT true FROM runners WHERE state = 'retiring'")
    await site.disturb()
    await site.until(
        "SELECT count(*) = 2 FROM runners r JOIN pools p ON p.id = r.pool_id"
        " WHERE r.state = 'idle' AND r.spec_hash = p.spec_hash"
    )
    assert job.completed_at is None
    site.gate.open()
    await succeeded(job)
    assert (await site.verdict(old))["ending"] == "completed"
    await site.place.api.until(site.place.pods, lambda found: images(found["items"]) == {NEW})


def images(pods: Sequence[Json]) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in pods}


async def test_a_drain_waits_for_the_job(site: KubeSite, node: str) -> None:
    """I43: the idle runner leaves by itself; the job ends while the server and the API server are
    away."""
    cluster = site.place.cluster
    await site.server()
    await site.pool(minIdle=1)
    job = site.queue(**site.gate.job())
    busy = await site.busy(job)
    idle = await site.until("SELECT pod_name FROM runners WHERE state = 'idle'")
    await cluster.kubectl("cordon", node)
    try:
        await site.place.api.until_gone(f"{site.place.pods}/{idle}")
        assert (await site.verdict(idle))["ending"] == "left"
        drain = asyncio.create_task(cluster.kubectl("drain", node, *DRAINING))
        # The eviction is refused, to the drain and to this request alike.
        await refused_an_eviction(site, busy)
        assert job.completed_at is None
        await site.disturb(meanwhile=site.gate.open)
        await succeeded(job)
        assert (await site.verdict(busy))["ending"] == "completed"
        # No operator had to act. A drain of the same node is done at once.
        await site.place.api.until_gone(f"{site.place.pods}/{busy}")
        await cluster.kubectl("drain", node, *DRAINING)
        await asyncio.gather(drain, return_exceptions=True)
    finally:
        await cluster.kubectl("uncordon", node)
    await site.until(IDLE_IN, 1)


async def refused_an_eviction(site: KubeSite, pod: str) -> None:
    """Requests the eviction as the drain does, and expects its refusal."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": site.place.namespace},
    }
    with pytest.raises(Refused, match="disruption budget"):
        await site.place.api.create(f"{site.place.pods}/{pod}/eviction", eviction)


@pytest.mark.slow
async def test_what_ran_on_a_node_that_is_lost_is_told_so(site: KubeSite, node: str) -> None:
    cluster = site.place.cluster
    await site.server()
    await site.pool(minIdle=1)
    pod = await site.busy(site.queue(**site.gate.job()))
    await cluster.stop("kubelet", SIGKILL)
    await site.place.api.delete(f"/api/v1/nodes/{node}")
    await site.disturb()
    verdict = await site.verdict(pod)
    assert verdict["ending"] == "node-lost"
    assert "is no more" in str(verdict["evidence"]["circumstances"])


@pytest.mark.slow
async def test_two_servers_make_no_pod_twice_though_leadership_is_handed_over(
    site: KubeSite,
) -> None:
    """One leader exits cleanly, its successor is killed. In between both serve, and the API server is
    away for a while."""
    first = await site.server("first")
    await site.pool(minIdle=2, maxRunners=4)
    async with looking(site) as seen:
        second = await site.server("second")
        jobs = [site.queue(**site.gate.job()) for _ in range(4)]
        await site.until("SELECT true FROM runners WHERE state = 'busy'")
        first.send_signal(SIGTERM)
        await first.wait()
        await site.server("third")
        jobs += [site.queue() for _ in range(4)]
        await site.outage()
        site.gate.open()
        await succeeded(*jobs[:4])
        await site.kill(second)
        await succeeded(*jobs)
        await site.until(IDLE_IN, 2)
    assert [uids for uids in seen.uids.values() if len(uids) > 1] == []
    assert seen.most <= 4
    rows = await site.rows("SELECT count(*) FROM runners")
    assert rows == [(len(seen.uids),)]
