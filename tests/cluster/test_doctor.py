"""`paddock doctor` on a real cluster, with the rights of `deploy/roles.yaml` and with fewer."""

from __future__ import annotations

from pathlib import Path

from paddock.checkup.cluster import examine_cluster
from paddock.checkup.finding import CheckResult, Finding
from paddock.fleet.kube.settings import KubeSettings
from paddock.system import SystemClock
from tests.support.kube import installed
from tools.cluster.api import Api
from tools.cluster.cluster import Cluster


async def examined(settings: KubeSettings) -> dict[str, Finding]:
    return {each.about: each async for each in examine_cluster(settings, SystemClock())}


async def test_what_is_installed_as_described_is_well(
    cluster: Cluster, api: Api, namespace: str, tmp_path: Path
) -> None:
    async with installed(cluster, api, namespace, tmp_path) as place:
        found = await examined(place.settings())
    assert {each.health for each in found.values()} == {CheckResult.OK}, found
    assert "paddock.dev/v1alpha1 is served" in found["RunnerPool"].what


async def test_rights_that_are_missing_are_named(
    cluster: Cluster, api: Api, namespace: str, tmp_path: Path
) -> None:
    async with installed(cluster, api, namespace, tmp_path) as place:
        role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles"
        [paddocks] = [
            each for each in (await api.get(role))["items"] if each["metadata"]["name"] == "paddock"
        ]
        rules = [
            {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]}
            for rule in paddocks["rules"]
        ]
        await api.patch(f"{role}/paddock", {"rules": rules})
        found = await examined(place.settings())
    assert found["rights"].health is CheckResult.FAILED
    assert f"we may not create pods in {namespace}" in found["rights"].what
    assert found["rights"].remedy == "apply the roles of this version (deploy/roles.yaml)"


async def test_a_cluster_that_cannot_be_reached_is_said_to_be(tmp_path: Path) -> None:
    nowhere = KubeSettings(
        agent_image="x", server_url="http://x:1", kubeconfig=tmp_path / "none.kubeconfig"
    )
    found = await examined(nowhere)
    assert found["cluster"].health is CheckResult.FAILED
