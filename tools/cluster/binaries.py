"""The programs of a cluster: taken from the user's directory, or built once and kept.

No package ships a kube-apiserver, but its source is a Go module like any other. The versions and the
checksums of all it needs are in `modules/`, written by `python -m tools.cluster lock`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.cluster.errors import ClusterError, Missing
from tools.cluster.layout import cache
from tools.cluster.say import say

#: Native sidecars are stable in it, and its kubelet still accepts the first version of cgroups.
KUBERNETES: Final = "v1.34.4"

LOCKS: Final = Path(__file__).parent / "modules"


@dataclass(frozen=True)
class Module:
    """A Go module and the commands built from it, each with its package."""

    name: str
    path: str
    version: str
    commands: Mapping[str, str]
    flags: tuple[str, ...] = field(default=())
    #: Whether the checksum database does not know this version. Then its checksum in `modules/` is that
    #: of the first download.
    unlisted: bool = False

    @property
    def built(self) -> Path:
        return cache() / "bin" / f"{self.name}-{self.version}"


def _kubernetes_version() -> tuple[str, ...]:
    """The facts that a build reads from git; without them the API server calls itself v0.0.0."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    values = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    return tuple(f"-X k8s.io/component-base/version.{k}={v}" for k, v in values.items())


#: In the order in which they are built: a control plane is useful before there is a node.
MODULES: Final = (
    Module(
        "etcd",
        "go.etcd.io/etcd/server/v3",
        "v3.6.8",
        {"etcd": "go.etcd.io/etcd/server/v3"},
    ),
    Module(
        "kubernetes",
        "k8s.io/kubernetes",
        KUBERNETES,
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kube-apiserver",
                "kubectl",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
            )
        },
        _kubernetes_version(),
    ),
    Module("kwok", "sigs.k8s.io/kwok", "v0.7.0", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Module(
        "kube-router",
        "github.com/cloudnativelabs/kube-router/v2",
        "v2.1.0",
        {"kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"},
        unlisted=True,
    ),
    Module("helm", "helm.sh/helm/v3", "v3.19.5", {"helm": "helm.sh/helm/v3/cmd/helm"}),
    Module(
        "github-act-runner",
        "github.com/ChristopherHX/github-act-runner",
        "v0.13.0",
        {"github-act-runner": "github.com/ChristopherHX/github-act-runner"},
        ("-X main.version=0.13.0",),
        unlisted=True,
    ),
)

#: Without these there is no cluster; without the others the cluster lacks some parts.
CONTROL_PLANE: Final = ("etcd", "kube-apiserver", "kubectl")
CONTROLLERS: Final = ("kube-controller-manager", "kube-scheduler")
NEEDED: Final = (*CONTROL_PLANE, *CONTROLLERS, "kubelet", "kwok")
#: A runner program that is not paddock's: tests of the runner's protocol use it (`make runner`).
RUNNER: Final = "github-act-runner"
ALL: Final = tuple(
    command for module in MODULES for command in module.commands if command != RUNNER
)


def module_of(command: str) -> Module:
    return next(module for module in MODULES if command in module.commands)


def find(command: str) -> Path | None:
    """If `KUBEBUILDER_ASSETS` is set, all of etcd and Kubernetes comes from it: a cluster of two mixed
    versions proves nothing."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    module = module_of(command)
    directory = Path(assets) if assets and module.name in ("etcd", "kubernetes") else module.built
    path = directory / command
    return path if os.access(path, os.X_OK) else None


def find_all() -> dict[str, Path]:
    found = {command: find(command) for command in ALL}
    return {command: path for command, path in found.items() if path is not None}


def require(command: str) -> Path:
    path = find(command)
    if path is None:
        raise Missing(_how_to_get(command))
    return path


def _how_to_get(command: str) -> str:
    if command == RUNNER:
        return f"There is no {command} yet: make runner builds it, once."
    if os.environ.get("KUBEBUILDER_ASSETS") and module_of(command).name != "kwok":
        return (
            f"KUBEBUILDER_ASSETS has no {command}: put one there, or unset it and run make cluster."
        )
    return f"There is no {command} yet: make cluster builds it, once."


#: The time to build: of the cluster's programs, and of the runner.
_EFFORT: Final = ("all together take 10 to 20 minutes", "it takes a minute or two")


def build(*commands: str) -> None:
    """Builds those of these, or of all, that are missing. A later start finds them."""
    missing = [each for each in commands or ALL if find(each) is None]
    if os.environ.get("KUBEBUILDER_ASSETS"):
        missing = [each for each in missing if module_of(each).name not in ("etcd", "kubernetes")]
    for number, command in enumerate(missing, start=1):
        module = module_of(command)
        say(
            f"building {command} {module.version}, {number} of {len(missing)}"
            f" (once; {_EFFORT[command == RUNNER]} of two cores)"
        )
        _build(module, command)


def _build(module: Module, command: str) -> None:
    go = go_program()
    module.built.mkdir(parents=True, exist_ok=True)
    unfinished = module.built / f".{command}.{os.getpid()}"
    flags = " ".join(("-s -w", *module.flags))
    arguments = ["build", "-ldflags", flags, "-o", str(unfinished), module.commands[command]]
    try:
        subprocess.run(
            [*_politely(), go, *arguments],
            cwd=LOCKS / module.name,
            env={**os.environ, **go_environment()},
            check=True,
        )
        unfinished.rename(module.built / command)
    except subprocess.CalledProcessError as error:
        raise ClusterError(
            f"{command} {module.version} could not be built; see what go said above."
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def go_program() -> str:
    go = shutil.which("go")
    if go is None:
        raise Missing(
            "There is no go to build test programs with: install Go 1.24 or newer. For the cluster,"
            " KUBEBUILDER_ASSETS can instead name a directory that has etcd, kube-apiserver and"
            " kubectl."
        )
    return go


def go_environment() -> dict[str, str]:
    return {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -trimpath -mod=readonly"}


def _politely() -> list[str]:
    """A build must not slow tests on the same machine until they time out."""
    nice = shutil.which("nice")
    return [nice, "-n", "19"] if nice else []
