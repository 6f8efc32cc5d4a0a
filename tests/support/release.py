"""paddock installed by its chart on the real cluster, with its own image, under its own rights."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from paddock.fakes.github import FakeGitHub, JobSpec
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.records import App, Repository
from paddock.fakes.github.server import serving, wall_clock
from paddock.store.database import Database
from tests.support.chart import CHART, Json, helm, merged
from tests.support.forwarding import KUBERNETES, addresses, always, forwarded, service
from tests.support.gate import Gate, gate
from tests.support.kube import runner_template
from tests.support.next_release import write_next_release
from tests.support.webhooks import PATH
from tools.cluster.api import Api
from tools.cluster.archives import write_archive
from tools.cluster.cluster import Cluster
from tools.cluster.node import ctr
from tools.image.building import image
from tools.image.description import CHECKOUT

LABELS = ("self-hosted", "linux")
SECRET = "secret"
REPOSITORY = "paddock.test/paddock"
#: The present program, and a possible next release.
NOW, NEXT = "now", "next"
#: The start of two servers and three containers, on a machine with other load.
PATIENCE = 300.0
#: The Service's address, from the part of the range that is not assigned automatically.
ADDRESS = "10.242.0.9"

_KEY = make_private_key()
_numbers = itertools.count()

POOL: Json = {
    "labels": list(LABELS),
    "template": runner_template(),
    "minIdle": 1,
    "stabilisationWindow": "0s",
}


@dataclass
class Release:
    cluster: Cluster
    api: Api
    namespace: str
    runners: str
    values: Json
    database: Database
    fake: FakeGitHub
    app: App
    repository: Repository
    directory: Path
    secrets: dict[str, dict[str, str]]
    #: Holds jobs until the test lets them end.
    gate: Gate

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.runners}/pods"

    @property
    def servers(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def pools(self) -> str:
        return f"/apis/paddock.dev/v1alpha1/namespaces/{self.runners}/runnerpools"

    @property
    def deployment(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/paddock"

    async def install(self, **values: Any) -> None:
        self.values = merged(self.values, **values)
        await _make_secrets(self.api, self.namespace, self.secrets)
        await self.helm("install", "paddock", str(CHART), "--values", self._file())
        await self.until_rolled_out()

    async def try_install(self) -> None:
        file = self._file()
        await self.helm("install", "paddock", str(CHART), "--values", file, "--dry-run=server")

    async def upgrade(self, **values: Any) -> None:
        self.values = merged(self.values, **values)
        await self.helm("upgrade", "paddock", str(CHART), "--values", self._file())
        await self.until_rolled_out()

    async def roll_back(self) -> None:
        await self.helm("rollback", "paddock")
        await self.until_rolled_out()

    async def uninstall(self) -> None:
        await self.helm("uninstall", "paddock", "--timeout", "10m")

    def _file(self) -> str:
        file = self.directory / "values.yaml"
        file.write_text(yaml.safe_dump(self.values))
        return str(file)

    async def helm(self, *arguments: str) -> str:
        program = helm()
        assert program is not None
        process = await asyncio.create_subprocess_exec(
            str(program),
            *arguments,
            *("--namespace", self.namespace, "--kubeconfig", str(self.cluster.kubeconfig)),
            env={**os.environ, "HELM_CACHE_HOME": str(self.directory / "helm")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await process.communicate())[0].decode()
        assert process.returncode == 0, f"{said}\n{await self.logs()}"
        return said

    async def until_rolled_out(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not _rolled_out(await self.api.get(self.deployment)):
                await asyncio.sleep(0.2)
                servers = (await self.api.get(self.servers))["items"]
                assert not any(map(_fails, servers)), await self.logs()

    async def logs(self) -> str:
        parts = []
        for pod in (await self.api.get(self.servers))["items"]:
            name = pod["metadata"]["name"]
            container = pod["spec"]["containers"][0]["name"]
            try:
                said = await self.api.log(self.namespace, name, container)
            except Exception as error:
                said = str(error)
            parts.append(f"--- {name} {pod['status'].get('phase')}\n{said[-4000:]}")
        return "\n".join(parts)

    def queue(self, **job: Any) -> None:
        self.fake.jobs.queue_run(self.repository, [JobSpec(labels=LABELS, **job)])

    async def rows(self, query: str, *args: object) -> list[tuple[Any, ...]]:
        async with self.database.transaction() as connection:
            return [tuple(row) for row in await connection.fetch(query, *args)]

    async def until(self, query: str, *args: object) -> Any:
        """The query's one value, as soon as it exists."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while asyncio.get_running_loop().time() < deadline:
            for (value,) in await self.rows(query, *args):
                if value:
                    return value
            await asyncio.sleep(0.1)
        runners = await self.rows("SELECT pod_name, state, since, why FROM runners")
        raise AssertionError(f"{query}\n{runners}\n{await self.logs()}")


def _rolled_out(deployment: Json) -> bool:
    spec, status = deployment["spec"], deployment.get("status", {})
    return bool(
        status.get("observedGeneration") == deployment["metadata"]["generation"]
        and status.get("updatedReplicas") == spec["replicas"]
        and status.get("availableReplicas") == spec["replicas"]
        and status.get("replicas") == spec["replicas"]
    )


def _fails(pod: Json) -> bool:
    statuses = pod["status"].get("containerStatuses") or ()
    return any(each["restartCount"] > 1 for each in statuses)


