"""Which hosts a pool's Pods may be put on, and which new Pods keep away from.

Pools share the room of the existing hosts. But a Linux Pod cannot use a Mac, and a pool of Macs whose
hosts are all unfit must not count the room of other hosts. Two of the scheduler's rules set hosts apart
for pools: the labels a Pod selects, and the taints it tolerates. Affinity is not read, nor what a
RuntimeClass adds: a pool may seem to have a host that it cannot use, but never lacks one that it can.

A host that is Ready may still be unable to start Pods. One that was out of cgroups took every Pod its
scheduler gave it and started none, while 111 jobs waited for hours (I51). So a host with repeated
failed starts is avoided for a while. This is a preference, for a minority of the hosts at most, and
never because of an image, which fails on every host alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

import msgspec

from paddock.domain.ids import PoolId
from paddock.domain.pods.pod import Host, Taint

#: These taints report a host's state, which is judged separately. They do not set it apart for pools.
_STATES: Final = "node.kubernetes.io/"


class Toleration(msgspec.Struct, frozen=True):
    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Without a key it covers all taints, without an effect all effects of its key."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class NodeConstraints(msgspec.Struct, frozen=True, rename="camel"):
    """What a pool's template says of where its Pods may be."""

    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    #: A RuntimeClass may add tolerations, which only the API server knows.
    runtime_class_name: str | None = None

    @staticmethod
    def of(spec: str) -> NodeConstraints:
        """From a pool's description. One that cannot be read is taken as empty: no Pods are made from
        it."""
        try:
            described = msgspec.json.decode(spec, type=_Described)
        except msgspec.MsgspecError:
            return NodeConstraints()
        return described.template.spec if described.template else NodeConstraints()

    def admit(self, host: Host) -> bool:
        if any(host.labels.get(key) != value for key, value in self.node_selector.items()):
            return False
        return self.runtime_class_name is not None or all(
            any(toleration.covers(taint) for toleration in self.tolerations)
            for taint in host.taints
            if not taint.key.startswith(_STATES)
        )


class _Template(msgspec.Struct, frozen=True):
    spec: NodeConstraints = NodeConstraints()


class _Described(msgspec.Struct, frozen=True):
    template: _Template | None = None


def sharing(
    pools: Mapping[PoolId, NodeConstraints], hosts: Iterable[Host]
) -> list[tuple[frozenset[PoolId], Sequence[Host]]]:
    """Pools that share at least one host, directly or through others, with all the hosts they share.
    A pool without any host stands alone."""
    groups: list[tuple[set[PoolId], dict[str, Host]]] = []
    all_hosts = list(hosts)
    for pool, wanted in pools.items():
        pools_here = {pool}
        hosts_here = {host.name: host for host in all_hosts if wanted.admit(host)}
        apart = []
        for others, theirs in groups:
            if hosts_here.keys() & theirs.keys():
                pools_here |= others
                hosts_here |= theirs
            else:
                apart.append((others, theirs))
        groups = [*apart, (pools_here, hosts_here)]
    return [(frozenset(those), tuple(theirs.values())) for those, theirs in groups]


#: One failed start is an accident, two are bad luck.
REPEATED: Final = 3
#: Then it gets another chance: a host that is still broken costs three more Pods.
REMEMBERED: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailures:
    """Starts that failed on a host since the last one there that did not."""

    host: str
    count: int


def hosts_to_avoid(failures: Iterable[StartFailures], hosts: Collection[Host]) -> tuple[str, ...]:
    """The worst first, and only a minority: where most hosts fail, the hosts are not the cause."""
    usable = {host.name for host in hosts if host.ready and not host.leaving}
    failing = [each for each in failures if each.count >= REPEATED and each.host in usable]
    minority = max(0, (len(usable) - 1) // 2)
    failing.sort(key=lambda each: (-each.count, each.host))
    return tuple(each.host for each in failing[:minority])
