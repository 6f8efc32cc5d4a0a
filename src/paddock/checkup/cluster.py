"""Kubernetes: whether it answers, whether RunnerPool is there in our version, and what we may do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from paddock.checkup.finding import Finding, failure, ok, warning
from paddock.domain.pools.objects import API_VERSION, GROUP
from paddock.fleet.kube.api import KubeApi, KubeCall, RequestRefused, Resource
from paddock.fleet.kube.settings import KubeSettings
from paddock.fleet.kube.setup import open_kube
from paddock.ports import Clock, FleetUnavailable

_REVIEWS: Final = Resource("selfsubjectaccessreviews", group="authorization.k8s.io")
#: In the runners' namespace: verb, resource, subresource, group.
_NEEDED: Final = (
    *((verb, "pods", "", "") for verb in ("create", "delete", "patch", "list", "watch")),
    ("get", "pods", "log", ""),
    *((verb, "events", "", "") for verb in ("list", "watch")),
    *((verb, "runnerpools", "", GROUP) for verb in ("list", "watch", "patch")),
    ("patch", "runnerpools", "status", GROUP),
)


async def examine_cluster(settings: KubeSettings, clock: Clock) -> AsyncIterator[Finding]:
    try:
        async with open_kube(settings, clock=clock) as kube:
            try:
                pods = await kube.fleet.list()
            except FleetUnavailable as error:
                yield failure(
                    "cluster",
                    str(error),
                    "check the kubeconfig or the ServiceAccount, and the namespace",
                )
                return
            yield ok("cluster", f"it answers; {len(pods.pods)} runner Pods in {settings.namespace}")
            yield await _pool_objects(kube.pools)
            yield await _rights(kube.api, settings.namespace)
            yield examine_network(settings)
    except ValueError as error:
        yield failure("cluster", str(error), "see [kube] in the settings")


def examine_network(settings: KubeSettings) -> Finding:
    """Judged by the settings: paddock may not read network policies."""
    if settings.dispatch_egress == "all":
        return ok("network", "runners reach dispatch for as long as they live")
    if settings.vitals_url:
        return ok(
            "network",
            "runners reach dispatch until they get their owner's label; their vitals go on to "
            f"{settings.vitals_url}",
        )
    return warning(
        "network",
        "runners reach dispatch until they get their owner's label, and their vitals end with it: a "
        "job that dies silently leaves its log alone",
        "let vitals through by a port of their own (PADDOCK_VITALS_LISTEN, PADDOCK_KUBE_VITALS_URL; "
        "network.vitalsEgress in the chart), or accept it",
    )


async def _pool_objects(pools: Any) -> Finding:
    try:
        found = await pools.list()
    except RequestRefused as error:
        if error.absent:
            return failure(
                "RunnerPool",
                f"the cluster does not serve {API_VERSION}",
                "apply the CustomResourceDefinition of this version (deploy/crd.yaml)",
            )
        return failure(
            "RunnerPool", str(error), "apply the roles of this version (deploy/roles.yaml)"
        )
    except FleetUnavailable as error:
        return failure("RunnerPool", str(error), "check the cluster")
    return ok("RunnerPool", f"{API_VERSION} is served; {len(found.pools)} objects")


async def _rights(api: KubeApi, namespace: str) -> Finding:
    denied = []
    for verb, resource, sub, group in _NEEDED:
        asked = {
            "namespace": namespace,
            "verb": verb,
            "resource": resource,
            "subresource": sub,
            "group": group,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        try:
            answer = await api.send("POST", KubeCall("create", _REVIEWS), body, dict[str, Any])
        except FleetUnavailable as error:
            return failure("rights", str(error), "check the cluster")
        if not answer.get("status", {}).get("allowed"):
            denied.append(f"{verb} {resource}{f'/{sub}' if sub else ''}")
    if denied:
        return failure(
            "rights",
            f"we may not {', '.join(denied)} in {namespace}",
            "apply the roles of this version (deploy/roles.yaml)",
        )
    return ok("rights", f"we may do in {namespace} what we have to")
