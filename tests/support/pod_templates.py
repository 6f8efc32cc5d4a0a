"""Pod templates with features that a hostile or careless author may use, in every possible place: in
any container, at the Pod's level, in any spelling."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

Json = dict[str, Any]
#: The least value of `privileged` that permits a feature; `None`: none does. Written by hand, beside
#: the program's own table, so that a change of only one is noticed.
PermittedBy = Literal["inVirtualMachine", "acceptRisk"] | None


@dataclass(frozen=True)
class Feature:
    name: str
    permitted_by: PermittedBy
    #: Puts it into a template, at a random place.
    place: Callable[[st.DrawFn, Json], None]

    def __repr__(self) -> str:
        return self.name


def plain() -> Json:
    """A template with a container of each kind that a template can have."""
    return {
        "metadata": {},
        "spec": {
            "containers": [
                {"name": "runner", "image": "runner:1"},
                {"name": "other", "image": "other:1"},
            ],
            "initContainers": [
                {"name": "before", "image": "before:1"},
                {"name": "sidecar", "image": "sidecar:1", "restartPolicy": "Always"},
            ],
            "volumes": [{"name": "work", "emptyDir": {}}],
        },
    }


def _container(draw: st.DrawFn, template: Json) -> Json:
    spec = template["spec"]
    found: Json = draw(st.sampled_from([*spec["initContainers"], *spec["containers"]]))
    return found


def _context(draw: st.DrawFn, template: Json, *, pod: bool = True) -> Json:
    """A securityContext: the Pod's or a container's."""
    at = template["spec"] if pod and draw(st.booleans()) else _container(draw, template)
    context: Json = at.setdefault("securityContext", {})
    return context


def in_container_context(**fields: st.SearchStrategy[Any]) -> Callable[[st.DrawFn, Json], None]:
    def place(draw: st.DrawFn, template: Json) -> None:
        context = _context(draw, template, pod=False)
        context.update({key: draw(value) for key, value in fields.items()})

    return place


def in_any_context(**fields: st.SearchStrategy[Any]) -> Callable[[st.DrawFn, Json], None]:
    def place(draw: st.DrawFn, template: Json) -> None:
        context = _context(draw, template)
        context.update({key: draw(value) for key, value in fields.items()})

    return place


def in_spec(**fields: st.SearchStrategy[Any]) -> Callable[[st.DrawFn, Json], None]:
    def place(draw: st.DrawFn, template: Json) -> None:
        template["spec"].update({key: draw(value) for key, value in fields.items()})

    return place


def in_container(**fields: st.SearchStrategy[Any]) -> Callable[[st.DrawFn, Json], None]:
    def place(draw: st.DrawFn, template: Json) -> None:
        container = _container(draw, template)
        container.update({key: draw(value) for key, value in fields.items()})

    return place


def in_volumes(**sources: st.SearchStrategy[Any]) -> Callable[[st.DrawFn, Json], None]:
    """One of these, mounted or not."""

    def place(draw: st.DrawFn, template: Json) -> None:
        kind = draw(st.sampled_from(sorted(sources)))
        name = f"v{len(template['spec']['volumes'])}"
        template["spec"]["volumes"].append({"name": name, kind: draw(sources[kind])})
        if draw(st.booleans()):
            mounts = _container(draw, template).setdefault("volumeMounts", [])
            mounts.append({"name": name, "mountPath": f"/mnt/{name}"})

    return place


def mounted(**mount: st.SearchStrategy[Any]) -> Callable[[st.DrawFn, Json], None]:
    def place(draw: st.DrawFn, template: Json) -> None:
        made = {"name": "work", "mountPath": "/work"}
        made.update({key: draw(value) for key, value in mount.items()})
        _container(draw, template).setdefault("volumeMounts", []).append(made)

    return place


def with_host(draw: st.DrawFn, template: Json) -> None:
    """In any probe or hook of any container."""
    kind = draw(st.sampled_from(["httpGet", "tcpSocket"]))
    handler: Json = {
        kind: {"port": 80, "host": draw(st.sampled_from(["127.0.0.1", "10.0.0.1", "x"]))}
    }
    container = _container(draw, template)
    where = draw(st.sampled_from(["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"]))
    if where == "lifecycle":
        handler = {draw(st.sampled_from(["postStart", "preStop"])): handler}
    container[where] = handler


def unknown_field(draw: st.DrawFn, template: Json) -> None:
    """A field of a later Kubernetes, or one in another spelling."""
    spec = template["spec"]
    at = draw(
        st.sampled_from(
            [
                spec,
                spec.setdefault("securityContext", {}),
                _container(draw, template),
                _context(draw, template, pod=False),
                spec.setdefault("affinity", {}),
            ]
        )
    )
    at[draw(st.sampled_from(["hostnetwork", "HostPID", "hostEverything", "capAdd"]))] = True


def unmasked(draw: st.DrawFn, template: Json) -> None:
    """Kubernetes wants a user namespace with it."""
    _context(draw, template, pod=False)["procMount"] = "Unmasked"
    template["spec"]["hostUsers"] = False


def annotated(key: str) -> Callable[[st.DrawFn, Json], None]:
    def place(draw: st.DrawFn, template: Json) -> None:
        name = _container(draw, template)["name"]
        template["metadata"].setdefault("annotations", {})[f"{key}/{name}"] = "unconfined"

    return place


_CAPABILITIES = [
    *("ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO", "BPF", "PERFMON", "NET_ADMIN"),
    *("NET_RAW", "DAC_READ_SEARCH", "SYS_BOOT", "SYS_TIME", "MAC_ADMIN", "SYSLOG", "IPC_LOCK"),
    *("CHECKPOINT_RESTORE", "MAC_OVERRIDE", "SYS_PACCT", "SYS_RESOURCE", "SYS_TTY_CONFIG"),
    *("NET_BROADCAST", "LINUX_IMMUTABLE", "LEASE", "BLOCK_SUSPEND", "WAKE_ALARM", "AUDIT_READ"),
]
_SPELLINGS: list[Callable[[str], str]] = [
    str,
    str.lower,
    str.title,
    lambda name: f"CAP_{name}",
    lambda name: f"cap_{name.lower()}",
    lambda name: f" {name}",
]


@st.composite
def _capability(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(_SPELLINGS))(draw(st.sampled_from(_CAPABILITIES)))


def _token(*audiences: str | None) -> st.SearchStrategy[Json]:
    asked = st.sampled_from(audiences)
    return asked.map(
        lambda audience: {
            "sources": [
                {"configMap": {"name": "x"}},
                {"serviceAccountToken": {"path": "token", "audience": audience}},
            ]
        }
    )


_TRUE = st.just(True)
#: Of the Pod Security Standard "baseline".
BASELINE = [
    Feature("privileged", "inVirtualMachine", in_container_context(privileged=_TRUE)),
    Feature(
        "capabilities",
        "inVirtualMachine",
        in_container_context(
            capabilities=st.fixed_dictionaries(
                {"add": st.lists(_capability(), min_size=1, max_size=3)},
                optional={"drop": st.sampled_from([[], ["ALL"], ["NET_RAW"]])},
            )
        ),
    ),
    Feature(
        "seccomp",
        "inVirtualMachine",
        in_any_context(seccompProfile=st.sampled_from([{"type": "Unconfined"}, {"type": ""}])),
    ),
    Feature(
        "AppArmor",
        "inVirtualMachine",
        in_any_context(appArmorProfile=st.just({"type": "Unconfined"})),
    ),
    Feature(
        "AppArmor annotation",
        "inVirtualMachine",
        annotated("container.apparmor.security.beta.kubernetes.io"),
    ),
    Feature("procMount", "inVirtualMachine", unmasked),
    Feature(
        "sysctls",
        "inVirtualMachine",
        lambda draw, template: (
            template["spec"]
            .setdefault("securityContext", {})
            .setdefault("sysctls", [{"name": "net.ipv4.tcp_syncookies", "value": "1"}])
            .append(
                {
                    "name": draw(st.sampled_from(["kernel.msgmax", "net.ipv4.ip_forward"])),
                    "value": "1",
                }
            )
        ),
    ),
    Feature(
        "SELinux",
        "acceptRisk",
        in_any_context(
            seLinuxOptions=st.sampled_from(
                [{"type": "spc_t"}, {"user": "root"}, {"role": "system_r", "type": "container_t"}]
            )
        ),
    ),
    Feature(
        "hostPort",
        "acceptRisk",
        in_container(
            ports=st.integers(1, 65535).map(
                lambda port: [{"containerPort": port, "hostPort": port}]
            )
        ),
    ),
    Feature("host of a probe", "acceptRisk", with_host),
    *(
        Feature(name, None, in_spec(**{name: _TRUE}))
        for name in ("hostNetwork", "hostPID", "hostIPC")
    ),
    Feature("hostProcess", None, in_any_context(windowsOptions=st.just({"hostProcess": True}))),
    Feature("hostPath", None, in_volumes(hostPath=st.sampled_from([{"path": "/"}, {}]))),
]
#: What paddock refuses besides.
MORE = [
    Feature(
        "mountPropagation", "inVirtualMachine", mounted(mountPropagation=st.just("Bidirectional"))
    ),
    Feature(
        "volumes",
        "acceptRisk",
        in_volumes(
            gitRepo=st.just({"repository": "x"}),
            flexVolume=st.just({"driver": "x"}),
            nfs=st.just({"server": "x", "path": "/"}),
            iscsi=st.just({"iqn": "x"}),
            later=st.just({}),
        ),
    ),
    Feature("unknown field", "acceptRisk", unknown_field),
    Feature("shareProcessNamespace", None, in_spec(shareProcessNamespace=_TRUE)),
    Feature(
        "paddock's volumes",
        None,
        mounted(
            name=st.sampled_from(
                ["paddock-dispatch", "paddock-vitals", "paddock-stage", "paddock-x"]
            ),
            mountPath=st.sampled_from(["/mnt", "/run/paddock/token", "/"]),
            subPath=st.sampled_from(["", "token"]),
        ),
    ),
    Feature(
        "variables from paddock's volumes",
        None,
        in_container(
            env=st.sampled_from(["paddock-stage", "paddock-dispatch", "paddock-vitals"]).map(
                lambda volume: [
                    {"name": "A", "value": "a"},
                    {
                        "name": "B",
                        "valueFrom": {
                            "fileKeyRef": {"volumeName": volume, "path": "jit", "key": "B"}
                        },
                    },
                ]
            )
        ),
    ),
    Feature(
        "unknown sources of variables",
        "acceptRisk",
        in_container(env=st.just([{"name": "A", "valueFrom": {"laterRef": {"name": "a"}}}])),
    ),
    Feature(
        "unknown sources of all variables",
        "acceptRisk",
        in_container(envFrom=st.just([{"laterRef": {"name": "a"}}])),
    ),
    Feature(
        "paddock's directory",
        None,
        mounted(
            mountPath=st.sampled_from(
                [
                    *("/run/paddock", "/run/paddock/stage", "/run/paddock/stage/run"),
                    *("/run//paddock/", "/run/x/../paddock", "/var/run/paddock/token"),
                    *("//run/paddock", "run/paddock"),
                ]
            )
        ),
    ),
    Feature(
        "tokens",
        None,
        in_volumes(
            projected=_token(
                *(None, "", "paddock.dev/dispatch", "paddock.dev/vitals"),
                *("https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local"),
                *("api", "k3s", "https://oidc.eks.eu-west-1.amazonaws.com/id/1"),
            )
        ),
    ),
    Feature("account", None, in_spec(serviceAccountName=st.just("admin"))),
    Feature("old account", None, in_spec(serviceAccount=st.just("admin"))),
    Feature("automount", None, in_spec(automountServiceAccountToken=_TRUE)),
    Feature(
        "ephemeralContainers",
        None,
        in_spec(ephemeralContainers=st.just([{"name": "debug", "image": "x"}])),
    ),
    Feature(
        "restarts",
        None,
        lambda draw, template: draw(st.sampled_from(template["spec"]["containers"])).update(
            restartPolicy="Always"
        ),
    ),
    Feature(
        "paddock's containers",
        None,
        lambda draw, template: draw(
            st.sampled_from([template["spec"]["initContainers"], template["spec"]["containers"]])
        ).append({"name": draw(st.sampled_from(["pull", "poller", "vitals"])), "image": "x"}),
    ),
    Feature(
        "volumes of paddock's names",
        None,
        lambda draw, template: template["spec"]["volumes"].append(
            {"name": draw(st.sampled_from(["paddock-dispatch", "paddock-x"])), "emptyDir": {}}
        ),
    ),
]
#: The features that ordinary jobs use.
HARMLESS = [
    Feature("root", None, in_any_context(runAsUser=st.just(0), runAsNonRoot=st.just(False))),
    Feature("sudo", None, in_container_context(allowPrivilegeEscalation=_TRUE)),
    Feature(
        "default capabilities",
        None,
        in_container_context(
            capabilities=st.sampled_from(
                [
                    {"add": ["CHOWN", "SETUID", "SETGID"]},
                    {"drop": ["NET_RAW"]},
                    {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
                    {},
                ]
            )
        ),
    ),
    Feature("profile", None, in_any_context(seccompProfile=st.just({"type": "RuntimeDefault"}))),
    Feature("user namespace", None, in_spec(hostUsers=st.just(False))),
    Feature(
        "storage",
        None,
        in_volumes(
            emptyDir=st.sampled_from([{}, {"medium": "Memory", "sizeLimit": "1Gi"}]),
            configMap=st.just({"name": "ca"}),
            secret=st.just({"secretName": "npm"}),
            persistentVolumeClaim=st.just({"claimName": "cache", "readOnly": True}),
            ephemeral=st.just({"volumeClaimTemplate": {"spec": {}}}),
            image=st.just({"reference": "tools:1"}),
            csi=st.just({"driver": "secrets-store.csi.k8s.io"}),
            projected=_token("sts.amazonaws.com", "api://AzureADTokenExchange"),
        ),
    ),
    Feature("mounts", None, mounted(mountPath=st.sampled_from(["/var/run", "/run", "/run/x"]))),
    Feature(
        "environment",
        None,
        in_container(
            env=st.sampled_from(
                [
                    {"secretKeyRef": {"name": "a", "key": "b"}},
                    {"fieldRef": {"fieldPath": "metadata.name"}},
                    {"fileKeyRef": {"volumeName": "work", "path": "env", "key": "A"}},
                ]
            ).map(lambda source: [{"name": "A", "valueFrom": source}]),
            envFrom=st.just([{"prefix": "X_", "secretRef": {"name": "a"}}]),
        ),
    ),
    Feature(
        "probe",
        None,
        in_container(
            startupProbe=st.sampled_from(
                [{"exec": {"command": ["docker", "info"]}}, {"httpGet": {"port": 80, "host": ""}}]
            )
        ),
    ),
    Feature(
        "placement",
        None,
        in_spec(
            nodeSelector=st.just({"pool": "runners"}),
            tolerations=st.just([{"operator": "Exists"}]),
            topologySpreadConstraints=st.just([]),
            nodeName=st.just("node-1"),
        ),
    ),
    Feature(
        "resources",
        None,
        in_container(
            resources=st.just(
                {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
            )
        ),
    ),
    Feature("overhead", None, in_spec(overhead=st.just({"cpu": "250m", "memory": "160Mi"}))),
    Feature("nothing", None, in_spec(hostNetwork=st.sampled_from([False, None]))),
]


def templates(*features: Feature) -> st.SearchStrategy[Json]:
    """A template with all of these."""

    @st.composite
    def made(draw: st.DrawFn) -> Json:
        template = plain()
        for feature in features:
            feature.place(draw, template)
        # A feature's value may be drawn from a list that other features share.
        return copy.deepcopy(template)

    return made()
