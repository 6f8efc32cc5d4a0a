"""Jobs on the real cluster: webhooks, pollers, JITs, real containers, verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.sim.github.records import Step
from tests.support.kube_site import KubeSite

# Containers are started and ended many times over.
pytestmark = pytest.mark.timeout(300)

IDLE = "SELECT pod_name FROM runners WHERE state = 'idle'"
BUSY = "SELECT pod_name FROM runners WHERE state = 'busy'"
VERDICT = """
SELECT v.ending FROM verdicts v JOIN runners r ON r.id = v.runner_id WHERE r.pod_name = $1
"""


async def pods(site: KubeSite) -> dict[str, Any]:
    found = (await site.place.api.get(site.place.pods))["items"]
    return {each["metadata"]["name"]: each for each in found}


async def test_a_job_from_webhook_to_completion(site: KubeSite) -> None:
    """Described as an object, served by a real Pod, its end recorded, its place taken by another."""
    await site.server()
    await site.pool()
    warm = await site.until(IDLE)
    site.queue()
    assert await site.until(VERDICT, warm) == "completed"
    [(state, conclusion)] = await site.rows("SELECT state, conclusion FROM jobs")
    assert (state, conclusion) == ("completed", "success")
    successor = await site.until(IDLE)
    assert successor != warm
    await site.place.api.until_gone(f"{site.place.pods}/{warm}")
    pool = await site.place.api.until(
        f"{site.place.pools}/linux", lambda found: found.get("status", {}).get("idle")
    )
    [condition] = pool["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Accepted", "True")


@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_a_pool_that_is_deleted_waits_for_its_jobs(site: KubeSite, cascade: str) -> None:
    """I42: idle runners leave at once, the busy one finishes, then the object goes; also if the server
    is killed meanwhile."""
    server = await site.server()
    await site.pool(minIdle=2)
    await site.until("SELECT count(*) = 2 FROM runners WHERE state = 'idle'")
    site.queue(steps=(Step("work", "sleep 25"),))
    busy = await site.until(BUSY)
    pool = f"{site.place.pools}/linux"
    await site.place.api.delete(pool, propagationPolicy=cascade.capitalize())
    await site.kill(server)
    await site.server()
    await site.until(
        "SELECT count(*) = 1 FROM runners WHERE gone_at IS NULL AND state <> 'retiring'"
    )
    assert await site.place.api.exists(pool)
    assert busy in await pods(site)
    assert await site.until(VERDICT, busy) == "completed"
    await site.place.api.until_gone(pool)
    assert await site.rows("SELECT count(*) FROM runners WHERE gone_at IS NULL") == [(0,)]
