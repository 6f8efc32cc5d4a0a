"""The packet-filter rules for virtual machines, as text. The machines run untrusted code inside our
network.

Each of our rules has a label with a digest of all rules. The labels show later whether exactly these
rules are in force, so that a second run need not touch them: while an anchor is flushed, nothing is
filtered.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from paddock.host.configuration import Network

NAME: Final = "paddock.runners"
_MACHINES: Final = "vm_sources"
_INSIDE: Final = "blocked_dst"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    text: str
    #: One label for each of our rules. pf keeps up to 63 characters.
    labels: frozenset[str]
    tables: Mapping[str, frozenset[str]]


def render(network: Network, own: str = "") -> Anchor:
    """`own`: rules of the host's operator. The first matching rule decides, so they go first."""
    tables = {_MACHINES: network.vms, _INSIDE: network.blocked}
    head = "".join(
        f"table <{name}> persist {{ {', '.join(entries)} }}\n" for name, entries in tables.items()
    )
    own = f"{own.rstrip()}\n" if own.strip() else ""
    rules = _rules(network)
    digest = hashlib.sha256("\n".join([head, own, *rules]).encode()).hexdigest()[:16]
    labelled = {f"paddock-{digest}-{number}": rule for number, rule in enumerate(rules, 1)}
    ours = "".join(f'{rule} label "{label}"\n' for label, rule in labelled.items())
    return Anchor(
        text=f"# Written by `paddock host bootstrap`: changes are overwritten.\n{head}{own}{ours}",
        labels=frozenset(labelled),
        tables={
            name: frozenset(map(normal, entries)) for name, entries in tables.items() if entries
        },
    )


def _rules(network: Network) -> list[str]:
    """One rule each, without lists: pfctl then shows each rule as written here, so it can be found."""
    machines = f"from <{_MACHINES}>"
    return [
        *(
            f"pass in quick proto {protocol} {machines} to {resolver} port = {port}"
            for resolver in network.resolvers
            # DNS, and the renewal of a DHCP lease.
            for protocol, port in (("udp", 53), ("tcp", 53), ("udp", 67))
        ),
        *(
            f"pass in quick proto tcp {machines} to {service.address} port = {service.port}"
            for service in network.allowed
        ),
        # The host itself, also at its addresses that are not private.
        f"block return in quick {machines} to self",
        f"block return in quick {machines} to <{_INSIDE}>",
        *(f"block return in quick on {each} inet6 all" for each in _without_ipv6(network)),
    ]


def _without_ipv6(network: Network) -> tuple[str, ...]:
    """Interfaces on which no machine has an IPv6 address that the tables could name."""
    named = any(ipaddress.ip_network(each).version == 6 for each in network.vms)
    return () if named else network.interfaces


def normal(entry: str) -> str:
    """Write a network of one address as that address: pfctl shows the shorter form."""
    network = ipaddress.ip_network(entry.strip(), strict=False)
    return str(network.network_address) if network.num_addresses == 1 else str(network)
