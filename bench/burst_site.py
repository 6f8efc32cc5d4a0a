"""paddock on the cluster. This process plays all other parts of a burst: GitHub, pollers, runners and
kubelets.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.burst_nodes import NODE, SELECTOR, TOLERATION, played_node
from bench.common import Unusable, say, session
from bench.dispatch_site import Http
from bench.processors import used
from paddock.agent.backoff import jitter
from paddock.domain.pods.pod import Phase, Pod
from paddock.fakes.github import JobSpec, Quotas, Reply, Request
from paddock.fakes.github.runners import Offer
from paddock.fleet.kube.fleet import KubeFleet
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.migrate import migrate
from tests.support.kube import installed, template
from tests.support.kube_site import LABELS, SECRET, KubeSite, kube_site
from tools.cluster.api import Api
from tools.cluster.cluster import Cluster

#: Idle Pods when a burst begins; their successors serve the rest of a larger burst.
WARM = 100
#: Neither GitHub's quotas nor paddock's limits may bind here.
PLENTY = 100_000_000
PATIENCE = 300.0
#: The agent lets its requests be held for this long.
AGENT_WAIT = 50.0
MATRIX = 250

PADDOCK = "paddock"
POSTGRES = "PostgreSQL"
_WARM = f"SELECT count(*) >= {WARM} FROM runners WHERE state = 'idle'"
_METRIC = "paddock_kubernetes_requests_total{"


@dataclass(slots=True, kw_only=True)
class Burst:
    jobs: int
    #: From the first webhook until the last Pod is gone.
    seconds: float
    #: From the first webhook until as many Pods are idle as before it.
    refilled: float
    queued_to_jit: list[float]
    finished_to_gone: list[float]
    #: Requests, by verb and resource.
    apiserver: Counter[str]
    github: int
    #: Seconds of processor time, by process.
    cpu: dict[str, float]


@dataclass(slots=True, kw_only=True)
class Idle:
    """The cost of a minute without work, with `WARM` idle Pods."""

    apiserver: Counter[str]
    #: Seconds of processor time, by process.
    cpu: dict[str, float]
    minutes: float


@dataclass
class BurstSite:
    site: KubeSite
    api: Api
    #: The name of each measured process, by pid.
    parts: Mapping[int, str]
    github_requests: int = 0
    #: Moments, by Pod.
    _handed: dict[str, float] = field(default_factory=dict)
    _finished: dict[str, float] = field(default_factory=dict)
    _gone: dict[str, float] = field(default_factory=dict)
    _players: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def warm(self) -> None:
        say(f"waiting for {WARM} idle Pods")
        await self.site.until(_WARM, patience=PATIENCE)
        # The requests of their start must not count for the burst.
        await asyncio.sleep(3.0)

    async def burst(self, jobs: int) -> Burst:
        for times in (self._handed, self._finished, self._gone):
            times.clear()
        before, asked, so_far = await self._requests(), self.github_requests, used(self.parts)
        began = time.perf_counter()
        for at in range(0, jobs, MATRIX):
            specs = [JobSpec(labels=LABELS)] * min(MATRIX, jobs - at)
            self.site.fake.jobs.queue_run(self.site.repository, specs)
        refilling = asyncio.create_task(self._refilled(jobs))
        try:
            async with asyncio.timeout(PATIENCE):
                while len(self._finished) < jobs or not self._finished.keys() <= self._gone.keys():
                    self._check()
                    await asyncio.sleep(0.05)
                refilled = await refilling
        except TimeoutError:
            raise Unusable(
                f"Of {jobs} jobs {len(self._finished)} were finished within {PATIENCE:g} s."
            ) from None
        finally:
            refilling.cancel()
        # Both end after the replacements are ready and the Pods are gone.
        spent, after = used(self.parts), await self._requests()
        ended = max(self._gone[pod] for pod in self._finished)
        return Burst(
            jobs=jobs,
            seconds=ended - began,
            refilled=refilled - began,
            queued_to_jit=[at - began for at in self._handed.values()],
            finished_to_gone=[self._gone[pod] - at for pod, at in self._finished.items()],
            apiserver=after - before,
            github=self.github_requests - asked,
            cpu={part: seconds - so_far[part] for part, seconds in spent.items()},
        )

    async def _refilled(self, jobs: int) -> float:
        """When all jobs have their runners, and as many Pods are idle as before the burst."""
        while len(self._handed) < jobs:  # noqa: ASYNC110 -- counted by other tasks
            await asyncio.sleep(0.05)
        await self.site.until(_WARM, patience=PATIENCE)
        return time.perf_counter()

    async def idle(self, *, settle: float, measure: float) -> Idle:
        await self.site.until(_WARM, patience=PATIENCE)
        await asyncio.sleep(settle)
        before, so_far = await self._requests(), used(self.parts)
        began = time.perf_counter()
        await asyncio.sleep(measure)
        spent, minutes = used(self.parts), (time.perf_counter() - began) / 60
        after = await self._requests()
        return Idle(
            apiserver=after - before,
            cpu={part: seconds - so_far[part] for part, seconds in spent.items()},
            minutes=minutes,
        )

    def stop(self) -> list[asyncio.Task[None]]:
        for player in self._players.values():
            player.cancel()
        return list(self._players.values())

    def _check(self) -> None:
        for player in self._players.values():
            if player.done() and not player.cancelled() and (error := player.exception()):
                raise error

    async def _requests(self) -> Counter[str]:
        [(host, port)] = self.site.answering()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        lines = (await reader.read()).decode().splitlines()
        writer.close()
        found: Counter[str] = Counter()
        for line in lines:
            if line.startswith(_METRIC):
                labels, value = line.removeprefix(_METRIC).split("} ")
                resource, verb = (each.split('"')[1] for each in labels.split(","))
                found[f"{verb} {resource}"] += int(float(value))
        return found

    async def watch(self, fleet: KubeFleet) -> None:
        async for pod in fleet.watch():
            if pod.phase is Phase.UNKNOWN and pod.reason == "deleted":
                self._gone[pod.name] = time.perf_counter()
                if player := self._players.pop(pod.name, None):
                    player.cancel()
            elif pod.poller and pod.poller.state.running and pod.name not in self._players:
                self._players[pod.name] = asyncio.create_task(self._play(pod))

    async def _play(self, pod: Pod) -> None:
        """Plays its poller, its runner, and its kubelet."""
        reference = {"metadata": {"name": pod.name, "uid": pod.uid}}
        namespace = self.site.place.namespace
        token = await self.api.token(
            namespace, "paddock-runner", audiences=["paddock.dev/dispatch"], pod=reference
        )
        host = self.site.place.cluster.host_address
        jit = await self._poll(token, Http(*await asyncio.open_connection(host, self.site.port)))
        self._handed[pod.name] = time.perf_counter()
        await self._shows(pod, "Running", {"running": {"startedAt": _now()}})
        await self._run(jit)
        ended = {"exitCode": 100, "reason": "Error", "startedAt": _now(), "finishedAt": _now()}
        await self._shows(pod, "Failed", {"terminated": ended})
        self._finished[pod.name] = time.perf_counter()

    async def _poll(self, token: str, http: Http) -> str:
        headers = {"Authorization": f"Bearer {token}"}
        try:
            while True:
                wait = AGENT_WAIT * (0.5 + jitter() / 2)
                status, body = await http.post(f"/v1/dispatch?wait={wait:.0f}", headers)
                if status == 200:
                    work: dict[str, str] = msgspec.json.decode(body)
                    delivery = msgspec.json.encode({"delivery": work["delivery"]})
                    await http.post("/v1/dispatch/ack", headers, delivery)
                    return work["jit"]
                if status != 204:
                    raise Unusable(f"A poller was answered {status}: {body.decode()}")
        finally:
            http.close()

    async def _run(self, jit: str) -> None:
        client_id, secret = _credentials(jit)
        runners = self.site.fake.runners
        session = runners.connect(client_id=client_id, secret=secret, version="2.330.0").id
        while not isinstance(offer := runners.poll(session), Offer):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        runners.acquire(session, offer.job_id)
        runners.complete(session, offer.job_id, "success")
        runners.disconnect(session)

    async def _shows(self, pod: Pod, phase: str, state: Mapping[str, Any]) -> None:
        done = {"exitCode": 0, "reason": "Completed", "startedAt": _now(), "finishedAt": _now()}
        initial = [
            _status("pull", {"terminated": done}),
            _status("poller", {"terminated": done}),
            _status("vitals", {"running": {"startedAt": _now()}}),
        ]
        status = {
            "phase": phase,
            "initContainerStatuses": initial,
            "containerStatuses": [_status("runner", state)],
        }
        await self.api.patch(f"{self.site.place.pods}/{pod.name}/status", {"status": status})


def _status(name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    about = {"image": "none", "imageID": "none", "ready": False, "restartCount": 0}
    return {"name": name, "state": dict(state), "started": "running" in state, **about}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _credentials(jit: str) -> tuple[str, str]:
    files = msgspec.json.decode(base64.b64decode(jit))
    read = {name: msgspec.json.decode(base64.b64decode(text)) for name, text in files.items()}
    return read[".credentials"]["Data"]["ClientId"], read[".credentials_rsaparams"]["d"]


@asynccontextmanager
async def burst_site(
    postgres: EmbeddedPostgres, *, github_latency: float = 0.0
) -> AsyncIterator[BurstSite]:
    """`github_latency`: how long GitHub takes for each call, in seconds."""
    cluster = Cluster.running()
    if cluster is None or not (cluster.has_kwok and cluster.has_controllers):
        raise Unusable("no cluster with kwok is running on this machine: make cluster starts one.")
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(_turn(cluster))
        api = await stack.enter_async_context(cluster.api())
        kubelet = await stack.enter_async_context(played_node(cluster, api))
        namespace = await stack.enter_async_context(_namespace(api))
        url = await _database(postgres)
        place = await stack.enter_async_context(installed(cluster, api, namespace, directory))
        quotas = Quotas(core=PLENTY, mint=PLENTY, points_per_minute=PLENTY)
        site = await stack.enter_async_context(kube_site(place, url, quotas=quotas))
        server = await site.server(
            github={"PADDOCK_CONFIG": _config(site)}, PADDOCK_LOG_LEVEL="warning"
        )
        parts = {
            server.pid: PADDOCK,
            postgres.pid: POSTGRES,
            kubelet: "kwok, for kubelets",
            os.getpid(): "those who play pollers, runners and GitHub",
            **_cluster_parts(cluster),
        }
        burst = BurstSite(site, api, parts)
        _count(burst, latency=github_latency)
        await site.pool(size=WARM, provisioning={"maxStarting": WARM}, template=_template())
        kube = await stack.enter_async_context(place.kube())
        watching = asyncio.create_task(burst.watch(kube.fleet))
        try:
            yield burst
        finally:
            watching.cancel()
            await asyncio.gather(watching, *burst.stop(), return_exceptions=True)


def _cluster_parts(cluster: Cluster) -> dict[int, str]:
    names = {"apiserver": "API server", "etcd": "etcd"}
    others = {"scheduler": "scheduler", "controller-manager": "controllers"}
    running = {name: daemon.pid() for name, daemon in cluster.daemons.items()}
    return {pid: name for each, name in {**names, **others}.items() if (pid := running.get(each))}


def _config(site: KubeSite) -> str:
    """The fake GitHub's App, with quotas that do not bind."""
    path = site.directory / "paddock.toml"
    path.write_text(
        f"""
[[github.apps]]
app_id = {site.app.id}
private_key_file = "{site.directory / "app.pem"}"
webhook_secret = "{SECRET}"
api_url = "{site.github_url}"
points_per_minute = {PLENTY}
requests_per_hour = {PLENTY}
mints_per_hour = {PLENTY}
"""
    )
    return str(path)


