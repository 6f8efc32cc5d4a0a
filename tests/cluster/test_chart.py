"""paddock as its chart installs it: with those rights, from its own image, through its whole life."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from typing import Any

import pytest

from tests.support.chart import CHART, helm
from tests.support.release import ADDRESS, NEXT, PATIENCE, Release, names, reachable
from tools.cluster.api import Refused

# Servers and containers are started many times over.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

IDLE = "SELECT pod_name FROM runners WHERE state = 'idle'"
BUSY = "SELECT pod_name FROM runners WHERE state = 'busy'"
VERDICT = """
SELECT v.ending FROM verdicts v JOIN runners r ON r.id = v.runner_id WHERE r.pod_name = $1
"""
SECRETS = ("paddock-database", "paddock-github", "paddock-sealing")
TWO_IDLE = "SELECT count(*) = 2 FROM runners WHERE state = 'idle'"
RAN = "SELECT r.pod_name FROM jobs j JOIN runners r ON r.id = j.runner_id WHERE j.name = $1"
DONE = "SELECT conclusion FROM jobs WHERE state = 'completed' AND name = $1"


async def pods(release: Release) -> dict[str, Any]:
    found = (await release.api.get(release.pods))["items"]
    return {each["metadata"]["name"]: each for each in found}


async def test_a_job_is_run_as_installed(release: Release) -> None:
    await release.install()
    async with reachable(release):
        warm = await release.until(IDLE)
        release.queue(name="first")
        assert await release.until(VERDICT, warm) == "completed"
        assert await release.until(DONE, "first") == "success"
        assert await release.until(IDLE) != warm
        for server in (await release.api.get(release.servers))["items"]:
            log = await release.api.log(release.namespace, server["metadata"]["name"], "server")
            assert "does not let paddock" not in log
    assert len((await release.api.get(release.servers))["items"]) == 2


async def test_jobs_run_over_tls_that_helm_generated(release: Release) -> None:
    """The kubelet gives the certificate to the server and the authority to Pods, and Helm keeps both.
    When TLS is switched off, idle Pods that know only the TLS address are replaced: otherwise a pool
    of fixed size would wait for ever."""
    secured = {
        "serverUrl": f"https://{ADDRESS}:8788",
        "vitalsUrl": f"https://{ADDRESS}:8789",
    }
    plain = dict(release.values["runners"])
    described = release.values["pools"]["linux"]
    release.values["pools"] = {
        "linux": {key: described[key] for key in ("labels", "template")} | {"size": 1}
    }
    await release.install(dispatch={"tls": {"mode": "generated"}}, runners=secured)
    made = await certificate(release)
    async with reachable(release):
        warm = await release.until(IDLE)
        said = await poller_said(release, warm)
        assert not [line for line in said if "certificate" in str(line.get("why"))]
        release.queue(name="over TLS")
        assert await release.until(VERDICT, warm) == "completed"
        assert await release.until(DONE, "over TLS") == "success"

        await release.upgrade(server={"logLevel": "debug"})
        assert await certificate(release) == made
        older = await release.until(IDLE)

        await release.upgrade(
            dispatch={"tls": {"mode": "none"}}, runners={key: plain[key] for key in secured}
        )
        await release.until("SELECT gone_at FROM runners WHERE pod_name = $1", older)
        release.queue(name="without TLS")
        assert await release.until(DONE, "without TLS") == "success"


async def certificate(release: Release) -> dict[str, Any]:
    secret = await release.api.get(f"/api/v1/namespaces/{release.namespace}/secrets/paddock-tls")
    found: dict[str, Any] = secret["data"]
    return found


async def test_an_upgrade_and_a_rollback_end_no_job_and_lose_no_poll(release: Release) -> None:
    """I64: a job runs through both; idle Pods of the old version get their jobs from the new one."""
    await release.install(pools={"linux": {"minIdle": 2}})
    async with reachable(release):
        await release.until(TWO_IDLE)
        release.queue(name="long", **release.gate.job())
        long = await release.until(BUSY)
        await release.until(TWO_IDLE)
        older = {name for (name,) in await release.rows(IDLE)}
        heard = {pod: await poller_said(release, pod) for pod in older}

        await release.upgrade(image={"tag": NEXT})
        [(newest,)] = await release.rows("SELECT count(*) FROM next_release")
        assert newest == 0
        assert {pod: await poller_said(release, pod) for pod in older} == heard
        release.queue(name="by an older agent")
        assert await release.until(DONE, "by an older agent") == "success"
        assert await release.until(RAN, "by an older agent") in older

        await release.roll_back()
        release.queue(name="after the rollback")
        assert await release.until(DONE, "after the rollback") == "success"
        [(state,)] = await release.rows("SELECT state FROM runners WHERE pod_name = $1", long)
        assert state == "busy"
        release.gate.open()
        assert await release.until(VERDICT, long) == "completed"
        assert await release.until(DONE, "long") == "success"
        assert await release.rows("SELECT count(*) FROM jobs WHERE conclusion <> 'success'") == [
            (0,)
        ]


async def poller_said(release: Release, pod: str) -> list[dict[str, Any]]:
    """The poller logs when it begins, and then only unexpected answers. It may log its recovery from
    one at any time."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                log = await release.api.log(release.runners, pod, "poller")
            except Refused:
                # It polls already, and its kubelet has not reported yet that it runs.
                await asyncio.sleep(0.5)
            else:
                said = [json.loads(line) for line in log.splitlines()]
                return [line for line in said if line["event"] != "answered again"]


