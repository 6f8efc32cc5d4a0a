"""Addresses that are not the internet, although packets to them may leave a Pod.

Behind them are private networks, the machine itself, and cloud services that give credentials to every
process of a machine. Jobs do not reach them unless an operator allows it. The chart's NetworkPolicies
and the packet filter of macOS hosts are both made from this table. It is in this package because the
package imports nothing else of paddock.

The ranges are those that IANA's registries of special-purpose addresses call not globally reachable,
those whose special use has ended, and multicast. One address is in no registry: it is an ordinary
address at which a cloud's service answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: All IPv6 addresses that are routed between networks; a policy need not name the rest.
GLOBAL_UNICAST: Final = "2000::/3"

SPECIAL_RANGES: Final[Mapping[str, str]] = {
    "0.0.0.0/8": "this host and its network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared with carriers; metadata of Alibaba Cloud (100.100.100.200)",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "Azure's wire server, with credentials of the machine; a public address",
    "169.254.0.0/16": "link-local; metadata of most clouds (169.254.169.254), credentials of "
    "Amazon's containers (169.254.170.2, 169.254.170.23)",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "protocol assignments; metadata of Oracle Cloud Classic (192.0.0.192)",
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "6to4 relays, no longer in use",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmarks of devices",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved; broadcast",
    "::/8": "loopback; addresses of version 4: mapped, or translated by NAT64 (64:ff9b::/96)",
    "100::/8": "discarded",
    "2001::/23": "protocol assignments; addresses of version 4, by Teredo",
    "2001:db8::/32": "documentation",
    "2002::/16": "addresses of version 4, by 6to4",
    "3fff::/20": "documentation",
    "5f00::/16": "segment routing",
    "fc00::/7": "private; metadata of Amazon (fd00:ec2::254) and of Google Cloud (fd20:ce::254)",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local, no longer in use",
    "ff00::/8": "multicast",
}
