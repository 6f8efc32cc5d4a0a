"""Which connections of Pods succeed under the chart's NetworkPolicies, where something enforces them.

The same pairs are evaluated without a network, by the rules of networking.k8s.io/v1. Both must agree,
but for the differences that are named here. What was seen is kept in docs/figures/network.json, from
which the page's table is made: PADDOCK_RECORD_FIGURES=1 writes it anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from paddock.fleet.kube.objects import OWNER_LABEL, POOL_LABEL
from tests.support.chart import Json, merged, rendered
from tests.support.forwarding import KUBERNETES, always, forwarded, translated
from tests.support.kube import runner_template
from tests.support.outside import outside
from tests.support.policies import Network, Peer
from tests.support.release import ADDRESS, PATIENCE, Release
from tests.support.webhooks import PATH
from tools.cluster import kube_router
from tools.cluster.api import Api
from tools.cluster.cluster import Cluster
from tools.cluster.images import RUNNER
from tools.cluster.node import ctr, run

# A whole installation is started, and every set of policies tried on it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FIGURES = Path(__file__).parents[2] / "docs" / "figures" / "network.json"

IDLE = "SELECT pod_name FROM runners WHERE state = 'idle'"
IS_IN = "SELECT true FROM runners WHERE pod_name = $1 AND state = $2"
HEARD = "SELECT heard_at FROM runners WHERE pod_name = $1"
HEARD_AGAIN = "SELECT heard_at > $2 FROM runners WHERE pod_name = $1"
WITNESS = "witness"
#: Of what listens in every Pod here.
HTTP = 8080
LISTENS = ["python3", "-m", "http.server", str(HTTP)]
SYSTEM = "kube-system"
#: From the usual range of them.
NODE_PORT = 30555

#: Connects to each address and port, and says to which it could.
PROBE = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

def reaches(target):
    kind, address, port = target
    with socket.socket(socket.AF_INET, getattr(socket, kind)) as found:
        found.settimeout(4)
        try:
            found.connect((address, port))
            if kind == "SOCK_DGRAM":
                found.send(b"?")
                found.recv(9)
        except OSError:
            return False
        return True

targets = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(targets)) as pool:
    print(json.dumps(list(pool.map(reaches, targets))))
"""
#: One connection, kept; each line of input is a request on it, each line of output its answer's status.
KEEP = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=20)
connection.connect()
kept = connection.sock
print("open", flush=True)
for _ in sys.stdin:
    connection.request("POST", "/v1/dispatch", headers={"authorization": "Bearer forged"})
    answer = connection.getresponse()
    answer.read()
    print(answer.status if connection.sock is kept else "another connection", flush=True)
"""
#: Answers on the ports of a resolver.
RESOLVER = """
import asyncio

class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, address):
        self.transport.sendto(data, address)

