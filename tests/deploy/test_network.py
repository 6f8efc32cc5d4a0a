"""What jobs can reach under the chart's policies, and that no Pod is cut off before it has its JIT."""

from __future__ import annotations

import ipaddress
import itertools
import json
import tomllib
from dataclasses import replace
from functools import cache
from typing import Any
from uuid import uuid4

import pytest

from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import (
    ContainerState,
    ContainerStatus,
    Running,
    Terminated,
    Waiting,
)
from paddock.domain.pods.pod import PodOrder, may_stamp
from paddock.domain.states import RunnerState
from paddock.fleet.kube.objects import OWNER_LABEL
from paddock.fleet.kube.shapes import Placement, manifest
from tests.support.chart import LEAST, Json, merged, named, rendered
from tests.support.policies import Network, Peer, selects

pytestmark = pytest.mark.usefixtures("helm")

HTTP, DISPATCH, VITALS = 8787, 8788, 8789

#: As the chart makes it; a test holds the two together.
SERVER = Peer(
    address="10.1.0.5",
    namespace="paddock",
    labels={
        "app.kubernetes.io/name": "paddock",
        "app.kubernetes.io/instance": "paddock",
        "app.kubernetes.io/component": "server",
    },
)
DNS = Peer(address="10.1.0.9", namespace="kube-system", labels={"k8s-app": "kube-dns"})
STRANGER = Peer(address="10.1.0.7", namespace="shop", labels={"app": "web"})
GITHUB = Peer(address="140.82.121.4")
GITHUB_6 = Peer(address="2606:50c0:8000::64")
ELSEWHERE = Peer(address="151.101.1.6")

INWARD = {
    "the API server": "10.96.0.1",
    "another Pod's address": "10.1.0.7",
    "the node": "192.168.1.10",
    "a cloud's metadata": "169.254.169.254",
    "a cloud's metadata, version 6": "fd00:ec2::254",
    "Alibaba Cloud's metadata, in the shared range": "100.100.100.200",
    "Azure's wire server, at a public address": "168.63.129.16",
    "Oracle Cloud Classic's metadata": "192.0.0.192",
    "Google Cloud's metadata, version 6": "fd20:ce::254",
    "the loopback": "127.0.0.1",
    "the link": "fe80::1",
    "a private range": "172.20.3.4",
    "a cloud's metadata, by 6to4": "2002:a9fe:a9fe::1",
    "a cloud's metadata, by NAT64": "64:ff9b::a9fe:a9fe",
    "a cloud's metadata, mapped": "::ffff:169.254.169.254",
}

#: IANA's registries of special-purpose addresses, as of 2025: what they call not globally reachable, or
#: leave open because the allocation has ended. Multicast has a registry of its own.
NOT_GLOBALLY_REACHABLE = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
    *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    *("::1/128", "::/128", "::ffff:0:0/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64"),
    *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16"),
    *("fc00::/7", "fe80::/10", "ff00::/8"),
)
#: What the same registries call globally reachable, and what lies next to the ranges above.
GLOBALLY_REACHABLE = (
    *("192.31.196.1", "192.52.193.1", "192.175.48.1", "2620:4f:8000::1"),
    *("1.0.0.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"),
    *("128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0"),
    *("172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0", "192.88.98.255"),
    *("192.88.100.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0"),
    *("198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255"),
    *(
        "2000::1",
        "2001:200::",
        "2001:db7:ffff::",
        "2001:db9::",
        "2003::",
        "3ffe:ffff::",
        "3fff:1000::",
    ),
)


def network(**change: Any) -> Network:
    return _network(json.dumps(change))


@cache
def _network(change: str) -> Network:
    objects = rendered(merged(LEAST, network=json.loads(change)))
    return Network([each for each in objects if each["kind"] == "NetworkPolicy"])


def made(shape: str = "gated") -> Json:
    """A Pod as paddock makes it."""
    spec = {"containers": [{"name": "runner", "image": "runner:1"}]}
    order = PodOrder(
        runner=RunnerId(uuid4()),
        name=PodName("linux-a"),
        pool="linux",
        spec=json.dumps({"labels": ["linux"], "shape": shape, "template": {"spec": spec}}),
    )
    placement = Placement(
        namespace="paddock-runners",
        service_account="paddock-runner",
        agent_image="paddock:1",
        agent_command=("agent",),
        server=f"http://paddock.paddock.svc:{DISPATCH}",
    )
    return manifest(order, placement)


