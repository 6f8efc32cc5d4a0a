"""etcd, the API server, the controllers and the scheduler: their keys and their command lines."""

from __future__ import annotations

from typing import Final

from tools.cluster.certificates import Authority, signing_key, write_private
from tools.cluster.daemons import Daemon
from tools.cluster.facts import NODE_ADDRESS, NODE_NAME, SERVICE_RANGE, Facts
from tools.cluster.kubeconfigs import by_certificate
from tools.cluster.layout import Layout

_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
#: A lost node is noticed in a third of the usual time. Tests of it wait that long. With less, a busy
#: machine loses a node that is only slow.
_NODE_GRACE: Final = "16s"
#: The defaults are for clusters with other users; here they would delay thousands of fake Pods.
_RATES: Final = ("--kube-api-qps=500", "--kube-api-burst=1000")

_CLIENTS: Final = {
    "admin": ("paddock-admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": (f"system:node:{NODE_NAME}", "system:nodes"),
    "kwok": ("paddock-kwok", "system:masters"),
    "kube-router": ("paddock-kube-router", "system:masters"),
}


def write_credentials(layout: Layout, facts: Facts) -> None:
    layout.pki.mkdir(parents=True, mode=0o700)
    authority = Authority()
    authority.pair.write(layout.pki, "ca")
    write_private(layout.pki / "service-accounts.key", signing_key())
    authority.server(
        "kube-apiserver",
        addresses=["127.0.0.1", NODE_ADDRESS, "10.242.0.1"],
        names=["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"],
    ).write(layout.pki, "apiserver")
    authority.client("kube-apiserver-kubelet", groups=["system:masters"]).write(
        layout.pki, "apiserver-kubelet"
    )
    for name, (user, group) in _CLIENTS.items():
        pair = authority.client(user, groups=[group] if group else [])
        pair.write(layout.pki, name)
        by_certificate(
            layout.kubeconfig(name),
            server=facts.server,
            authority=authority.pair.certificate,
            pair=pair,
        )


def etcd(layout: Layout, facts: Facts) -> Daemon:
    client = f"http://127.0.0.1:{facts.ports.etcd}"
    peer = f"http://127.0.0.1:{facts.ports.etcd_peer}"
    return Daemon(
        "etcd",
        [
            facts.programs["etcd"],
            f"--data-dir={layout.etcd}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # This data need not survive the machine.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ],
        layout,
    )


def apiserver(layout: Layout, facts: Facts) -> Daemon:
    pki = layout.pki
    return Daemon(
        "apiserver",
        [
            facts.programs["kube-apiserver"],
            f"--etcd-servers=http://127.0.0.1:{facts.ports.etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={facts.ports.api}",
            # The node's address: a loopback address is refused, and there may be no other.
            f"--advertise-address={NODE_ADDRESS}",
            f"--cert-dir={layout.root}/apiserver",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={pki}/service-accounts.key",
            f"--service-account-signing-key-file={pki}/service-accounts.key",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet.key",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
        ],
        layout,
        # It stops listening at once, and then waits a minute for connections that no client closes.
        grace_s=2.0,
    )


def controller_manager(layout: Layout, facts: Facts) -> Daemon:
    return Daemon(
        "controller-manager",
        [
            facts.programs["kube-controller-manager"],
            f"--kubeconfig={layout.kubeconfig('controller-manager')}",
            f"--service-account-private-key-file={layout.pki}/service-accounts.key",
            f"--root-ca-file={layout.pki}/ca.crt",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
            "--node-monitor-period=2s",
            f"--node-monitor-grace-period={_NODE_GRACE}",
            *_RATES,
        ],
        layout,
    )


def scheduler(layout: Layout, facts: Facts) -> Daemon:
    return Daemon(
        "scheduler",
        [
            facts.programs["kube-scheduler"],
            f"--kubeconfig={layout.kubeconfig('scheduler')}",
            "--leader-elect=false",
            "--secure-port=0",
            *_RATES,
        ],
        layout,
    )


def kwok(layout: Layout, facts: Facts) -> Daemon:
    """Plays the kubelet of every annotated node, for thousands of Pods."""
    return Daemon(
        "kwok",
        [
            facts.programs["kwok"],
            f"--kubeconfig={layout.kubeconfig('kwok')}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            f"--server-address=127.0.0.1:{facts.ports.kwok}",
            "--node-lease-duration-seconds=40",
        ],
        layout,
        # Otherwise it reads the user's configuration.
        {"KWOK_WORKDIR": str(layout.root / "kwok")},
    )