def import_images(cluster: Cluster, directory: Path) -> None:
    """The present program, and a possible next release: newer, with one more migration."""
    newer = directory / "newer"
    write_next_release(newer)
    archive = directory / "paddock.tar"
    images = [image(f"{REPOSITORY}:{NOW}"), image(f"{REPOSITORY}:{NEXT}", checkout=newer)]
    write_archive(archive, images)
    ctr(cluster.layout, "images", "import", str(archive))
    archive.unlink()


@asynccontextmanager
async def released(
    cluster: Cluster, api: Api, namespace: str, directory: Path, database_url: str
) -> AsyncIterator[Release]:
    """All that the chart needs around it; the test calls `install`."""
    runners = f"{namespace}-runners"
    fake = FakeGitHub(now=wall_clock, rng=Random(next(_numbers)))
    host = cluster.host_address
    async with AsyncExitStack() as stack:
        stack.enter_context(addresses(KUBERNETES[0], ADDRESS))
        apiserver = always(("127.0.0.1", cluster.facts.ports.api))
        await stack.enter_async_context(forwarded(*KUBERNETES, apiserver))
        database_port = await stack.enter_async_context(
            forwarded(host, 0, always(_socket(database_url)))
        )
        url = await stack.enter_async_context(serving(fake, host=host))
        plain = always((host, int(url.rpartition(":")[2])))
        github_port = await stack.enter_async_context(
            forwarded(host, 0, plain, tls=_certificate(cluster))
        )
        database = await Database.connect(database_url, application_name="test")
        stack.push_async_callback(database.close)
        app = fake.accounts.add_app(
            "paddock", public_keys=[public_half(_KEY)], webhook_secret=SECRET
        )
        acme = fake.accounts.add_organization("acme")
        repository = fake.accounts.add_repository(acme, "site")
        # The permissions that the App is created with, and no more.
        manifest = json.loads((CHECKOUT / "deploy" / "github-app.json").read_text())
        fake.accounts.install(app, acme, permissions=manifest["default_permissions"])
        app.webhook_url = f"http://{ADDRESS}:8787{PATH}"
        name = urlsplit(database_url).path.lstrip("/")
        secrets = {
            "paddock-database": {"url": f"postgresql://paddock@{host}:{database_port}/{name}"},
            "paddock-sealing": {"keys": base64.b64encode(b"1" * 32).decode()},
            "paddock-github": {"private-key.pem": _KEY, "webhook-secret": SECRET},
        }
        held = await stack.enter_async_context(gate(host))
        values = _values(runners, app, f"https://{host}:{github_port}")
        # Jobs also reach the fake GitHub and the gate where policies are enforced.
        needed = [int(each.rpartition(":")[2]) for each in (url, held.url)]
        values["network"] = {"allowed": [{"cidr": f"{host}/32", "ports": needed}]}
        release = Release(
            cluster,
            api,
            namespace,
            runners,
            values,
            database,
            fake,
            app,
            repository,
            directory,
            secrets,
            held,
        )
        stack.push_async_callback(_clean_up, release)
        yield release


@asynccontextmanager
async def reachable(release: Release) -> AsyncIterator[None]:
    """Its Service, for Pods and for GitHub."""
    async with service(release.api, release.namespace, "paddock", ADDRESS):
        yield


def _values(runners: str, app: App, github: str) -> Json:
    return {
        "image": {"repository": REPOSITORY, "tag": NOW, "pullPolicy": "Never"},
        "database": {"secretName": "paddock-database"},
        "sealing": {"secretName": "paddock-sealing"},
        "github": {"apps": [{"appId": app.id, "secretName": "paddock-github", "apiUrl": github}]},
        "server": {
            "trustConfigMap": "kube-root-ca.crt",
            "drainSeconds": 3,
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        },
        "service": {"clusterIP": ADDRESS},
        # The test's cluster has no resolver.
        "runners": {
            "namespace": runners,
            "serverUrl": f"http://{ADDRESS}:8788",
            "vitalsUrl": f"http://{ADDRESS}:8789",
        },
        "pools": {"linux": POOL},
    }


def _socket(database_url: str) -> Path:
    place = parse_qs(urlsplit(database_url).query)
    return Path(place["host"][0]) / f".s.PGSQL.{place['port'][0]}"


def _certificate(cluster: Cluster) -> ssl.SSLContext:
    """The API server's own serves for this address too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pki = cluster.layout.pki
    context.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
    return context


async def _make_secrets(api: Api, namespace: str, secrets: dict[str, dict[str, str]]) -> None:
    for name, content in secrets.items():
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": content,
        }
        await api.create(f"/api/v1/namespaces/{namespace}/secrets", body)


async def _clean_up(release: Release) -> None:
    """Removes all that a test has left, so that its namespaces can be deleted."""
    program = helm()
    assert program is not None
    await _quietly(
        str(program),
        *("uninstall", "paddock", "--no-hooks", "--ignore-not-found"),
        *("--namespace", release.namespace, "--kubeconfig", str(release.cluster.kubeconfig)),
    )
    api = release.api
    if not await api.exists(f"/api/v1/namespaces/{release.runners}"):
        return
    for path in (release.pools, release.pods):
        if not await api.exists(path):
            continue
        for each in (await api.get(path))["items"]:
            where = f"{path}/{each['metadata']['name']}"
            if await api.exists(where):
                await api.patch(where, {"metadata": {"finalizers": None}})
    await api.delete(f"/api/v1/namespaces/{release.runners}")


async def _quietly(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    await process.wait()


def names(objects: Sequence[Json]) -> list[str]:
    return sorted(each["metadata"]["name"] for each in objects)
