"""paddock's parts on the real cluster, with the rights that `deploy/` gives them and no others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import PodOrder
from paddock.fleet.kube.settings import KubeSettings
from paddock.fleet.kube.setup import Kube, open_kube
from paddock.system import SystemClock
from tools.cluster.api import Api, Refused
from tools.cluster.cluster import Cluster
from tools.cluster.images import AGENT, BUSYBOX, RUNNER
from tools.cluster.rootfs import SOURCE

DEPLOY = Path(__file__).parents[2] / "deploy"
AGENT_COMMAND = f"python3 -I -S {SOURCE}/paddock/agent"
Json = dict[str, Any]

PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


@dataclass(frozen=True)
class Installed:
    """`namespace` is both the server's and the runners'; a test has one."""

    cluster: Cluster
    api: Api
    namespace: str
    kubeconfig: Path

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def pools(self) -> str:
        return f"/apis/paddock.dev/v1alpha1/namespaces/{self.namespace}/runnerpools"

    def settings(self, **more: Any) -> KubeSettings:
        given: Json = {
            "namespace": self.namespace,
            "agent_image": AGENT,
            "agent_command": AGENT_COMMAND,
            "server_url": f"http://{self.cluster.host_address}:1",
            "kubeconfig": self.kubeconfig,
        }
        return KubeSettings(**given | more)

    @asynccontextmanager
    async def kube(self, **more: Any) -> AsyncIterator[Kube]:
        async with open_kube(self.settings(**more), clock=SystemClock()) as kube:
            yield kube


@asynccontextmanager
async def installed(
    cluster: Cluster, api: Api, namespace: str, directory: Path
) -> AsyncIterator[Installed]:
    """Everything of `deploy/`, for this namespace."""
    of_cluster = []
    for file in ("crd.yaml", "roles.yaml", "disruption-budget.yaml"):
        for document in yaml.safe_load_all(_moved((DEPLOY / file).read_text(), namespace)):
            if document["kind"] in ("ClusterRole", "ClusterRoleBinding"):
                document["metadata"]["name"] = namespace
                if "roleRef" in document:
                    document["roleRef"]["name"] = namespace
            path = PATHS[document["kind"]].format(namespace=namespace)
            name = document["metadata"]["name"]
            await api.apply(f"{path}/{name}", document)
            if document["kind"] in ("ClusterRole", "ClusterRoleBinding"):
                of_cluster.append(f"{path}/{name}")
    crd = f"{PATHS['CustomResourceDefinition']}/runnerpools.paddock.dev"
    await api.until(crd, _established)
    kubeconfig = await cluster.kubeconfig_of(namespace, "paddock", directory / "kubeconfig")
    place = Installed(cluster, api, namespace, kubeconfig)
    await api.until(place.pools, bool)
    try:
        yield place
    finally:
        await _let_pools_go(place)
        for path in of_cluster:
            await api.delete(path)


def _moved(text: str, namespace: str) -> str:
    for own in ("paddock-runners", "paddock"):
        text = text.replace(f"namespace: {own}\n", f"namespace: {namespace}\n")
    return text


def _established(crd: Json) -> bool:
    conditions = crd.get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


async def _let_pools_go(place: Installed) -> None:
    for pool in (await place.api.get(place.pools))["items"]:
        try:
            path = f"{place.pools}/{pool['metadata']['name']}"
            await place.api.patch(path, {"metadata": {"finalizers": None}})
        except Refused as refused:
            if refused.status != 404:
                raise


def template(
    *command: str, image: str = BUSYBOX, spec: Json | None = None, **container: Any
) -> Json:
    """A Pod template whose runner runs this command."""
    runner = {"name": "runner", "image": image, "imagePullPolicy": "Never", **container}
    if command:
        runner["command"] = list(command)
    quick = {"terminationGracePeriodSeconds": 3, "containers": [runner]}
    return {"spec": {**quick, **(spec or {})}}


def runner_template(**container: Any) -> Json:
    """With the fake runner, where images for runners have the real one."""
    return template(image=RUNNER, **container)


def order(name: str, described: Json, *, pool: str = "linux", **more: Any) -> PodOrder:
    """`described` is the pool's own description."""
    return PodOrder(
        runner=RunnerId(uuid4()),
        name=PodName(name),
        pool=pool,
        spec=json.dumps({"labels": ["linux"], **described}),
        **more,
    )
