"""Jobs on the real cluster: webhooks, pollers, JITs, real containers, verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kube_site import KubeSite

# Containers are started and ended many times over.
pytestmark = pytest.mark.timeout(900)

IDLE = "SELECT pod_name FROM runners WHERE state = 'idle'"
VERDICT = """
SELECT v.ending FROM verdicts v JOIN runners r ON r.id = v.runner_id WHERE r.pod_name = $1
"""


async def pods(site: KubeSite) -> dict[str, Any]:
    found = (await site.place.api.get(site.place.pods))["items"]
    return {each["metadata"]["name"]: each for each in found}


async def test_a_job_from_webhook_to_completion(site: KubeSite) -> None:
    """Described as an object, served by a real Pod, its end recorded, its place taken by another; the
    server is killed and the API server away while it runs."""
    await site.server()
    await site.pool()
    warm = await site.until(IDLE)
    job = site.queue(**site.gate.job())
    assert await site.busy(job) == warm
    await site.disturb()
    assert job.completed_at is None
    site.gate.open()
    assert await site.until(VERDICT, warm) == "completed"
    await site.until("SELECT conclusion = 'success' FROM jobs WHERE state = 'completed'")
    successor = await site.until(IDLE)
    assert successor != warm
    await site.place.api.until_gone(f"{site.place.pods}/{warm}")
    pool = await site.place.api.until(
        f"{site.place.pools}/linux", lambda found: found.get("status", {}).get("idle")
    )
    [condition] = pool["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Accepted", "True")
    # It was applied when it was described, and never again since.
    assert await site.rows("SELECT count(*) FROM events WHERE after = 'applied'") == [(1,)]


async def test_pools_that_are_deleted_wait_for_their_jobs(site: KubeSite) -> None:
    """I42: idle runners leave at once, the busy one finishes, then the object goes; however it is
    deleted, and though the server is killed and the API server away meanwhile."""
    cascades = ("Background", "Foreground")
    await site.server()
    for cascade in cascades:
        await site.pool(cascade.lower(), labels=["self-hosted", cascade.lower()], minIdle=2)
    await site.until("SELECT count(*) = 4 FROM runners WHERE state = 'idle'")
    jobs = {
        cascade: site.queue(labels=("self-hosted", cascade.lower()), **site.gate.job())
        for cascade in cascades
    }
    busy = {cascade: await site.busy(job) for cascade, job in jobs.items()}
    for cascade in cascades:
        pool = f"{site.place.pools}/{cascade.lower()}"
        await site.place.api.delete(pool, propagationPolicy=cascade)
    await site.disturb()
    await site.until(
        "SELECT count(*) = 2 FROM runners WHERE gone_at IS NULL AND state <> 'retiring'"
    )
    assert {job.completed_at for job in jobs.values()} == {None}
    for cascade in cascades:
        assert await site.place.api.exists(f"{site.place.pools}/{cascade.lower()}")
    assert set(busy.values()) <= set(await pods(site))
    site.gate.open()
    for cascade in cascades:
        assert await site.until(VERDICT, busy[cascade]) == "completed"
        await site.place.api.until_gone(f"{site.place.pools}/{cascade.lower()}")
    assert [job.conclusion for job in jobs.values()] == ["success"] * 2
    assert await site.rows("SELECT count(*) FROM runners WHERE gone_at IS NULL") == [(0,)]
