"""Nodes as hosts."""

from __future__ import annotations

from typing import Final

from paddock.domain.limits import Resources
from paddock.domain.pods.pod import Host, Taint
from paddock.domain.pods.quantities import mebibytes, milli
from paddock.fleet.kube.objects import NodeObject

#: Taints of a node that is about to be removed.
_LEAVING: Final = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
_CORDONED: Final = "node.kubernetes.io/unschedulable"
#: Taints of control-plane nodes, which have no capacity for runners, tolerated or not.
_CONTROL_PLANE: Final = frozenset(
    {"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}
)
_REPELS: Final = frozenset({"NoSchedule", "NoExecute"})

#: Conditions that, when true, are reported beside a runner's end.
_PRESSURE: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


#: The condition that `paddock host bootstrap` sets on its host's Node; `paddock.host` repeats the name.
HOST_READY: Final = "PaddockHostReady"
_SYSTEM: Final = "kubernetes.io/os"
_MAC: Final = "darwin"


def host(node: NodeObject) -> Host:
    repelling = [taint for taint in node.spec.taints if taint.effect in _REPELS]
    taints = {taint.key for taint in repelling}
    return Host(
        name=node.metadata.name,
        cordoned=node.spec.unschedulable or _CORDONED in taints,
        deleting=node.metadata.deletion_timestamp is not None or bool(taints & _LEAVING),
        ready=any(
            each.type == "Ready" and each.status == "True" for each in node.status.conditions
        ),
        fault=fault(node),
        capacity=None if taints & _CONTROL_PLANE else _capacity(node.status.allocatable),
        labels=node.metadata.labels,
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in repelling),
    )


def fault(node: NodeObject) -> str | None:
    """What the host's bootstrap reports as wrong. A Mac without a report filters no packets; other
    hosts need no bootstrap."""
    for condition in node.status.conditions:
        if condition.type == HOST_READY:
            if condition.status == "True":
                return None
            return f"{condition.reason or condition.status}: {condition.message or 'no words'}"
    if node.metadata.labels.get(_SYSTEM) == _MAC:
        return "NeverBootstrapped: run `paddock host bootstrap` on it"
    return None


def _capacity(allocatable: dict[str, str]) -> Resources | None:
    """The node's resources for Pods of all kinds. What other Pods use of them is not known here."""
    try:
        return Resources(
            runners=int(allocatable["pods"]),
            vcpu_milli=milli(allocatable["cpu"]),
            memory_mib=mebibytes(allocatable["memory"]),
        )
    except (KeyError, ValueError):
        return None


def troubles(node: NodeObject) -> list[str]:
    """What is wrong with the node, one sentence each."""
    told = []
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            told.append(f"its node is not ready ({condition.reason or condition.status})")
        elif condition.type in _PRESSURE and condition.status == "True":
            told.append(f"its node reports {condition.type} ({condition.message or 'no words'})")
    if wrong := fault(node):
        told.append(f"its node is not fit for runners ({wrong})")
    told += [f"its node is tainted {taint.key}" for taint in node.spec.taints]
    return told
