"""Features of the test cluster, and of Kubernetes itself, that other tests and paddock rely on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from paddock.fleet.kube.reviews import review_request
from paddock.fleet.kube.token_claims import AUDIENCES
from tools.cluster.api import Api, Json, Refused
from tools.cluster.cluster import Cluster
from tools.cluster.errors import ClusterError
from tools.cluster.fake_nodes import SELECTOR, TOLERATION, FakeNodes
from tools.cluster.images import AGENT, BUSYBOX, RUNNER, busybox
from tools.cluster.registry import Registry

DISPATCH, VITALS = AUDIENCES
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def container(name: str, *script: str, **more: Any) -> Json:
    command = ["/bin/sh", "-c", "; ".join(script)]
    return {"name": name, "image": BUSYBOX, "command": command} | more


def pod(name: str, containers: Sequence[Json], **spec: Any) -> Json:
    defaults = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    return {"metadata": {"name": name}, "spec": {"containers": containers, **defaults, **spec}}


def has_ended(found: Mapping[str, Any]) -> bool:
    return found.get("status", {}).get("phase") in ("Succeeded", "Failed")


def terminated(found: Mapping[str, Any], name: str) -> Json:
    status = found["status"]
    every = status.get("initContainerStatuses", []) + status["containerStatuses"]
    state: Json = next(each["state"]["terminated"] for each in every if each["name"] == name)
    return state


def says(reason: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda events: any(each["reason"] == reason for each in events["items"])


async def run_pod(api: Api, namespace: str, body: Mapping[str, Any]) -> Json:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await api.create(pods, body)
    return await api.until(f"{pods}/{body['metadata']['name']}", has_ended)


async def test_init_containers_run_in_order_beside_a_sidecar(
    api: Api, namespace: str, node: str
) -> None:
    """The gated shape: the sidecar sees its Pod to the end and does not keep it alive."""
    shared = {"volumeMounts": [{"name": "stage", "mountPath": "/stage"}]}
    body = pod(
        "gated",
        [container("runner", "cat /stage/order", "exit 7", **shared)],
        initContainers=[
            container("pull", "echo pulled >> /stage/order", **shared),
            container("poll", "echo polled >> /stage/order", **shared),
            container("vitals", "sleep 1000", restartPolicy="Always", **shared),
        ],
        volumes=[{"name": "stage", "emptyDir": {"medium": "Memory"}}],
    )
    found = await run_pod(api, namespace, body)
    assert found["status"]["phase"] == "Failed"
    assert found["spec"]["nodeName"] == node
    assert terminated(found, "runner")["exitCode"] == 7
    assert await api.log(namespace, "gated", "runner") == "pulled\npolled\n"


async def test_a_container_that_takes_too_much_memory_is_oom_killed(
    api: Api, namespace: str, node: str
) -> None:
    limits = {"limits": {"memory": "32Mi"}}
    body = pod("greedy", [container("runner", "tail /dev/zero", resources=limits)])
    ended = terminated(await run_pod(api, namespace, body), "runner")
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


async def test_the_agent_and_the_fake_runner_start_in_their_images(
    api: Api, namespace: str, node: str
) -> None:
    """As user nobody, without capabilities, on a read-only root file system."""
    security = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    parts: list[Json] = [
        {"name": "agent", "image": AGENT, "args": ["--help"], "securityContext": security},
        {"name": "runner", "image": RUNNER, "securityContext": security},
    ]
    found = await run_pod(api, namespace, pod("images", parts))
    assert terminated(found, "agent")["exitCode"] == 0
    assert "usage: python -m paddock.agent" in await api.log(namespace, "images", "agent")
    assert terminated(found, "runner")["exitCode"] != 0
    assert "Runner is not configured" in await api.log(namespace, "images", "runner")


async def test_an_image_is_pulled_while_its_container_waits(
    api: Api, namespace: str, node: str, registry: Registry
) -> None:
    registry.hold()
    image = registry.push(busybox(), f"tests/{namespace}")
    path = f"/api/v1/namespaces/{namespace}/pods/slow"
    await api.create(path.removesuffix("/slow"), pod("slow", [container("runner", image=image)]))
    await api.until(f"/api/v1/namespaces/{namespace}/events", says("Pulling"))
    (status,) = (await api.get(path))["status"]["containerStatuses"]
    assert status["state"]["waiting"]["reason"] == "ContainerCreating"
    registry.release()
    assert terminated(await api.until(path, has_ended), "runner")["exitCode"] == 0


async def test_a_pod_reaches_a_server_on_this_machine(
    cluster: Cluster, api: Api, namespace: str, node: str
) -> None:
    url = f"https://{cluster.host_address}:{cluster.facts.ports.kubelet}/healthz"
    body = pod("visitor", [container("runner", f"wget -O- --no-check-certificate {url} 2>&1")])
    await run_pod(api, namespace, body)
    # The kubelet: its port is open to all clients, and it refuses all their requests.
    assert "401 Unauthorized" in await api.log(namespace, "visitor", "runner")


async def test_a_projected_token_is_vouched_for_with_its_pod_and_audience(
    api: Api, namespace: str, node: str
) -> None:
    token = {"serviceAccountToken": {"audience": DISPATCH, "path": "token"}}
    body = pod(
        "poller",
        [
            container(
                "poll",
                "cat /token/token",
                volumeMounts=[{"name": "token", "mountPath": "/token"}],
            )
        ],
        volumes=[{"name": "token", "projected": {"sources": [token]}}],
        automountServiceAccountToken=False,
    )
    found = await run_pod(api, namespace, body)
    status = await review(api, await api.log(namespace, "poller", "poll"))
    assert status["authenticated"] is True
    assert status["audiences"] == [DISPATCH]
    assert status["user"]["username"] == f"system:serviceaccount:{namespace}:default"
    extra = status["user"]["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["poller"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [found["metadata"]["uid"]]


async def test_a_token_for_another_audience_is_not_vouched_for(api: Api, namespace: str) -> None:
    account = {"metadata": {"name": "an-account"}}
    await api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    status = await review(
        api, await api.token(namespace, "an-account", audiences=["another-audience"])
    )
    assert not status.get("authenticated")
    assert "audiences" in status["error"]


async def test_a_definition_with_server_side_apply_and_finalizers(api: Api, namespace: str) -> None:
    group = f"{namespace}.paddock.test"
    await api.create(CRDS, definition(group))
    try:
        await api.until(f"{CRDS}/things.{group}", is_established)
        things = f"/apis/{group}/v1/namespaces/{namespace}/things"
        thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "one"}}
        await api.apply(f"{things}/one", thing | {"spec": {"size": 1}}, manager="a")
        await api.apply(f"{things}/one", thing | {"spec": {"colour": "red"}}, manager="b")
        assert (await api.get(f"{things}/one"))["spec"] == {"size": 1, "colour": "red"}

        await api.patch(f"{things}/one", {"metadata": {"finalizers": ["paddock.test/held"]}})
        await api.delete(f"{things}/one")
        assert (await api.get(f"{things}/one"))["metadata"]["deletionTimestamp"]
        await api.patch(f"{things}/one", {"metadata": {"finalizers": None}})
        assert not await api.exists(f"{things}/one")
    finally:
        await api.delete(f"{CRDS}/things.{group}")


async def test_a_fake_node_takes_a_hundred_pods(
    api: Api, namespace: str, fake_nodes: FakeNodes
) -> None:
    (fake,) = await fake_nodes.make()
    for number in range(100):
        body = pod(
            f"fake-{number}", [container("runner")], nodeSelector=SELECTOR, tolerations=[TOLERATION]
        )
        await api.create(f"/api/v1/namespaces/{namespace}/pods", body)

    def all_run(found: Mapping[str, Any]) -> bool:
        return [each["status"]["phase"] for each in found["items"]] == ["Running"] * 100

    found = await api.until(f"/api/v1/namespaces/{namespace}/pods", all_run)
    assert {each["spec"]["nodeName"] for each in found["items"]} == {fake}


async def test_a_service_account_may_do_what_its_role_says_and_no_more(
    cluster: Cluster, api: Api, namespace: str, tmp_path: Path
) -> None:
    account = {"metadata": {"name": "reader"}}
    await api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    await api.create(f"{rights}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    await api.create(
        f"{rights}/rolebindings",
        {
            "metadata": {"name": "reader"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "reader",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
        },
    )
    path = await cluster.kubeconfig_of(namespace, "reader", tmp_path / "reader.kubeconfig")
    assert await cluster.kubectl("get", "pods", kubeconfig=path) == ""
    with pytest.raises(ClusterError, match="is forbidden"):
        await cluster.kubectl("get", "secrets", kubeconfig=path)
    async with cluster.api(token=await api.token(namespace, "reader")) as theirs:
        assert (await theirs.get(f"/api/v1/namespaces/{namespace}/pods"))["items"] == []
        with pytest.raises(Refused, match="is forbidden"):
            await theirs.get(f"/api/v1/namespaces/{namespace}/secrets")


async def test_the_api_server_comes_back_with_all_that_was_there(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    await cluster.restart("apiserver")
    assert await api.exists(f"/api/v1/namespaces/{namespace}")


async def test_a_node_that_is_lost_is_missed_and_comes_back(
    cluster: Cluster, api: Api, node: str
) -> None:
    await cluster.stop("kubelet", signal.SIGKILL)
    lost = await api.until(f"/api/v1/nodes/{node}", is_unreachable)
    assert readiness(lost) == "Unknown"
    await cluster.start("kubelet")
    assert readiness(await api.get(f"/api/v1/nodes/{node}")) == "True"


def is_unreachable(node: Mapping[str, Any]) -> bool:
    taints = node["spec"].get("taints", [])
    return any(each["key"] == "node.kubernetes.io/unreachable" for each in taints)


def readiness(node: Mapping[str, Any]) -> str:
    conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
    return str(conditions["Ready"])


async def review(api: Api, token: str) -> Json:
    answer = await api.create(REVIEWS, review_request(token))
    status: Json = answer["status"]
    return status


def definition(group: str) -> Json:
    properties = {"size": {"type": "integer"}, "colour": {"type": "string"}}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties}},
    }
    return {
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def is_established(found: Mapping[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
