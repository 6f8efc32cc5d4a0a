"""Tests of the cluster tools that need no cluster."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.cluster import binaries, kube_router
from tools.cluster.cluster import Cluster, make_empty
from tools.cluster.daemons import Daemon
from tools.cluster.errors import ClusterError, Missing
from tools.cluster.facts import Facts, free_ports
from tools.cluster.layout import Layout


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PADDOCK_CLUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "cache"


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def test_what_was_built_is_found_by_its_version(cache: Path) -> None:
    built = program(cache / "bin" / f"kubernetes-{binaries.KUBERNETES}" / "kubelet")
    assert binaries.find("kubelet") == built


def test_assets_are_the_whole_kubernetes(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(cache / "bin" / f"kubernetes-{binaries.KUBERNETES}" / "kubelet")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    theirs = program(tmp_path / "assets" / "kube-apiserver")
    assert binaries.find("kube-apiserver") == theirs
    with pytest.raises(Missing, match="KUBEBUILDER_ASSETS has no kubelet"):
        binaries.require("kubelet")


def test_without_go_the_message_says_what_to_install(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Missing, match="install Go"):
        binaries.build("etcd")


def test_every_program_has_a_lock_file() -> None:
    for module in binaries.MODULES:
        lock = (binaries.LOCKS / module.name / "go.mod").read_text()
        assert f"require {module.path} {module.version}\n" in lock


async def test_a_process_is_stopped_by_a_client_that_finds_it(tmp_path: Path) -> None:
    Daemon("sleeper", ["/bin/sleep", "100"], Layout(tmp_path)).start()
    found = Daemon("sleeper", ["/bin/sleep", "100"], Layout(tmp_path))
    assert found.pid() is not None
    await found.stop(signal.SIGKILL)
    assert found.pid() is None


def test_a_process_with_an_id_used_again_is_not_ours(tmp_path: Path) -> None:
    daemon = Daemon("init", ["/bin/true"], Layout(tmp_path))
    (tmp_path / "pids").mkdir()
    (tmp_path / "pids" / "init").write_text("1 12345678901")
    assert daemon.pid() is None


async def test_a_process_has_no_file_of_its_starter(tmp_path: Path) -> None:
    """`flock FILE make cluster` would hold FILE until the cluster is stopped."""
    daemon = Daemon("sleeper", ["/bin/sleep", "100"], Layout(tmp_path))
    with (tmp_path / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        daemon.start()
    try:
        held = [each.resolve() for each in Path(f"/proc/{daemon.pid()}/fd").iterdir()]
        assert daemon.log in held
        assert tmp_path / "lock" not in held
    finally:
        await daemon.stop(signal.SIGKILL)


def test_without_its_tools_it_is_said_that_policies_are_not_enforced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Missing, match=r"not enforced: install .* ipset iptables"):
        kube_router.check_tools()


def test_rules_of_another_cluster_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs that remove rules are not installed here, and none may be called."""
    monkeypatch.setenv("PATH", "/nowhere")
    kube_router.remove_rules(Layout(tmp_path))


async def test_a_process_that_ended_says_its_last_words(tmp_path: Path) -> None:
    daemon = Daemon("failing", ["/bin/sh", "-c", "echo bad flag >&2"], Layout(tmp_path))
    daemon.start()
    while daemon.pid() is not None:
        pass
    with pytest.raises(ClusterError, match="bad flag"):
        daemon.check()


@dataclass(frozen=True)
class OneDaemon(Cluster):
    """A cluster whose kubelet is this script."""

    script: str = ""

    @property
    def daemons(self) -> dict[str, Daemon]:
        return {"kubelet": Daemon("kubelet", ["/bin/sh", "-c", self.script], self.layout)}


def one_daemon(root: Path, script: str) -> OneDaemon:
    return OneDaemon(Layout(root), Facts(free_ports(), programs={}, node=True), script)


async def test_a_kubelet_that_gave_up_at_its_start_is_started_again(tmp_path: Path) -> None:
    """A kubelet panics if the API server is away while it starts."""
    once, up = tmp_path / "once", tmp_path / "up"
    gives_up = f"[ -e {once} ] || {{ touch {once}; exit 2; }}"
    cluster = one_daemon(tmp_path, f"{gives_up}; touch {up}; exec sleep 100")

    async def is_up() -> bool:
        return up.exists()

    cluster.daemons["kubelet"].start()
    try:
        await cluster._wait("kubelet", is_up)
        assert cluster.daemons["kubelet"].pid() is not None
    finally:
        await cluster.stop("kubelet", signal.SIGKILL)


async def test_one_that_always_ends_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.cluster.cluster._BETWEEN_STARTS_S", 0.2)
    cluster = one_daemon(tmp_path, "echo bad flag >&2; exit 2")

    async def never() -> bool:
        return False

    cluster.daemons["kubelet"].start()
    with pytest.raises(ClusterError, match="bad flag"):
        await cluster._wait("kubelet", never)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_the_mounts_of_a_killed_cluster_do_not_prevent_the_next_start(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state")
    volume = layout.node / "kubelet" / "pods" / "one" / "volumes"
    volume.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", volume], check=False).returncode:
        pytest.skip("mounting is not permitted here")
    make_empty(layout)
    assert list(layout.root.iterdir()) == []
    assert str(layout.root) not in Path("/proc/mounts").read_text()
