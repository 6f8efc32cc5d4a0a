"""The parts of a fleet on Kubernetes, from its settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from paddock.fleet.kube.api import KubeApi, configured
from paddock.fleet.kube.fleet import KubeFleet
from paddock.fleet.kube.pool_objects import KubePools
from paddock.fleet.kube.review_limits import CONNECTIONS
from paddock.fleet.kube.reviewer import KubeReviewer
from paddock.fleet.kube.settings import KubeSettings
from paddock.fleet.kube.shapes import Placement
from paddock.ports import Clock


@dataclass(frozen=True, slots=True)
class Kube:
    api: KubeApi
    fleet: KubeFleet
    reviewer: KubeReviewer
    pools: KubePools


def placement(settings: KubeSettings) -> Placement:
    """Raises ValueError that names the missing settings."""
    if settings.agent_image is None or settings.server_url is None:
        raise ValueError(
            "Runners' Pods cannot be made: set PADDOCK_KUBE_AGENT_IMAGE to paddock's own image and "
            "PADDOCK_KUBE_SERVER_URL to where Pods find this server"
        )
    return Placement(
        namespace=settings.namespace,
        service_account=settings.service_account,
        agent_image=settings.agent_image,
        agent_command=settings.command,
        server=settings.server_url,
        vitals=settings.vitals_url,
        ca_config_map=settings.server_ca,
        token_audiences=settings.audiences,
    )


@asynccontextmanager
async def open_kube(settings: KubeSettings, *, clock: Clock) -> AsyncIterator[Kube]:
    """Raises ValueError if a setting is missing. Does not check that the cluster answers."""
    placed = placement(settings)
    config = configured(settings.kubeconfig)
    api = KubeApi.connected(config)
    reviews = KubeApi.connected(config, connections=CONNECTIONS)
    fleet = KubeFleet(api, placed, clock=clock, node_selector=settings.node_selector)
    try:
        yield Kube(
            api=api,
            fleet=fleet,
            reviewer=KubeReviewer(
                reviews,
                namespace=settings.namespace,
                service_account=settings.service_account,
                clock=clock,
            ),
            pools=KubePools(api, namespace=settings.namespace),
        )
    finally:
        await fleet.aclose()
        await reviews.aclose()
        await api.aclose()
