"""Pods that no row knows, on the real cluster: a Pod that may be at work stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from paddock.store.database import Database
from tests.support.kube_site import PATIENCE, KubeSite
from tools.cluster.images import BUSYBOX

pytestmark = pytest.mark.timeout(900)

SAYS_IT_WORKS = "echo 'Running job: build'; "


def container(name: str, script: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", f"trap 'exit 0' TERM; {script}"],
    }


WAIT = "while true; do sleep 0.2; done"
WAITS = container("other", WAIT)

#: By what a kubelet says of the runner's container.
WORKING: dict[str, dict[str, Any]] = {
    "started": {"containers": [container("runner", SAYS_IT_WORKS + WAIT)]},
    # `started` is false again when it has ended; the Pod goes on.
    "terminated": {"containers": [container("runner", SAYS_IT_WORKS + "exit 1"), WAITS]},
    "last-state": {
        "restartPolicy": "Always",
        "containers": [container("runner", SAYS_IT_WORKS + "exit 1"), WAITS],
    },
}
SHOWS: dict[str, Callable[[dict[str, Any]], object]] = {
    "started": lambda pod: runner(pod).get("started"),
    "terminated": lambda pod: "terminated" in runner(pod)["state"],
    "last-state": lambda pod: "terminated" in runner(pod).get("lastState", {}),
}
WEDGED: dict[str, dict[str, Any]] = {
    "waiting": {
        "initContainers": [container("poller", WAIT)],
        "containers": [container("runner", WAIT)],
    },
    "no-statuses": {
        "schedulingGates": [{"name": "paddock.test/never"}],
        "containers": [container("runner", WAIT)],
    },
}


def runner(pod: dict[str, Any]) -> dict[str, Any]:
    statuses = pod["status"].get("containerStatuses", [])
    found: list[dict[str, Any]] = [each for each in statuses if each["name"] == "runner"]
    return found[0] if found else {"state": {}}


async def test_stamped_pods_without_a_row_go_only_if_their_runner_never_started(
    site: KubeSite,
) -> None:
    """A sweep once deleted the first three with live builds in them."""
    await site.server(PADDOCK_RECOVERY_ADOPT="3")
    await site.pool(minIdle=0)
    await site.until("SELECT name FROM pools")
    # The servers stop until each Pod has its state: a Pod that has not started yet may rightly be
    # deleted.
    await site.end()
    uids = {name: await stamped(site, name, spec) for name, spec in (WORKING | WEDGED).items()}
    for name in WORKING:
        await site.place.api.until(f"{site.place.pods}/{name}", SHOWS[name])
    await site.disturb()
    await gone(site, *WEDGED)
    # One that came later is gone too: so the others were examined several times meanwhile.
    await stamped(site, "later", WEDGED["no-statuses"])
    await gone(site, "later")
    left = (await site.place.api.get(site.place.pods))["items"]
    found = {pod["metadata"]["name"]: pod["metadata"] for pod in left}
    assert {name: found[name]["uid"] for name in found} == {name: uids[name] for name in WORKING}
    assert not any("deletionTimestamp" in each for each in found.values())


async def gone(site: KubeSite, *names: str) -> None:
    await asyncio.gather(
        *(site.place.api.until_gone(f"{site.place.pods}/{name}") for name in names)
    )


async def stamped(site: KubeSite, name: str, spec: dict[str, Any]) -> str:
    body = {
        "metadata": {
            "name": name,
            "labels": {"paddock.dev/pool": "linux", "paddock.dev/owner": "acme"},
            "finalizers": ["paddock.dev/verdict"],
        },
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, **spec},
    }
    made = await site.place.api.create(site.place.pods, body)
    return str(made["metadata"]["uid"])


@pytest.mark.slow
async def test_restoring_an_hour_old_backup_kills_nothing_alive(site: KubeSite) -> None:
    """Rows that call two busy runners idle, and no row at all for a third."""
    server = await site.server()
    await site.pool(minIdle=2)
    await site.until("SELECT count(*) = 2 FROM runners WHERE state = 'idle'")
    await site.kill(server)
    backup = await back_up(site)

    began = datetime.now(UTC)
    server = await site.server()
    # Otherwise a job could be given to a new Pod before one of these two asks the new server.
    await site.until(
        "SELECT count(*) = 2 FROM runners WHERE state = 'idle' AND heard_at > $1", began
    )
    jobs = [site.queue(**site.gate.job()) for _ in range(2)]
    pods = [await site.busy(job) for job in jobs]
    jobs.append(site.queue(**site.gate.job()))
    pods.append(await site.busy(jobs[-1]))
    await site.kill(server)
    await restore(site, backup)
    known = {name for (name,) in await site.rows("SELECT pod_name FROM runners")}
    assert len(known & set(pods)) == 2

    # The pool now retires all Pods that its rows call idle.
    await site.pool(minIdle=0, maxRunners=0)
    await site.server(PADDOCK_RECOVERY_ADOPT="3")
    await site.disturb()
    # The rules that might end a Pod have examined each, and found it at work.
    await site.until(
        "SELECT count(DISTINCT pod_name) = 3 FROM actions WHERE pod_name = ANY ($1)", pods
    )
    assert [job.completed_at for job in jobs] == [None] * 3
    site.gate.open()
    async with asyncio.timeout(PATIENCE):
        while any(job.completed_at is None for job in jobs):  # noqa: ASYNC110 -- another's doing
            await asyncio.sleep(0.5)
    assert [job.conclusion for job in jobs] == ["success"] * 3
    endings = [(await site.verdict(pod))["ending"] for pod in pods]
    assert endings == ["completed"] * 3


async def back_up(site: KubeSite) -> str:
    """A copy of the database in which all times are an hour earlier."""
    name = f"{_name(site)}_backup"
    await _copied(site, _name(site), name)
    connection = await asyncpg.connect(_url(site, name))
    try:
        # As a restore does it: triggers do not run.
        await connection.execute("SET session_replication_role = replica")
        columns = await connection.fetch(
            """
            SELECT table_name, string_agg(
                       format('%1$I = %1$I - interval ''1 hour''', column_name), ', ') AS changes
              FROM information_schema.columns
              JOIN information_schema.tables USING (table_schema, table_name)
             WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'
               AND data_type = 'timestamp with time zone' AND is_generated = 'NEVER'
             GROUP BY table_name ORDER BY table_name
            """
        )
        for table, changes in columns:
            await connection.execute(f"UPDATE {table} SET {changes}")
    finally:
        await connection.close()
    return name


async def restore(site: KubeSite, backup: str) -> None:
    await _copied(site, backup, _name(site))


async def _copied(site: KubeSite, source: str, target: str) -> None:
    await site.database.close()
    connection = await asyncpg.connect(_url(site, "postgres"))
    try:
        await connection.execute(f"DROP DATABASE IF EXISTS {target} WITH (FORCE)")
        await connection.execute(f"CREATE DATABASE {target} TEMPLATE {source}")
    finally:
        await connection.close()
    site.database = await Database.connect(site.database_url, application_name="test")


def _name(site: KubeSite) -> str:
    return site.database_url.partition("?")[0].rpartition("/")[2]


def _url(site: KubeSite, name: str) -> str:
    head, _, query = site.database_url.partition("?")
    return f"{head.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")