async def main():
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Echo, local_addr=("0.0.0.0", 53))
    for port in (53, 9153):
        await asyncio.start_server(lambda reader, writer: writer.close(), "0.0.0.0", port)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a Pod connects to, and who that is for a policy: behind a Service there is a Pod."""

    address: str
    port: int
    peer: Peer
    peer_port: int = 0
    kind: str = "SOCK_STREAM"

    @property
    def protocol(self) -> str:
        return "UDP" if self.kind == "SOCK_DGRAM" else "TCP"


@dataclass(frozen=True, kw_only=True)
class Source:
    pod: str
    namespace: str
    container: str
    python: str = "python3"


@dataclass
class Scene:
    """An installation with runners, strangers and a world around it."""

    release: Release
    targets: dict[str, Target]
    stranger: Source
    server: Source
    #: A runner that does not get beyond its start.
    stuck: Source
    #: As they are in force.
    policies: list[Json] = field(default_factory=list)

    async def seen(self, source: Source, *names: str) -> dict[str, bool]:
        """What a process in this Pod reaches."""
        wanted = {name: self.targets[name] for name in names or self.targets}
        asked = [(each.kind, each.address, each.port) for each in wanted.values()]
        said = await self.release.cluster.kubectl(
            *("exec", source.pod, "--namespace", source.namespace, "--container", source.container),
            *("--", source.python, "-c", PROBE, json.dumps(asked)),
        )
        return dict(zip(wanted, json.loads(said), strict=True))

    async def predicted(self, source: Source, *names: str) -> dict[str, bool]:
        """What the rules say, for the Pod as it is labelled now."""
        who = await self.peer(source)
        network = Network(self.policies)
        return {
            name: network.lets(who, each.peer, each.peer_port or each.port, each.protocol)
            for name, each in self.targets.items()
            if not names or name in names
        }

    async def peer(self, source: Source) -> Peer:
        path = f"/api/v1/namespaces/{source.namespace}/pods/{source.pod}"
        return as_peer(await self.release.api.get(path))

    async def agreed(self, source: Source, *names: str) -> dict[str, bool]:
        """What is reached, once it is what the rules say: rules reach a node a moment later."""
        differs: dict[str, tuple[bool, bool]] = {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE / 4
        while loop.time() < deadline:
            rules, seen = await self.predicted(source, *names), await self.seen(source, *names)
            rules |= {name: True for name in DIFFERENCES if name in rules}
            if rules == seen:
                return seen
            differs = {
                name: (rules[name], seen[name]) for name in rules if rules[name] != seen[name]
            }
            await asyncio.sleep(0.5)
        raise AssertionError(f"{source.pod}: rules, network: {differs}")

    async def impose(self, **network: Any) -> None:
        """The chart's policies for these values, instead of those that are there."""
        values = merged(self.release.values, network=network)
        objects = rendered(values, namespace=self.release.namespace)
        self.policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
        path = f"/apis/networking.k8s.io/v1/namespaces/{self.release.runners}/networkpolicies"
        names = {each["metadata"]["name"] for each in self.policies}
        for there in (await self.release.api.get(path))["items"]:
            if there["metadata"]["name"] not in names:
                await self.release.api.delete(f"{path}/{there['metadata']['name']}")
        for policy in self.policies:
            await self.release.api.apply(f"{path}/{policy['metadata']['name']}", policy)


OUTSIDE = {
    "the internet (140.82.121.4)": ("140.82.121.4", 443),
    "the internet (151.101.1.6)": ("151.101.1.6", 443),
    "metadata (169.254.169.254)": ("169.254.169.254", 80),
    "Azure's wire server (168.63.129.16)": ("168.63.129.16", 80),
    "its neighbour (168.63.129.17)": ("168.63.129.17", 80),
    "Oracle's metadata (192.0.0.192)": ("192.0.0.192", 80),
    "Alibaba's metadata (100.100.100.200)": ("100.100.100.200", 80),
    "private (10.99.0.1)": ("10.99.0.1", 443),
    "private (172.20.3.4)": ("172.20.3.4", 443),
    "private (192.168.1.10)": ("192.168.1.10", 443),
    "documentation (203.0.113.9)": ("203.0.113.9", 443),
    "reserved (240.0.0.1)": ("240.0.0.1", 443),
}
#: What is reached although no policy allows it: kube-router lets Pods reach node ports of their node.
DIFFERENCES = ("a node port of its node",)

DEFAULT, IDLE_ONLY = "defaults", "`dispatchEgress: idle-only`"
#: The columns of the page's table, by the chart's values for `network`.
MODES: dict[str, Json] = {
    DEFAULT: {},
    IDLE_ONLY: {"dispatchEgress": "idle-only"},
    "`idle-only`, `vitalsEgress: false`": {"dispatchEgress": "idle-only", "vitalsEgress": False},
    "`egress: listed`": {"egress": "listed"},
    "`egress: none`, no `dns`": {"egress": "none", "dns": {"enabled": False}},
}


def witness(*waits: Json) -> Json:
    """A runner's template with a container that lives as long as its Pod, listens, and tries what the
    Pod reaches. A job's own container shares its network."""
    beside = {
        "name": WITNESS,
        "image": RUNNER,
        "imagePullPolicy": "Never",
        "restartPolicy": "Always",
        "command": LISTENS,
    }
    template = runner_template()
    template["spec"]["initContainers"] = [beside, *waits]
    return template


def as_peer(pod: Json) -> Peer:
    return Peer(
        address=pod["status"]["podIP"],
        namespace=pod["metadata"]["namespace"],
        labels=pod["metadata"]["labels"],
    )