async def test_uninstalling_waits_for_jobs_and_leaves_what_it_says(release: Release) -> None:
    """I75"""
    await release.install(pools={"linux": {"minIdle": 2}})
    async with reachable(release):
        await release.until(TWO_IDLE)
        release.queue(name="last", **release.gate.job())
        busy = await release.until(BUSY)
        leaving = asyncio.create_task(release.uninstall())
        await release.until("SELECT count(*) = 1 FROM runners WHERE gone_at IS NULL")
        assert busy in await pods(release)
        assert not leaving.done()
        release.gate.open()
        await leaving
    assert await release.rows("SELECT conclusion FROM jobs") == [("success",)]
    assert (await release.api.get(release.pools))["items"] == []
    assert await pods(release) == {}
    await release.api.until(release.servers, lambda found: not found["items"], patience=PATIENCE)
    assert await left_in(release, release.namespace) == sorted(SECRETS)
    assert await left_in(release, release.runners) == []
    for kind in ("clusterroles", "clusterrolebindings"):
        found = (await release.api.get(f"/apis/rbac.authorization.k8s.io/v1/{kind}"))["items"]
        assert not [each for each in names(found) if each.startswith(release.namespace)]
    # The objects that stay do not prevent a new installation.
    await release.try_install()
    # No object stays in Terminating: the namespaces can be deleted.
    await release.api.delete(f"/api/v1/namespaces/{release.runners}")
    await release.api.until_gone(f"/api/v1/namespaces/{release.runners}", patience=PATIENCE)


@pytest.mark.parametrize("way", ["PADDOCK_KUBE_NAMESPACE", "kubectl -n paddock-runners delete"])
async def test_when_paddock_is_broken_there_is_a_way_out(release: Release, way: str) -> None:
    """I75: docs/install.md describes it. It ends no job and leaves no object stuck."""
    await release.install()
    async with reachable(release):
        await release.until(IDLE)
        release.queue(name="goes on", **release.gate.job())
        busy = await release.until(BUSY)
    await release.api.patch(release.deployment, {"spec": {"replicas": 0}})
    await release.api.until(release.servers, lambda found: not found["items"], patience=PATIENCE)
    await follow(release, way)
    await release.api.until(release.pools, lambda found: not found["items"])
    survivors = await pods(release)
    assert not [pod for pod in survivors.values() if pod["metadata"].get("finalizers")]
    assert survivors[busy]["status"]["phase"] == "Running"
    if "kubectl" in way:
        await release.helm("uninstall", "paddock", "--no-hooks")
    await release.api.delete(f"/api/v1/namespaces/{release.runners}")
    await release.api.until_gone(f"/api/v1/namespaces/{release.runners}", patience=PATIENCE)


async def follow(release: Release, begins: str) -> None:
    """The commands of docs/install.md, pasted into a shell."""
    page = (CHART.parents[1] / "docs" / "install.md").read_text()
    [block] = [each for each in re.findall(r"(?:^    .*\n)+", page, re.MULTILINE) if begins in each]
    tools = release.directory / "tools"
    tools.mkdir()
    (tools / "kubectl").symlink_to(release.cluster.facts.programs["kubectl"])
    (tools / "helm").symlink_to(str(helm()))
    (tools / "paddock").write_text(f'#!/bin/sh\nexec {sys.executable} -m paddock "$@"\n')
    (tools / "paddock").chmod(0o755)
    mine = block.replace("paddock-runners", release.runners)
    mine = mine.replace("--namespace paddock ", f"--namespace {release.namespace} ")
    process = await asyncio.create_subprocess_exec(
        *("bash", "-eu", "-c", mine),
        env={
            **{key: value for key, value in os.environ.items() if "PADDOCK" not in key},
            "KUBECONFIG": str(release.cluster.kubeconfig),
            "PATH": f"{tools}:{os.environ['PATH']}",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode == 0, f"{mine}\n{said}"


async def left_in(release: Release, namespace: str) -> list[str]:
    """Objects that are not the cluster's own."""
    kinds = {
        "api/v1": ("configmaps", "pods", "secrets", "serviceaccounts", "services"),
        "apis/apps/v1": ("deployments", "replicasets"),
        "apis/batch/v1": ("jobs",),
        "apis/networking.k8s.io/v1": ("ingresses", "networkpolicies"),
        "apis/policy/v1": ("poddisruptionbudgets",),
        "apis/rbac.authorization.k8s.io/v1": ("rolebindings", "roles"),
    }
    found = []
    for group, plurals in kinds.items():
        for plural in plurals:
            listed = await release.api.get(f"/{group}/namespaces/{namespace}/{plural}")
            found += names(listed["items"])
    return [each for each in sorted(found) if each not in ("default", "kube-root-ca.crt")]
