"""Hosts report their condition to a real API server: with the rights of `deploy/host`, and with a
kubelet's own certificate. A pool's size follows it. kwok's nodes and replaced programs simulate the
Macs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.fleet.kube.objects import OWNER_LABEL
from paddock.host.configuration import Cluster as ClusterConfiguration
from paddock.host.reports import (
    CONDITION,
    AttemptResult,
    ClusterReports,
    Report,
    ReportFailed,
    Reports,
)
from tests.support.kube import DEPLOY, PATHS, installed, runner_template
from tests.support.kube_site import KubeSite, kube_site
from tests.support.mac import Mac
from tools.cluster.api import Api, Refused
from tools.cluster.cluster import Cluster
from tools.cluster.fake_nodes import SELECTOR, TOLERATION, FakeNodes

pytestmark = pytest.mark.timeout(600)

MAC = {"kubernetes.io/os": "darwin"}
ONE_MACHINE = {"cpu": "8", "memory": "16Gi", "pods": "1"}
BUSY = "cannot define table vm_sources: Resource busy"


@dataclass
class KubeMac:
    """A Mac whose reports go to the cluster."""

    mac: Mac
    api: Api
    node: str
    reports: Reports

    def run(self) -> AttemptResult:
        keeping = self.mac.keeping()
        keeping.reports = self.reports
        return keeping.until_it_succeeds(1)

    async def condition(self) -> dict[str, Any]:
        node = await self.api.get(f"/api/v1/nodes/{self.node}")
        [found] = [each for each in node["status"]["conditions"] if each["type"] == CONDITION]
        assert isinstance(found, dict)
        return found

    async def told(self) -> tuple[str, str]:
        found = await self.condition()
        return found["status"], found["reason"]

    async def events(self) -> list[tuple[str, str]]:
        listed = await self.api.get(
            "/api/v1/namespaces/default/events",
            fieldSelector=f"involvedObject.kind=Node,involvedObject.name={self.node}",
        )
        ours = [
            each for each in listed["items"] if each["source"].get("component") == "paddock-host"
        ]
        ours.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        return [(each["type"], each["reason"]) for each in ours]


@asynccontextmanager
async def allowed(cluster: Cluster, api: Api, namespace: str, node: str) -> AsyncIterator[str]:
    """`deploy/host/roles.yaml` for this node; the token that it makes."""
    text = (DEPLOY / "host/roles.yaml").read_text().replace("mac-1", node)
    text = text.replace("namespace: paddock\n", f"namespace: {namespace}\n")
    paths = {**PATHS, "Secret": "/api/v1/namespaces/{namespace}/secrets"}
    made = []
    for document in yaml.safe_load_all(text):
        metadata = document["metadata"]
        where = paths[document["kind"]].format(namespace=metadata.get("namespace"))
        await api.apply(f"{where}/{metadata['name']}", document)
        if metadata.get("namespace") != namespace:
            made.append(f"{where}/{metadata['name']}")
    try:
        secret = await api.until(
            f"/api/v1/namespaces/{namespace}/secrets/paddock-host-{node}",
            lambda found: found.get("data", {}).get("token"),
        )
        yield base64.b64decode(secret["data"]["token"]).decode()
    finally:
        for path in made:
            await api.delete(path)


def reports(cluster: Cluster, node: str, token: Path) -> ClusterReports:
    return ClusterReports(
        ClusterConfiguration(
            server=cluster.facts.server, authority=cluster.layout.pki / "ca.crt", token=token
        ),
        node,
    )


@pytest.fixture
async def kube_mac(
    cluster: Cluster,
    api: Api,
    namespace: str,
    fake_nodes: FakeNodes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[KubeMac]:
    [node] = await fake_nodes.make(room=ONE_MACHINE, labels=MAC)
    async with allowed(cluster, api, namespace, node) as token:
        (tmp_path / "token").write_text(f"{token}\n")
        mac = Mac.made(tmp_path, monkeypatch)
        yield KubeMac(mac, api, node, reports(cluster, node, tmp_path / "token"))


async def test_each_run_is_a_condition_of_the_node(kube_mac: KubeMac) -> None:
    """First run, second run, a rule file with a mistake, a load that fails, and all well again."""
    mac = kube_mac.mac
    assert (await asyncio.to_thread(kube_mac.run)).failed is None
    first = await kube_mac.condition()
    assert (first["status"], first["reason"]) == ("True", "Bootstrapped")

    await asyncio.to_thread(kube_mac.run)
    second = await kube_mac.condition()
    assert second["message"] == "all was as it should be."
    assert second["lastTransitionTime"] == first["lastTransitionTime"]

    own = mac.root / "own.pf"
    own.write_text("let them in\n")
    mac.configure(f'node = "mac-1"\n[network]\nrules = "{own}"')
    assert (await asyncio.to_thread(kube_mac.run)).failed == "validate"
    assert await kube_mac.told() == ("False", "ValidateFailed")

    own.write_text("pass in quick from any to 10.1.2.3\n")
    mac.fail("-a paddock.runners -f", words=BUSY)
    await asyncio.to_thread(kube_mac.run)
    assert await kube_mac.told() == ("False", "LoadFailed")
    assert BUSY in (await kube_mac.condition())["message"]

    mac.change(fail=[])
    await asyncio.to_thread(kube_mac.run)
    assert await kube_mac.told() == ("True", "Bootstrapped")
    events = await kube_mac.events()
    assert events[-3:] == [
        ("Warning", "ValidateFailed"),
        ("Warning", "LoadFailed"),
        ("Normal", "Bootstrapped"),
    ]


async def test_the_program_itself_tells_the_cluster_that_its_file_names(
    cluster: Cluster, kube_mac: KubeMac
) -> None:
    """As on a Mac, with the standard library alone."""
    mac = kube_mac.mac
    mac.configure(
        f"""
        node = "{kube_mac.node}"
        [kubernetes]
        server = "{cluster.facts.server}"
        authority = "{cluster.layout.pki / "ca.crt"}"
        token = "{mac.root / "token"}"
        """
    )
    mac.fail("-n -f", words="pfctl: /dev/pf: Permission denied")
    failed = await asyncio.to_thread(mac.command, "--attempts", "1")
    assert failed.returncode == 1
    assert await kube_mac.told() == ("False", "ValidateFailed")
    mac.change(fail=[])
    done = await asyncio.to_thread(mac.command)
    assert (done.returncode, "was not told" in done.stderr) == (0, False), done.stderr
    assert await kube_mac.told() == ("True", "Bootstrapped")


async def test_a_half_finished_run_is_made_good_and_told(kube_mac: KubeMac) -> None:
    left = {"rules": [], "tables": {"vm_sources": ["10.9.0.0/16"]}}
    kube_mac.mac.change(anchors={"paddock.runners": left})
    await asyncio.to_thread(kube_mac.run)
    assert await kube_mac.told() == ("True", "Bootstrapped")


async def test_a_host_can_speak_for_itself_only(
    cluster: Cluster, kube_mac: KubeMac, fake_nodes: FakeNodes
) -> None:
    [other] = await fake_nodes.make(labels=MAC)
    token = kube_mac.mac.root / "token"
    stranger = reports(cluster, other, token)
    with pytest.raises(
        ReportFailed, match=r"Kubernetes does not allow it \(deploy/host/roles.yaml"
    ):
        await asyncio.to_thread(stranger.send, _report(kube_mac))
    async with cluster.api(token=token.read_text().strip()) as own:
        for path, change in (
            (f"/api/v1/nodes/{kube_mac.node}", {"spec": {"unschedulable": True}}),
            (f"/api/v1/nodes/{other}/status", {"status": {}}),
        ):
            with pytest.raises(Refused, match="forbidden"):
                await own.patch(path, change)
        with pytest.raises(Refused, match="forbidden"):
            await own.get("/api/v1/nodes")


async def test_a_kubelets_certificate_may_do_the_same(
    cluster: Cluster, api: Api, node: str, kube_mac: KubeMac
) -> None:
    pki = cluster.layout.pki
    configured = ClusterConfiguration(
        server=cluster.facts.server,
        authority=pki / "ca.crt",
        certificate=pki / "kubelet.crt",
        key=pki / "kubelet.key",
    )
    try:
        await asyncio.to_thread(ClusterReports(configured, node).send, _report(kube_mac))
        shown = await api.get(f"/api/v1/nodes/{node}")
        assert CONDITION in [each["type"] for each in shown["status"]["conditions"]]
        with pytest.raises(ReportFailed, match="does not allow it"):
            await asyncio.to_thread(
                ClusterReports(configured, kube_mac.node).send, _report(kube_mac)
            )
    finally:
        await _patch_status(api, node, {"type": CONDITION, "$patch": "delete"})


async def test_a_host_without_a_node_yet_is_seen_by_its_event(
    cluster: Cluster, api: Api, namespace: str, tmp_path: Path, kube_mac: KubeMac
) -> None:
    name = f"{namespace}-mac"
    async with allowed(cluster, api, namespace, name) as token:
        (tmp_path / "other").write_text(token)
        nowhere = reports(cluster, name, tmp_path / "other")
        with pytest.raises(ReportFailed, match=f"there is no Node {name} yet"):
            await asyncio.to_thread(nowhere.send, _report(kube_mac))
        other = KubeMac(kube_mac.mac, api, name, nowhere)
        assert await other.events() == [("Warning", "LoadFailed")]


def _report(kube_mac: KubeMac) -> Report:
    keeping = kube_mac.mac.keeping()
    return Report(
        at=keeping.now(), ready=False, reason="LoadFailed", message=BUSY, failures=3, news=True
    )


@pytest.fixture
async def site(
    cluster: Cluster, api: Api, namespace: str, tmp_path: Path, database_url: str
) -> AsyncIterator[KubeSite]:
    async with (
        installed(cluster, api, namespace, tmp_path) as place,
        kube_site(place, database_url) as site,
    ):
        yield site


FAULT = "SELECT why ~ $2 FROM host_faults WHERE host = $1"
TARGET = "SELECT target = $1 FROM pool_decisions ORDER BY id DESC LIMIT 1"


async def test_a_pools_size_follows_the_condition_of_its_hosts(
    site: KubeSite, kube_mac: KubeMac, fake_nodes: FakeNodes, api: Api
) -> None:
    """Two Macs with room for one machine each: one was never bootstrapped, the other is, then
    fails, and is well again."""
    [bare] = await fake_nodes.make(room=ONE_MACHINE, labels=MAC)
    await site.server(PADDOCK_KUBE_NODE_SELECTOR="kubernetes.io/os=darwin")
    await site.pool(
        "macs",
        shape="single",
        minIdle=2,
        template=runner_template(
            spec={"nodeSelector": {**SELECTOR, **MAC}, "tolerations": [TOLERATION]}
        ),
    )
    await site.until(TARGET, 0)
    await asyncio.to_thread(kube_mac.run)
    await site.until(TARGET, 1)
    pods = await api.until(site.place.pods, _all_placed)
    assert {each["spec"]["nodeName"] for each in pods["items"]} == {kube_mac.node}

    kube_mac.mac.change(anchors={})
    kube_mac.mac.fail("-a paddock.runners -f", words=BUSY)
    await asyncio.to_thread(kube_mac.run)
    await site.until(TARGET, 0)
    await site.until(FAULT, kube_mac.node, "LoadFailed.*Resource busy")
    await site.until(FAULT, bare, "NeverBootstrapped")
    await site.until("SELECT count(*) = 1 FROM runners WHERE retire_reason ~ 'LoadFailed'")

    kube_mac.mac.change(fail=[])
    await asyncio.to_thread(kube_mac.run)
    await site.until(TARGET, 1)
    await site.until("SELECT count(*) = 1 FROM host_faults")

    # The other one too: each has one machine, and no more.
    condition = {"type": CONDITION, "status": "True", "reason": "Bootstrapped"}
    await _patch_status(api, bare, condition)
    await site.until(TARGET, 2)
    pods = await api.until(site.place.pods, lambda found: len(_nodes_of(found)) == 2)
    assert _nodes_of(pods) == sorted([bare, kube_mac.node])


async def _patch_status(api: Api, node: str, condition: dict[str, str]) -> None:
    await api.request(
        "PATCH",
        f"/api/v1/nodes/{node}/status",
        {"status": {"conditions": [condition]}},
        content_type="application/strategic-merge-patch+json",
    )


def _nodes_of(pods: dict[str, Any]) -> list[str]:
    """The nodes of Pods that are not being deleted."""
    return sorted(
        each["spec"]["nodeName"]
        for each in pods["items"]
        if each["spec"].get("nodeName") and not each["metadata"].get("deletionTimestamp")
    )


def _all_placed(pods: dict[str, Any]) -> bool:
    items = pods["items"]
    return bool(items) and all(each["spec"].get("nodeName") for each in items)


IDLE = "SELECT pod_name FROM runners WHERE state = 'idle'"
BUSY_POD = "SELECT pod_name FROM runners WHERE state = 'busy'"
VERDICT = """
SELECT v.ending FROM verdicts v JOIN runners r ON r.id = v.runner_id WHERE r.pod_name = $1
"""


async def test_a_pod_of_one_container_is_started_from_boot_and_stamped_when_it_has_a_job(
    site: KubeSite, node: str
) -> None:
    """S1's last paragraph: `started` proves nothing here. So an idle Pod that has started is left
    alone, and its first minute is not taken for a job's. The label waits for GitHub's word."""
    await site.server()
    await site.pool("macs", shape="single")
    name = await site.until(IDLE)
    path = f"{site.place.pods}/{name}"
    idle = await site.place.api.until(path, _has_started)
    assert OWNER_LABEL not in idle["metadata"]["labels"]
    site.queue(**site.gate.job())
    assert await site.until(BUSY_POD) == name
    await site.place.api.until(path, lambda pod: OWNER_LABEL in pod["metadata"]["labels"])
    site.gate.open()
    assert await site.until(VERDICT, name) == "completed"
    assert await site.rows("SELECT rule FROM actions WHERE action NOT IN ('conclude')") == []


def _has_started(pod: dict[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return [(each["name"], each["started"]) for each in statuses] == [("runner", True)]