def is_running(pod: Json) -> bool:
    status = pod.get("status", {})
    return bool(status.get("podIP")) and status["phase"] == "Running"


def has_witness(pod: Json) -> bool:
    statuses = pod.get("status", {}).get("initContainerStatuses") or ()
    return bool(pod.get("status", {}).get("podIP")) and any(
        each["name"] == WITNESS and "running" in each["state"] for each in statuses
    )


async def plain_pod(
    api: Api, namespace: str, name: str, command: list[str], labels: Mapping[str, str]
) -> Json:
    path = f"/api/v1/namespaces/{namespace}/pods"
    container = {
        "name": WITNESS,
        "image": RUNNER,
        "imagePullPolicy": "Never",
        "command": command,
        "securityContext": {"runAsUser": 0},
    }
    body = {
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    await api.create(path, body)
    return await api.until(f"{path}/{name}", is_running)


@pytest.fixture
async def scene(
    release: Release, enforced: str, make_namespace: Callable[[str], Any], api: Api
) -> AsyncIterator[Scene]:
    """What an operator would have, and what a hostile job would look for."""
    host = release.cluster.host_address
    shop = await make_namespace("shop")
    apiserver = always(("127.0.0.1", release.cluster.facts.ports.api))
    async with AsyncExitStack() as stack:
        stack.enter_context(outside())
        # Before the server connects: what is open already is not readdressed.
        api_port = await stack.enter_async_context(forwarded(host, 0, apiserver))
        await stack.enter_async_context(forwarded(host, NODE_PORT, apiserver))
        stack.enter_context(translated(*KUBERNETES, (host, api_port)))
        await install(release)
        stranger = await plain_pod(api, shop, "stranger", LISTENS, {"app": "web"})
        resolving = ["python3", "-c", RESOLVER]
        resolver = await plain_pod(api, SYSTEM, "resolver", resolving, {"k8s-app": "kube-dns"})
        there = f"/api/v1/namespaces/{SYSTEM}/pods/resolver"
        stack.push_async_callback(partial(api.delete, there, gracePeriodSeconds=0))
        [server] = (await api.get(release.servers))["items"]
        address = server["status"]["podIP"]
        for port in (8787, 8788, 8789):
            stack.enter_context(translated(ADDRESS, port, (address, port)))
        release.app.webhook_url = f"http://{address}:8787{PATH}"
        stuck = await runner_of(release, "stuck")
        yield Scene(
            release,
            targets(release, api_port, *map(as_peer, (server, stranger, resolver, stuck))),
            stranger=Source(pod="stranger", namespace=shop, container=WITNESS),
            server=Source(
                pod=server["metadata"]["name"],
                namespace=release.namespace,
                container="server",
                python="python3.11",
            ),
            stuck=Source(
                pod=stuck["metadata"]["name"], namespace=release.runners, container=WITNESS
            ),
        )


async def install(release: Release) -> None:
    """Two pools: one has an idle runner, in the other they do not get beyond their start."""
    held = {"name": "held", "image": RUNNER, "imagePullPolicy": "Never"}
    stuck = witness({**held, "command": ["sleep", "100000"]})
    await release.install(
        server={"replicas": 1},
        pools={
            "linux": {"minIdle": 1, "template": witness()},
            "stuck": {
                "labels": ["self-hosted", "stuck"],
                "minIdle": 1,
                "template": stuck,
                "stabilisationWindow": "0s",
            },
        },
    )


def targets(
    release: Release, api_port: int, server: Peer, stranger: Peer, resolver: Peer, stuck: Peer
) -> dict[str, Target]:
    """All that there is to reach."""
    host = release.cluster.host_address
    database = urlsplit(release.secrets["paddock-database"]["url"]).port or 0
    [allowed] = release.values["network"]["allowed"]

    def of(peer: Peer, port: int, **more: Any) -> Target:
        return Target(address=peer.address, port=port, peer=peer, **more)

    def service(port: int) -> Target:
        return Target(address=ADDRESS, port=port, peer=server)

    node, (api, at) = Peer(address=host), KUBERNETES
    return {
        "dispatch, by its Service": service(8788),
        "dispatch, by its Pod's address": of(server, 8788),
        "vitals": service(8789),
        "dashboard, metrics, webhooks": service(8787),
        "the API server": Target(address=api, port=at, peer=node, peer_port=api_port),
        "its node's kubelet": of(node, release.cluster.facts.ports.kubelet),
        "a node port of its node": of(node, NODE_PORT),
        "the database": of(node, database),
        "an address and port of `allowed`": of(node, allowed["ports"][0]),
        "the resolver, UDP": of(resolver, 53, kind="SOCK_DGRAM"),
        "the resolver, TCP": of(resolver, 53),
        "the resolver's metrics": of(resolver, 9153),
        "a Pod of another namespace": of(stranger, HTTP),
        "another runner": of(stuck, HTTP),
        **{name: of(Peer(address=address), port) for name, (address, port) in OUTSIDE.items()},
    }


async def runner_of(release: Release, pool: str) -> Json:
    def found(pods: Json) -> list[Json]:
        return [
            each
            for each in pods["items"]
            if each["metadata"]["labels"][POOL_LABEL] == pool and has_witness(each)
        ]

    return found(await release.api.until(release.pods, found, patience=PATIENCE))[0]


async def process_of(release: Release, pod: str, container: str) -> int:
    """Its first process, as this machine numbers it."""
    status = (await release.api.get(f"{release.pods}/{pod}"))["status"]
    [full] = [
        each["containerID"] for each in status["initContainerStatuses"] if each["name"] == container
    ]
    wanted = full.removeprefix("containerd://")
    for line in ctr(release.cluster.layout, "tasks", "list").splitlines()[1:]:
        task, pid, *_ = line.split()
        if task == wanted:
            return int(pid)
    raise AssertionError(f"{container} of {pod} does not run")


def is_stamped(pod: Json) -> bool:
    return OWNER_LABEL in pod["metadata"]["labels"]


async def test_what_is_enforced_is_what_the_rules_say(scene: Scene, enforced: str) -> None:
    """S5. One installation for all attempts, because it takes longer than they do."""
    release = scene.release
    idle = Source(pod=await release.until(IDLE), namespace=release.runners, container=WITNESS)
    others = [name for name in scene.targets if name != "another runner"]
    await scene.impose()
    await nothing_is_enforced_without_a_controller(scene, scene.stuck, others)

    before: dict[str, dict[str, bool]] = {}
    after: dict[str, dict[str, bool]] = {}
    for mode, network in MODES.items():
        await scene.impose(**network)
        before[mode] = seen = await scene.agreed(idle)
        # A Pod reaches itself by its own address, under any policy.
        assert await scene.agreed(scene.stuck, *others) == {name: seen[name] for name in others}

    async with kept(scene, idle) as ask:
        assert await ask() == "401"
        async with armed(release, idle.pod):
            for mode in (DEFAULT, IDLE_ONLY):
                await scene.impose(**MODES[mode])
                assert await scene.agreed(idle) == before[mode]
        await release.until(IS_IN, idle.pod, "busy")
        await release.api.until(f"{release.pods}/{idle.pod}", is_stamped)
        for mode, network in MODES.items():
            await scene.impose(**network)
            after[mode] = await scene.agreed(idle)
            # New connections are refused; this one was there before.
            assert await ask() == "401"

    await scene.impose()
    itself = ("dispatch", "vitals", "dashboard")
    by_server = await scene.agreed(
        scene.server, *(name for name in scene.targets if not name.startswith(itself))
    )
    inward = await who_reaches(scene, idle)
    release.gate.open()
    await release.until(IS_IN, idle.pod, "gone")
    compare(
        {
            "enforced by": enforced,
            "targets": list(before[DEFAULT]),
            "idle": {mode: reached(seen) for mode, seen in before.items()},
            "busy": {mode: reached(seen) for mode, seen in after.items()},
            "not reached by the server": [name for name, seen in by_server.items() if not seen],
            "reaches a busy runner": reached(inward),
        }
    )


def reached(column: Mapping[str, bool]) -> list[str]:
    return [name for name, succeeds in column.items() if succeeds]


async def nothing_is_enforced_without_a_controller(
    scene: Scene, runner: Source, names: Sequence[str]
) -> None:
    """The policies are there, and everything answers: what is refused later is refused by them."""
    cluster = scene.release.cluster
    await cluster.stop(kube_router.NAME)
    assert await scene.seen(runner, *names) == dict.fromkeys(names, True)
    assert not all((await scene.predicted(runner, *names)).values())
    await cluster.start(kube_router.NAME)
    await scene.agreed(runner, *names)


async def who_reaches(scene: Scene, runner: Source) -> dict[str, bool]:
    """The other direction: which sources reach a port on which the runner's Pod listens."""
    peer = await scene.peer(runner)
    scene.targets["the runner"] = Target(address=peer.address, port=HTTP, peer=peer)
    sources = {
        "the server": scene.server,
        "a Pod of another namespace": scene.stranger,
        "another runner": scene.stuck,
    }
    found = {
        name: (await scene.agreed(source, "the runner"))["the runner"]
        for name, source in sources.items()
    }
    _, writer = await asyncio.open_connection(peer.address, HTTP)
    writer.close()
    return found | {"its node": True}


@asynccontextmanager
async def kept(scene: Scene, source: Source) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """A connection to dispatch that a process in this Pod keeps."""
    cluster = scene.release.cluster
    server = scene.targets["dispatch, by its Pod's address"]
    process = await asyncio.create_subprocess_exec(
        *(
            cluster.facts.programs["kubectl"],
            f"--kubeconfig={cluster.kubeconfig}",
            "exec",
            "--stdin",
        ),
        *(source.pod, "--namespace", source.namespace, "--container", source.container),
        *("--", source.python, "-c", KEEP, server.address, str(server.port)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    output, entry = process.stdout, process.stdin

    async def line() -> str:
        async with asyncio.timeout(60):
            return (await output.readline()).decode().strip()

    async def ask() -> str:
        entry.write(b"\n")
        return await line()

    assert await line() == "open"
    try:
        yield ask
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def armed(release: Release, pod: str) -> AsyncIterator[None]:
    """Its JIT is minted and not acknowledged, since its poller stands still; a job waits for it."""
    # It asks anew, so that the server has its question when the job comes.
    await release.until(HEARD_AGAIN, pod, await release.until(HEARD, pod))
    poller = await process_of(release, pod, "poller")
    os.kill(poller, signal.SIGSTOP)
    try:
        release.queue(name="held", **release.gate.job())
        await release.until(IS_IN, pod, "armed")
        assert not is_stamped(await release.api.get(f"{release.pods}/{pod}"))
        yield
    finally:
        os.kill(poller, signal.SIGCONT)


def compare(figures: Json) -> None:
    """Compares the result with the page's table."""
    if os.environ.get("PADDOCK_RECORD_FIGURES") == "1":
        FIGURES.write_text(json.dumps(figures, indent=2) + "\n")
    assert json.loads(FIGURES.read_text()) == figures, "PADDOCK_RECORD_FIGURES=1 and `make docs`"


async def test_the_rules_end_with_the_controller_and_no_others_do(
    cluster: Cluster, api: Api, namespace: str, enforced: str
) -> None:
    """A rule that stays would be applied to the next Pod with the same address."""
    own = ("iptables", "--table", "filter")
    run(*own, "--new-chain", "PADDOCK-TEST")
    try:
        run(*own, "--append", "PADDOCK-TEST", "--jump", "RETURN")
        path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
        spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        await api.create(path, {"metadata": {"name": "all"}, "spec": spec})
        pod = as_peer(await plain_pod(api, namespace, "one", LISTENS, {"app": "one"}))
        deadline = time.monotonic() + PATIENCE
        while f"{pod.address}/32" not in run("iptables-save"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
        assert "KUBE-SRC-" in run("ipset", "list", "-name")
        await cluster.stop(kube_router.NAME)
        left = run("iptables-save")
        assert "KUBE-" not in left
        assert "-A PADDOCK-TEST -j RETURN" in left
        assert "KUBE-" not in run("ipset", "list", "-name")
    finally:
        run(*own, "--flush", "PADDOCK-TEST")
        run(*own, "--delete-chain", "PADDOCK-TEST")
