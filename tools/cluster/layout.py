"""The directories: binaries that are kept, and the state of this machine's one cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs


def cache() -> Path:
    """Outside the checkout: a build takes long, and every checkout can use it."""
    chosen = os.environ.get("PADDOCK_CLUSTER_CACHE")
    return (
        Path(chosen).absolute() if chosen else platformdirs.user_cache_path("paddock") / "cluster"
    )


@dataclass(frozen=True)
class Layout:
    """The directory of a cluster's state. It is emptied whenever the cluster is started anew."""

    root: Path

    @property
    def facts(self) -> Path:
        return self.root / "facts.json"

    @property
    def lock(self) -> Path:
        """Beside the state, which is removed and made again."""
        return self.root.with_name(f"{self.root.name}.lock")

    @property
    def turn(self) -> Path:
        """The lock that tests on the cluster take."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        return self.root.with_name(f"{self.root.name}.turn")

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pids(self) -> Path:
        return self.root / "pids"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def admin(self) -> Path:
        return self.kubeconfig("admin")

    def kubeconfig(self, name: str) -> Path:
        return self.root / f"{name}.kubeconfig"

    @property
    def node(self) -> Path:
        return self.root / "node"

    @property
    def containerd_socket(self) -> Path:
        return self.node / "containerd.sock"


def default_layout() -> Layout:
    return Layout(cache() / "state")
