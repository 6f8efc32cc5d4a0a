"""The cluster as a whole: starts it in order, stops it cleanly, and lets tests stop and start its
parts."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2

from tools.cluster import binaries, controlplane, images, kube_router, node
from tools.cluster.api import PATIENCE_S, Api, Refused
from tools.cluster.daemons import Daemon
from tools.cluster.errors import ClusterError, Missing
from tools.cluster.facts import NODE_ADDRESS, NODE_NAME, Facts, free_ports
from tools.cluster.kubeconfigs import by_token
from tools.cluster.layout import Layout, default_layout
from tools.cluster.say import say

#: The API server takes 5 s on two idle cores. Much longer is allowed, with a line of progress at
#: times.
_READY_S: Final = 120.0
_POLL_S: Final = 0.2
_TELL_S: Final = 10.0
#: A kubelet panics if the API server goes away while the kubelet starts: tests cause that.
_STARTS: Final = 4
#: These ask the API server less and less often while it is away.
_LATE: Final = ("controller-manager", "scheduler", "kubelet")
_BETWEEN_STARTS_S: Final = 1.0
#: Started by the tests that need them.
_ON_DEMAND: Final = (kube_router.NAME,)


@dataclass(frozen=True)
class Cluster:
    layout: Layout
    facts: Facts

    @classmethod
    def running(cls, layout: Layout | None = None) -> Cluster | None:
        """The cluster of this machine, also while a test has stopped a part of it."""
        layout = layout or default_layout()
        facts = Facts.read(layout.facts)
        if facts is None:
            return None
        cluster = cls(layout, facts)
        return cluster if any(each.pid() is not None for each in cluster.daemons.values()) else None

    @property
    def daemons(self) -> dict[str, Daemon]:
        """In the order in which they are started."""
        layout, facts = self.layout, self.facts
        every = [controlplane.etcd(layout, facts), controlplane.apiserver(layout, facts)]
        if self.has_controllers:
            every.append(controlplane.controller_manager(layout, facts))
            every.append(controlplane.scheduler(layout, facts))
        if facts.node:
            every += [node.containerd(layout), node.kubelet(layout, facts)]
        if self.has_kwok:
            every.append(controlplane.kwok(layout, facts))
        if self.has_kube_router:
            every.append(kube_router.daemon(layout, facts))
        return {daemon.name: daemon for daemon in every}

    @property
    def has_controllers(self) -> bool:
        return all(name in self.facts.programs for name in binaries.CONTROLLERS)

    @property
    def has_kwok(self) -> bool:
        return "kwok" in self.facts.programs

    @property
    def has_kube_router(self) -> bool:
        return self.facts.node and kube_router.NAME in self.facts.programs

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.admin

    @property
    def host_address(self) -> str:
        """The address at which a Pod reaches a server that listens on this machine."""
        return NODE_ADDRESS

    def api(self, *, token: str | None = None, patience: float = PATIENCE_S) -> Api:
        """With the administrator's certificate, or with this token."""
        pki = self.layout.pki
        authority = pki / "ca.crt"
        if token is not None:
            return Api(self.facts.server, authority=authority, token=token, patience=patience)
        pair = pki / "admin.crt"
        return Api(self.facts.server, authority=authority, pair=pair, patience=patience)

    async def kubeconfig_of(self, namespace: str, service_account: str, path: Path) -> Path:
        """The settings of a process that runs as this service account: its rights and no more."""
        async with self.api() as api:
            token = await api.token(namespace, service_account)
        by_token(
            path,
            server=self.facts.server,
            authority=(self.layout.pki / "ca.crt").read_bytes(),
            token=token,
            namespace=namespace,
        )
        return path

    async def kubectl(self, *arguments: str, kubeconfig: Path | None = None) -> str:
        process = await asyncio.create_subprocess_exec(
            self.facts.programs["kubectl"],
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        if process.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {err.decode().strip()}")
        return out.decode()

    async def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """A part of it: `apiserver`, `kubelet`, …"""
        await self.daemons[name].stop(how)
        if name == kube_router.NAME:
            kube_router.remove_rules(self.layout)

    async def start(self, name: str) -> None:
        """Starts a part and waits until it is usable. With the API server it also restarts the parts
        that would treat it as away for a minute more: a controller that hears of the node late takes
        it for lost, a kubelet starts no Pods."""
        late = [each for each in _LATE if name == "apiserver" and self._runs(each)]
        for each in late:
            await self.stop(each)
        for each in (name, *late):
            self.daemons[each].start()
            await self._until_of_use(each)

    def _runs(self, name: str) -> bool:
        daemon = self.daemons.get(name)
        return daemon is not None and daemon.pid() is not None

    async def restart(self, name: str) -> None:
        await self.stop(name)
        await self.start(name)

    async def mend(self) -> None:
        """Starts what a test has stopped."""
        for name, daemon in self.daemons.items():
            if daemon.pid() is None and name not in _ON_DEMAND:
                await self.start(name)

    async def start_all(self) -> None:
        for name, daemon in self.daemons.items():
            if name in _ON_DEMAND:
                continue
            if name == "kubelet":
                say("importing images")
                images.import_all(self.layout)
            say(f"starting {name}")
            daemon.start()
            await self._until_of_use(name)

    async def stop_all(self) -> None:
        for name, daemon in reversed(self.daemons.items()):
            if name == "containerd":
                node.end_containers(self.layout)
            await daemon.stop()
        if self.facts.node:
            kube_router.remove_rules(self.layout)
            node.clean_up(self.layout)
            node.remove_bridge()

    async def _until_of_use(self, name: str) -> None:
        match name:
            case "apiserver":
                await self._wait(name, self._api_is_ready)
            case "controller-manager":
                await self._wait(name, self._service_accounts_are_made)
            case "containerd":
                await self._wait(name, self._containerd_answers)
            case "kubelet":
                await self._wait(name, self._node_is_ready)
            case kube_router.NAME:
                await self._wait(name, self._policies_are_enforced)
            case _:
                # Components that need it retry by themselves.
                self.daemons[name].check()

    async def _wait(self, name: str, ready: Callable[[], Awaitable[bool]]) -> None:
        begun = told = time.monotonic()
        starts = 1
        while not await ready():
            if self.daemons[name].pid() is None and starts < _STARTS:
                say(f"{name} has ended and is started again")
                await asyncio.sleep(_BETWEEN_STARTS_S)
                self.daemons[name].start()
                starts += 1
            self.daemons[name].check()
            now = time.monotonic()
            if now - begun > _READY_S:
                daemon = self.daemons[name]
                raise ClusterError(
                    f"{name} was not ready after {_READY_S:.0f} s; the end of {daemon.log}:"
                    f"\n{daemon.tail()}"
                )
            if now - told > _TELL_S:
                say(f"waiting for {name} ({now - begun:.0f} s)")
                told = now
            await asyncio.sleep(_POLL_S)

    async def _api_is_ready(self) -> bool:
        return await self._answers("/readyz")

    async def _service_accounts_are_made(self) -> bool:
        return await self._answers("/api/v1/namespaces/default/serviceaccounts/default")

    async def _containerd_answers(self) -> bool:
        return "Version" in node.ctr(self.layout, "version", check=False)

    async def _node_is_ready(self) -> bool:
        async with self.api(patience=0) as api:
            try:
                found = await api.get(f"/api/v1/nodes/{NODE_NAME}")
            except (httpx2.TransportError, Refused):
                return False
        conditions = found.get("status", {}).get("conditions") or []
        return {"Ready": "True"}.items() <= {c["type"]: c["status"] for c in conditions}.items()

    async def _policies_are_enforced(self) -> bool:
        return kube_router.has_written_rules()

    async def _answers(self, path: str) -> bool:
        async with self.api(patience=0) as api:
            try:
                await api.request("GET", path)
            except (httpx2.TransportError, Refused):
                return False
        return True


async def up(*, build: bool = True, with_node: bool = True) -> Cluster:
    """The running cluster, or a new one. First says which parts a new one will lack."""
    layout = default_layout()
    with _alone(layout):
        if (cluster := Cluster.running(layout)) is not None:
            return cluster
        if build:
            binaries.build()
        facts = _decide(with_node=with_node)
        make_empty(layout)
        controlplane.write_credentials(layout, facts)
        if facts.node:
            node.write_configuration(layout, facts)
            node.make_bridge(layout)
        facts.write(layout.facts)
        cluster = Cluster(layout, facts)
        try:
            await cluster.start_all()
        except BaseException:
            await cluster.stop_all()
            raise
        return cluster


async def down(*, force: bool = False) -> bool:
    layout = default_layout()
    if not force and _is_in_use(layout):
        raise ClusterError("Tests are running on it: wait for them, or stop it with down --force.")
    with _alone(layout):
        facts = Facts.read(layout.facts)
        if facts is None:
            return False
        await Cluster(layout, facts).stop_all()
        # Logs are kept until the next start.
        layout.facts.unlink()
        return True


def make_empty(layout: Layout) -> None:
    """Removes what an earlier cluster left. One that was killed left its mounts and the processes that
    hold containers. A directory below which something is mounted cannot be removed."""
    if layout.root.exists():
        if os.geteuid() == 0:
            kube_router.remove_rules(layout)
            node.clean_up(layout)
        shutil.rmtree(layout.root)
    layout.root.mkdir(parents=True, mode=0o711)


def _decide(*, with_node: bool) -> Facts:
    for command in binaries.CONTROL_PLANE:
        binaries.require(command)
    found = binaries.find_all()
    has_node = False
    if not with_node:
        say("WITHOUT A NODE, as asked: no Pod will run")
    elif missing := [each for each in (*binaries.CONTROLLERS, "kubelet") if each not in found]:
        say(f"WITHOUT A NODE: there is no {' and no '.join(missing)}")
    else:
        try:
            node.check_tools()
            _check_root()
            has_node = True
        except Missing as missing_tool:
            say(f"WITHOUT A NODE: {missing_tool}")
    if has_node:
        try:
            binaries.require(kube_router.NAME)
            kube_router.check_tools()
        except Missing as missing_tool:
            found.pop(kube_router.NAME, None)
            say(f"WITHOUT ENFORCED POLICIES: {missing_tool}")
    programs = {command: str(path) for command, path in found.items()}
    return Facts(ports=free_ports(), programs=programs, node=has_node)


def _check_root() -> None:
    if os.geteuid() != 0:
        raise Missing("Containers need root: run make cluster as root for a node that runs Pods.")


def _is_in_use(layout: Layout) -> bool:
    with layout.turn.open("a") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def _alone(layout: Layout) -> Iterator[None]:
    """Two simultaneous starts would empty each other's directory."""
    layout.lock.parent.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