IDLE = Peer(address="10.1.0.66", namespace="paddock-runners", labels=made()["metadata"]["labels"])
STAMPED = replace(IDLE, labels={**IDLE.labels, OWNER_LABEL: "7"})
SIBLING = replace(IDLE, address="10.1.0.67")

BOTH = pytest.mark.parametrize("pod", [IDLE, STAMPED], ids=["idle", "stamped"])


@BOTH
@pytest.mark.parametrize("way", ["all", "idle-only"])
@pytest.mark.parametrize("address", INWARD.values(), ids=INWARD)
def test_a_job_reaches_the_internet_and_nothing_inward(pod: Peer, way: str, address: str) -> None:
    """Default deny, but for the world."""
    net = network(dispatchEgress=way)
    assert net.lets(pod, GITHUB, 443)
    assert net.lets(pod, GITHUB_6, 443)
    assert not net.lets(pod, Peer(address=address), 443)


@pytest.mark.parametrize("block", NOT_GLOBALLY_REACHABLE)
def test_what_is_not_globally_reachable_is_not_the_internet(block: str) -> None:
    special = ipaddress.ip_network(block)
    middle = special[special.num_addresses // 2]
    for address in (special[0], middle, special[-1]):
        assert not network().lets(IDLE, Peer(address=str(address)), 443), address


@pytest.mark.parametrize("address", GLOBALLY_REACHABLE)
def test_what_is_globally_reachable_is_the_internet(address: str) -> None:
    assert network().lets(IDLE, Peer(address=address), 443)


@BOTH
def test_no_peer_reaches_a_runner(pod: Peer) -> None:
    net = network()
    for source in (SERVER, STRANGER, SIBLING, GITHUB):
        assert not net.lets(source, pod, 8080)


@BOTH
def test_a_job_reaches_no_other_pod(pod: Peer) -> None:
    net = network()
    for target in (STRANGER, SIBLING):
        assert not net.lets(pod, target, 80)


@BOTH
@pytest.mark.parametrize("way", ["all", "idle-only"])
def test_a_job_never_reaches_what_else_the_server_answers(pod: Peer, way: str) -> None:
    """Metrics, the dashboard and its data, on the port that is for people."""
    assert not network(dispatchEgress=way).lets(pod, SERVER, HTTP)


@BOTH
def test_names_are_resolved_by_the_clusters_own(pod: Peer) -> None:
    net = network()
    assert net.lets(pod, DNS, 53, "UDP")
    assert net.lets(pod, DNS, 53, "TCP")
    assert not net.lets(pod, DNS, 9153)
    assert not net.lets(pod, STRANGER, 53, "UDP")
    assert not network(dns={"enabled": False}).lets(pod, DNS, 53, "UDP")


def test_by_default_every_pod_reaches_dispatch() -> None:
    net = network()
    assert net.lets(IDLE, SERVER, DISPATCH)
    assert net.lets(STAMPED, SERVER, DISPATCH)
    assert net.lets(STAMPED, SERVER, VITALS)


def test_idle_only_ends_with_the_stamp() -> None:
    net = network(dispatchEgress="idle-only")
    assert net.lets(IDLE, SERVER, DISPATCH)
    assert not net.lets(STAMPED, SERVER, DISPATCH)


def test_with_idle_only_vitals_go_on_through_a_door_of_their_own() -> None:
    """What it costs: see docs/network.md."""
    assert network(dispatchEgress="idle-only").lets(STAMPED, SERVER, VITALS)
    without = network(dispatchEgress="idle-only", vitalsEgress=False)
    assert not without.lets(STAMPED, SERVER, VITALS)


def test_the_strict_variant_reaches_what_is_listed() -> None:
    listed = [{"cidr": "140.82.112.0/20", "ports": [443]}, {"cidr": "10.9.0.0/16"}]
    net = network(egress="listed", allowed=listed)
    assert net.lets(IDLE, GITHUB, 443)
    assert not net.lets(IDLE, GITHUB, 22)
    assert not net.lets(IDLE, ELSEWHERE, 443)
    assert net.lets(IDLE, Peer(address="10.9.1.1"), 5432)


def test_without_egress_only_dispatch_and_names_are_left() -> None:
    net = network(egress="none")
    assert not net.lets(IDLE, GITHUB, 443)
    assert net.lets(IDLE, SERVER, DISPATCH)


def test_more_can_be_denied_and_allowed() -> None:
    net = network(
        denied=["151.101.0.0/16", "2606:50c0::/32"],
        allowed=[{"cidr": "10.1.0.7/32", "ports": [80]}],
    )
    assert not net.lets(IDLE, ELSEWHERE, 443)
    assert not net.lets(IDLE, GITHUB_6, 443)
    assert net.lets(IDLE, GITHUB, 443)
    assert net.lets(IDLE, STRANGER, 80)


def test_what_is_denied_already_may_be_denied_again() -> None:
    """Kubernetes refuses an exception that does not lie within its block."""
    net = network(denied=["fd00::/8", "10.0.0.0/8", "2001:db8::/32", "2606:50c0::/32"])
    blocks = [
        peer["ipBlock"]
        for policy in net.policies
        for rule in policy["spec"].get("egress") or ()
        for peer in rule["to"]
        if "ipBlock" in peer
    ]
    assert len(blocks) == 2
    for block in blocks:
        assert len(set(block["except"])) == len(block["except"])
        cidr = ipaddress.ip_network(block["cidr"])
        for each in map(ipaddress.ip_network, block["except"]):
            assert each.version == cidr.version
            assert each.subnet_of(cidr)  # type: ignore[arg-type]  # of one version
    assert not net.lets(IDLE, GITHUB_6, 443)


POLLERS = {
    "none": None,
    "waiting": ContainerState(waiting=Waiting(reason="PodInitializing")),
    "running": ContainerState(running=Running()),
    "ended": ContainerState(terminated=Terminated(exit_code=0)),
}


@pytest.mark.parametrize("way", ["all", "idle-only"])
def test_no_pod_is_cut_off_before_its_jit_is_staged(way: str) -> None:
    """I56: in every state, with every look of its poller, a Pod that does not hold its JIT yet has no
    label that ends its way to dispatch."""
    net = network(dispatchEgress=way)
    cut_off = 0
    for shape, state, (look, status) in itertools.product(
        ("gated", "single"), RunnerState, POLLERS.items()
    ):
        poller = None if status is None else ContainerStatus(name="poller", state=status)
        stamped = may_stamp(shape=shape, state=state, poller=poller)
        labels = made(shape)["metadata"]["labels"]
        pod = replace(IDLE, labels=labels | ({OWNER_LABEL: "7"} if stamped else {}))
        # A poller ends when the JIT lies on the stage; the other shape runs a job by it.
        staged = (
            state in (RunnerState.BUSY, RunnerState.DONE) if shape == "single" else look == "ended"
        )
        reaches = net.lets(pod, SERVER, DISPATCH)
        assert reaches or staged, (shape, state, look)
        cut_off += not reaches
    assert bool(cut_off) == (way == "idle-only")


def test_the_policies_are_for_pods_as_they_are_made() -> None:
    """Every one of them selects a Pod from its birth, so there is no moment without."""
    objects = rendered(merged(LEAST, network={"dispatchEgress": "idle-only"}))
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    assert len(policies) == 5
    for policy in policies:
        assert selects(policy["spec"]["podSelector"], made()["metadata"]["labels"])
        assert policy["metadata"]["namespace"] == "paddock-runners"


@pytest.mark.parametrize(
    ("change", "egress", "door"),
    [
        ({}, "all", True),
        ({"dispatchEgress": "idle-only"}, "idle-only", True),
        ({"dispatchEgress": "idle-only", "vitalsEgress": False}, "idle-only", False),
    ],
)
def test_the_program_is_told_what_the_policies_are(change: Json, egress: str, door: bool) -> None:
    """For `paddock doctor`, which may not read them."""
    text = named(rendered(merged(LEAST, network=change)), "ConfigMap")["data"]["paddock.toml"]
    kube = tomllib.loads(text)["kube"]
    assert kube["dispatch_egress"] == egress
    assert ("vitals_url" in kube) is door


def test_the_server_is_whom_the_policies_mean() -> None:
    template = named(rendered(LEAST), "Deployment")["spec"]["template"]
    assert SERVER.labels.items() <= template["metadata"]["labels"].items()


def test_the_port_pods_ask_is_the_one_that_is_open() -> None:
    settings = named(rendered(LEAST), "ConfigMap")["data"]["paddock.toml"]
    assert f'server_url = "http://paddock.paddock.svc:{DISPATCH}"' in settings
    assert f'vitals_url = "http://paddock.paddock.svc:{VITALS}"' in settings
    ports = {
        each["name"]: each["port"] for each in named(rendered(LEAST), "Service")["spec"]["ports"]
    }
    assert ports == {"http": HTTP, "pods": DISPATCH, "vitals": VITALS}
