"""Enforces NetworkPolicies on the node: kube-router's policy controller, without its other parts.

Only the tests that need it start it: it writes all its rules anew with each change of any Pod. While
400 fake Pods were started it used a fifth of a core.

Its rules outlive it. Rules of a deleted Pod would apply to the next Pod with its address, so they are
removed when it is stopped.
"""

from __future__ import annotations

import re
import shutil
from typing import Final

from tools.cluster import node
from tools.cluster.daemons import Daemon
from tools.cluster.errors import Missing
from tools.cluster.facts import NODE_NAME, SERVICE_RANGE, Facts
from tools.cluster.layout import Layout

NAME: Final = "kube-router"
_PACKAGES: Final = {"iptables": "iptables", "iptables-restore": "iptables", "ipset": "ipset"}
#: The names of its chains and sets.
_CHAINS: Final = re.compile(r"^:(KUBE-(?:ROUTER|POD-FW|NWPLCY)-\S+)", re.MULTILINE)
_JUMPS: Final = re.compile(r"^-A ((?:INPUT|FORWARD|OUTPUT) .*-j KUBE-ROUTER-\S+)$", re.MULTILINE)
_SETS: Final = re.compile(r"^(?:inet6:)?KUBE-(?:SRC|DST)-\S+$", re.MULTILINE)
#: The rule that it writes last, after all policies and Pods.
_WRITTEN: Final = "-A KUBE-ROUTER-FORWARD .*explicitly ACCEPT"


def check_tools() -> None:
    missing = {package for tool, package in _PACKAGES.items() if shutil.which(tool) is None}
    if missing:
        raise Missing(
            "NetworkPolicies are not enforced: install these Debian packages, or your system's like:"
            f" {' '.join(sorted(missing))}."
        )


def daemon(layout: Layout, facts: Facts) -> Daemon:
    return Daemon(
        NAME,
        [
            facts.programs[NAME],
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            f"--kubeconfig={layout.kubeconfig(NAME)}",
            f"--hostname-override={NODE_NAME}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            # It opens no port.
            "--health-port=0",
            "--metrics-port=0",
            "--v=1",
        ],
        layout,
    )


def has_written_rules() -> bool:
    return re.search(_WRITTEN, node.run("iptables-save", "-t", "filter")) is not None


def remove_rules(layout: Layout) -> None:
    """Removes all its rules, and no others. If this cluster never started a kube-router, the rules
    belong to another one and are left alone."""
    if not (layout.logs / f"{NAME}.log").exists():
        return
    saved = node.run("iptables-save", "-t", "filter")
    chains = _CHAINS.findall(saved)
    if chains:
        lines = [
            "*filter",
            *(f":{chain} - [0:0]" for chain in chains),  # which empties it
            *(f"-D {jump}" for jump in _JUMPS.findall(saved)),
            *(f"-X {chain}" for chain in chains),
            "COMMIT",
        ]
        node.run("iptables-restore", "--noflush", given="\n".join(lines) + "\n")
    for name in _SETS.findall(node.run("ipset", "list", "-name")):
        node.run("ipset", "destroy", name)
