"""One real node: containerd, runc and the network plugins from packages, and a kubelet.

The settings are those with which a kubelet runs as a plain process, also where there is no systemd, the
first version of cgroups, and no CAP_SYS_RESOURCE.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

from tools.cluster.daemons import Daemon
from tools.cluster.errors import ClusterError, Missing
from tools.cluster.facts import BRIDGE, NODE_ADDRESS, NODE_NAME, PAUSE, POD_RANGE, Facts
from tools.cluster.layout import Layout

_PACKAGES: Final = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "busybox": "busybox-static",
}
_PLUGINS: Final = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CRI: Final = 'plugins."io.containerd.grpc.v1.cri"'
_NAMESPACE: Final = "k8s.io"


def check_tools() -> None:
    missing = {package for tool, package in _PACKAGES.items() if shutil.which(tool) is None}
    if _plugins() is None:
        missing.add("containernetworking-plugins")
    if missing:
        raise Missing(
            "There is no node without containers: install these Debian packages, or your system's like:"
            f" {' '.join(sorted(missing))}."
        )


def write_configuration(layout: Layout, facts: Facts) -> None:
    (layout.node / "cni").mkdir(parents=True)
    (layout.node / "containerd.toml").write_text(_containerd_configuration(layout))
    (layout.node / "cni" / "10-bridge.conflist").write_text(json.dumps(_network(layout)))
    (layout.node / "kubelet.json").write_text(json.dumps(_kubelet_configuration(layout, facts)))


def make_bridge(layout: Layout) -> None:
    """Made before any Pod, because it has the node's address. Its alias names its owner."""
    _check_bridge(layout)
    remove_bridge()
    for arguments in (
        ["link", "add", BRIDGE, "type", "bridge"],
        ["addr", "add", f"{NODE_ADDRESS}/{POD_RANGE.partition('/')[2]}", "dev", BRIDGE],
        ["link", "set", BRIDGE, "alias", str(layout.root), "up"],
    ):
        run("ip", *arguments)


def _check_bridge(layout: Layout) -> None:
    """A machine has one node. The bridge of a dead cluster is reused, that of another one is not."""
    alias = Path(f"/sys/class/net/{BRIDGE}/ifalias")
    owner = Path(alias.read_text().strip()) if alias.exists() else layout.root
    if owner != layout.root and containerd(Layout(owner)).pid() is not None:
        raise ClusterError(
            f"The cluster in {owner} has this machine's node: stop that one first, or start this one"
            " with --no-node."
        )


def remove_bridge() -> None:
    run("ip", "link", "delete", BRIDGE, check=False)


def containerd(layout: Layout) -> Daemon:
    return Daemon(
        "containerd",
        [_which("containerd"), "--config", str(layout.node / "containerd.toml")],
        layout,
    )


def kubelet(layout: Layout, facts: Facts) -> Daemon:
    return Daemon(
        "kubelet",
        [
            facts.programs["kubelet"],
            f"--config={layout.node / 'kubelet.json'}",
            f"--kubeconfig={layout.kubeconfig('kubelet')}",
            f"--root-dir={layout.node / 'kubelet'}",
            f"--cert-dir={layout.node / 'kubelet-pki'}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE_ADDRESS}",
        ],
        layout,
    )


def ctr(layout: Layout, *arguments: str, check: bool = True) -> str:
    socket = str(layout.containerd_socket)
    return run("ctr", "--address", socket, "--namespace", _NAMESPACE, *arguments, check=check)


def end_containers(layout: Layout) -> None:
    """Containers belong to shims, which live on when containerd is stopped."""
    for task in ctr(layout, "tasks", "list", "--quiet", check=False).split():
        ctr(layout, "tasks", "delete", "--force", task, check=False)


def clean_up(layout: Layout) -> None:
    """After containerd was stopped or killed: removes what it may have left outside its directory."""
    for pid in _shims(layout):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((each for each in mounts if _is_below(each, layout.root)), reverse=True):
        run("umount", "--lazy", mount, check=False)


def run(program: str, *arguments: str, check: bool = True, given: str | None = None) -> str:
    """`given` is its standard input."""
    done = subprocess.run(
        [_which(program), *arguments], input=given, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        raise ClusterError(f"{program} {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


def _shims(layout: Layout) -> list[int]:
    address = os.fsencode(layout.containerd_socket)
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"containerd-shim" in words[0] and address in words:
            found.append(int(entry.parent.name))
    return found


def _is_below(mount: str, directory: Path) -> bool:
    return mount.startswith(f"{directory}/")


def _which(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise Missing(f"There is no {program}: install {_PACKAGES.get(program, program)}.")
    return found


def _plugins() -> Path | None:
    return next((path for path in _PLUGINS if (path / "bridge").exists()), None)


def _containerd_configuration(layout: Layout) -> str:
    node = layout.node
    return f"""\
version = 2
root = "{node}/containerd"
state = "{node}/containerd-state"

[grpc]
  address = "{layout.containerd_socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{node}/opt"

[{_CRI}]
  sandbox_image = "{PAUSE}"
  # Without CAP_SYS_RESOURCE no process may be made less likely to be killed than its parent.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

[{_CRI}.cni]
  bin_dir = "{_plugins()}"
  conf_dir = "{node}/cni"

[{_CRI}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""


def _network(layout: Layout) -> dict[str, Any]:
    """Pods reach this machine and one another, and nothing else: no forwarding, no masquerading."""
    return {
        "cniVersion": "0.4.0",
        "name": "paddock",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": True,
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(layout.node / "ipam"),
                    "ranges": [[{"subnet": POD_RANGE, "gateway": NODE_ADDRESS}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def _kubelet_configuration(layout: Layout, facts: Facts) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "port": facts.ports.kubelet,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "podLogsDir": str(layout.node / "pod-logs"),
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "maxOpenFiles": 1000,
        "makeIPTablesUtilChains": False,
        "resolvConf": "/dev/null",
        # Images have no registry to come from again: none may be collected, and a full disk must not
        # evict a test's Pod.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        # A third of the usual, like the controllers' patience with this node.
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 16,
        # What tests wait for most: containers that have ended.
        "runtimeRequestTimeout": "1m",
        "shutdownGracePeriod": "0s",
    }
