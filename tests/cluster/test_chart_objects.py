"""A real API server checks every object of the chart, for values of many kinds."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.pools import crd
from tests.support.chart import VALUES, helm, rendered
from tools.cluster.api import Api, Refused

Json = dict[str, Any]

#: Where each kind is. The API server knows nothing of the Prometheus operator's and cert-manager's.
PLACES = {
    "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "Ingress": "apis/networking.k8s.io/v1/namespaces/{}/ingresses",
    "Job": "apis/batch/v1/namespaces/{}/jobs",
    "Namespace": "api/v1/namespaces",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "RunnerPool": "apis/paddock.dev/v1alpha1/namespaces/{}/runnerpools",
    "Secret": "api/v1/namespaces/{}/secrets",
    "Service": "api/v1/namespaces/{}/services",
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
}
OF_OTHERS = ("Certificate", "PodMonitor", "PrometheusRule")


@pytest.fixture
async def definition(api: Api) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/runnerpools.paddock.dev"
    await api.apply(path, crd.definition())
    await api.until("/apis/paddock.dev/v1alpha1", lambda found: found["resources"])


@pytest.mark.usefixtures("definition")
@pytest.mark.parametrize("name", VALUES)
async def test_the_api_server_takes_every_object(api: Api, namespace: str, name: str) -> None:
    """A server-side apply as a dry run; the server must know every field."""
    if helm() is None:
        pytest.skip("there is no helm: `python -m tools.cluster build helm` builds it")
    for each in rendered(VALUES[name], namespace=namespace):
        if each["kind"] in OF_OTHERS:
            continue
        if each["metadata"].get("namespace"):
            each["metadata"]["namespace"] = namespace
        path = f"/{PLACES[each['kind']].format(namespace)}/{each['metadata']['name']}"
        query = {
            "dryRun": "All",
            "fieldManager": "test",
            "fieldValidation": "Strict",
            "force": "true",
        }
        try:
            await api.request(
                "PATCH", path, each, content_type="application/apply-patch+yaml", query=query
            )
        except Refused as refused:
            pytest.fail(f"{each['kind']} {each['metadata']['name']}: {refused}")