def _template() -> dict[str, Any]:
    spec = {"nodeSelector": SELECTOR, "tolerations": [TOLERATION]}
    return template("run", spec=spec)


def _count(burst: BurstSite, *, latency: float) -> None:
    fake = burst.site.fake
    answer = fake.request

    def counted(request: Request) -> Reply:
        burst.github_requests += 1
        reply = answer(request)
        return replace(reply, latency=reply.latency + latency) if latency else reply

    fake.request = counted  # type: ignore[method-assign]


async def _database(postgres: EmbeddedPostgres) -> str:
    async with session(postgres.url_of("postgres")) as connection:
        await connection.execute("CREATE DATABASE burst")
    database = await Database.connect(postgres.url_of("burst"))
    try:
        await migrate(database)
    finally:
        await database.close()
    return postgres.url_of("burst")


@asynccontextmanager
async def _namespace(api: Api) -> AsyncIterator[str]:
    await api.create("/api/v1/namespaces", {"metadata": {"name": NODE}})
    await api.until(f"/api/v1/namespaces/{NODE}/serviceaccounts/default", bool)
    try:
        yield NODE
    finally:
        pods = f"/api/v1/namespaces/{NODE}/pods"
        for pod in (await api.get(pods))["items"]:
            path = f"{pods}/{pod['metadata']['name']}"
            await api.patch(path, {"metadata": {"finalizers": None}})
            await api.delete(path, gracePeriodSeconds=0)
        await api.delete(f"/api/v1/namespaces/{NODE}")


@contextmanager
def _turn(cluster: Cluster) -> Iterator[None]:
    """Tests on the same cluster stop its parts, so the benchmark takes their lock."""
    with cluster.layout.turn.open("a") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for tests on this cluster to end")
            fcntl.flock(turn, fcntl.LOCK_EX)
        yield
