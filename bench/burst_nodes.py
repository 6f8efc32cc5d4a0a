"""A node that kwok keeps, with Pods of paddock's shape that wait for work as on a real node.

This kwok is not the cluster's own, and has its own stages. The cluster's kwok runs Pods at once, and
removes finalizers.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tools.cluster.api import Api
from tools.cluster.cluster import Cluster

NODE: Final = f"burst-{os.getpid()}"
SELECTOR: Final = {"paddock.dev/burst": NODE}
TOLERATION: Final = {"key": "paddock.dev/burst", "operator": "Exists"}
_ROOM: Final = {"cpu": "10000", "memory": "40Ti", "pods": "2000"}

_ALIVE: Final = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
_LEAVING: Final = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}


def _stage(
    name: str, expressions: list[dict[str, Any]], following: dict[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": expressions},
            "next": following,
        },
    }


_POLLS: Final = """
{{ $now := Now }}
phase: Pending
podIP: 10.0.0.1
startTime: {{ $now | Quote }}
conditions:
- {type: PodReadyToStartContainers, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Initialized, status: "False", lastTransitionTime: {{ $now | Quote }}}
initContainerStatuses:
- name: pull
  image: none
  imageID: none
  ready: true
  restartCount: 0
  state:
    terminated:
      exitCode: 0
      reason: Completed
      startedAt: {{ $now | Quote }}
      finishedAt: {{ $now | Quote }}
- name: poller
  image: none
  imageID: none
  ready: false
  restartCount: 0
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
- name: vitals
  image: none
  imageID: none
  ready: false
  restartCount: 0
  state: {waiting: {reason: PodInitializing}}
containerStatuses:
- name: runner
  image: none
  imageID: none
  ready: false
  restartCount: 0
  state: {waiting: {reason: PodInitializing}}
"""

_STAGES: Final = (
    _stage(
        "polls",
        [_ALIVE, {"key": ".status.podIP", "operator": "DoesNotExist"}],
        {"statusTemplate": _POLLS},
    ),
    _stage(
        "stops",
        [_LEAVING, {"key": ".status.phase", "operator": "In", "values": ["Pending", "Running"]}],
        {"statusTemplate": "phase: Failed\n"},
    ),
    _stage(
        "is-let-go",
        [_LEAVING, {"key": ".status.phase", "operator": "In", "values": ["Failed", "Succeeded"]}],
        {"delete": True},
    ),
)


@asynccontextmanager
async def played_node(cluster: Cluster, api: Api) -> AsyncIterator[int]:
    """Runs the kwok process that keeps the node; yields its pid."""
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "kwok.yaml"
        config.write_text(yaml.safe_dump_all(_STAGES))
        process = await asyncio.create_subprocess_exec(
            cluster.facts.programs["kwok"],
            f"--kubeconfig={cluster.kubeconfig}",
            f"--config={config}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-label-selector=paddock.dev/burst={NODE}",
            "--node-lease-duration-seconds=40",
            env={**os.environ, "KWOK_WORKDIR": name},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await api.create("/api/v1/nodes", _node())
            await api.until(f"/api/v1/nodes/{NODE}", _is_ready)
            yield process.pid
        finally:
            await api.delete(f"/api/v1/nodes/{NODE}")
            process.terminate()
            await process.wait()


def _node() -> dict[str, object]:
    return {
        "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE, **SELECTOR}},
        "spec": {"taints": [{"key": "paddock.dev/burst", "value": "x", "effect": "NoSchedule"}]},
        "status": {"allocatable": _ROOM, "capacity": _ROOM},
    }


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
