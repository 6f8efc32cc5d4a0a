"""The fields of a Pod, each with its type and the rule for its values (I63).

The rule `UNLISTED` refuses a field that is not listed here. "Anything" means that no value of the field
gives job code more than its Pod; the API server judges such values when the Pod is tried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from paddock.fleet.kube.pod_rules import (
    APPARMOR,
    CAPABILITIES,
    EPHEMERAL,
    HOST,
    HOST_PATH,
    HOST_PORT,
    HOST_PROBE,
    PRIVILEGED,
    PROC_MOUNT,
    PROPAGATION,
    RESTARTS,
    SECCOMP,
    SELINUX,
    SHARED_PROCESSES,
    SYSCTLS,
    UNLISTED,
    VOLUME_SOURCE,
    FieldFinding,
    FieldRule,
)


class Node(Protocol):
    def findings(self, value: Any, path: str) -> Iterator[FieldFinding]: ...


@dataclass(frozen=True, slots=True)
class Typed:
    """Any value of this type."""

    kind: type
    word: str

    def findings(self, value: Any, path: str) -> Iterator[FieldFinding]:
        if not isinstance(value, self.kind):
            yield FieldFinding(path, None, self.word)


ANY: Final = Typed(object, "anything")
TEXT: Final = Typed(str, "text")
FLAG: Final = Typed(bool, "true or false")
OBJECT: Final = Typed(dict, "an object")
LIST: Final = Typed(list, "a list")


@dataclass(frozen=True, slots=True)
class Checked:
    kind: Typed
    rule: FieldRule
    allows: Callable[[Any], bool] = lambda _: False

    def findings(self, value: Any, path: str) -> Iterator[FieldFinding]:
        malformed = list(self.kind.findings(value, path))
        if malformed:
            yield from malformed
        elif not self.allows(value):
            yield FieldFinding(path, self.rule)


@dataclass(frozen=True, slots=True)
class ListOf:
    item: Node

    def findings(self, value: Any, path: str) -> Iterator[FieldFinding]:
        if not isinstance(value, list):
            yield FieldFinding(path, None, "a list")
            return
        for number, each in enumerate(value):
            yield from self.item.findings(each, f"{path}[{_called(each, number)}]")


@dataclass(frozen=True, slots=True)
class Fields:
    known: Mapping[str, Node]
    required: tuple[str, ...] = ()
    unlisted: FieldRule = UNLISTED

    def findings(self, value: Any, path: str) -> Iterator[FieldFinding]:
        if not isinstance(value, dict):
            yield FieldFinding(path, None, "an object")
            return
        for key in self.required:
            if key not in value:
                yield FieldFinding(f"{path}.{key}", None, "there")
        for key, each in value.items():
            inner = f"{path}.{short(key)}"
            if key in self.known:
                yield from self.known[key].findings(each, inner)
            else:
                yield FieldFinding(inner, self.unlisted)

    def __or__(self, more: Mapping[str, Node]) -> Fields:
        return Fields({**self.known, **more}, self.required, self.unlisted)


def _called(item: Any, number: int) -> str:
    name = item.get("name") if isinstance(item, dict) else None
    return short(name) if isinstance(name, str) else str(number)


def short(text: str) -> str:
    """Cut to the length of a name: the pool's author chooses these texts, and paddock shows them."""
    return text[:63]


def _one_of(*allowed: object) -> Callable[[Any], bool]:
    return lambda value: any(type(value) is type(each) and value == each for each in allowed)


def _anything(*names: str) -> dict[str, Node]:
    return dict.fromkeys(names, ANY)


_NOT_SET: Final = Checked(FLAG, HOST, _one_of(False))
_TEXTS: Final = ListOf(TEXT)


def _profile(rule: FieldRule) -> Fields:
    allows = _one_of("RuntimeDefault", "Localhost")
    return Fields(
        {"type": Checked(TEXT, rule, allows), "localhostProfile": TEXT}, required=("type",)
    )


_SELINUX: Final = Fields(
    {
        "level": TEXT,
        "type": Checked(
            TEXT,
            SELINUX,
            _one_of("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"),
        ),
        "user": Checked(TEXT, SELINUX, _one_of("")),
        "role": Checked(TEXT, SELINUX, _one_of("")),
    }
)
_EITHER_CONTEXT: Final[Mapping[str, Node]] = {
    **_anything("runAsUser", "runAsGroup", "runAsNonRoot"),
    "appArmorProfile": _profile(APPARMOR),
    "seccompProfile": _profile(SECCOMP),
    "seLinuxOptions": _SELINUX,
    "windowsOptions": Fields(
        {
            "hostProcess": _NOT_SET,
            **_anything("gmsaCredentialSpec", "gmsaCredentialSpecName", "runAsUserName"),
        }
    ),
}
_CAPABILITY: Final = Checked(
    TEXT,
    CAPABILITIES,
    _one_of(
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    ),
)
_CONTAINER_CONTEXT: Final = Fields(
    {
        **_EITHER_CONTEXT,
        **_anything("allowPrivilegeEscalation", "readOnlyRootFilesystem"),
        "capabilities": Fields({"add": ListOf(_CAPABILITY), "drop": _TEXTS}),
        "privileged": Checked(FLAG, PRIVILEGED, _one_of(False)),
        "procMount": Checked(TEXT, PROC_MOUNT, _one_of("", "Default")),
    }
)
_POD_CONTEXT: Final = Fields(
    {
        **_EITHER_CONTEXT,
        **_anything("fsGroup", "fsGroupChangePolicy", "seLinuxChangePolicy"),
        **_anything("supplementalGroups", "supplementalGroupsPolicy"),
        "sysctls": ListOf(
            Fields(
                {
                    "value": ANY,
                    "name": Checked(
                        TEXT,
                        SYSCTLS,
                        _one_of(
                            "kernel.shm_rmid_forced",
                            "net.ipv4.ip_local_port_range",
                            "net.ipv4.ip_local_reserved_ports",
                            "net.ipv4.ip_unprivileged_port_start",
                            "net.ipv4.ping_group_range",
                            "net.ipv4.tcp_fin_timeout",
                            "net.ipv4.tcp_keepalive_intvl",
                            "net.ipv4.tcp_keepalive_probes",
                            "net.ipv4.tcp_keepalive_time",
                            "net.ipv4.tcp_rmem",
                            "net.ipv4.tcp_syncookies",
                            "net.ipv4.tcp_wmem",
                        ),
                    ),
                },
                required=("name",),
            )
        ),
    }
)
_HANDLER: Final = Fields(
    {
        "exec": Fields(_anything("command")),
        "sleep": Fields(_anything("seconds")),
        "grpc": Fields(_anything("port", "service")),
        "httpGet": Fields(
            {
                "host": Checked(TEXT, HOST_PROBE, _one_of("")),
                **_anything("httpHeaders", "path", "port", "scheme"),
            }
        ),
        "tcpSocket": Fields({"host": Checked(TEXT, HOST_PROBE, _one_of("")), "port": ANY}),
    }
)
_PROBE: Final = _HANDLER | _anything(
    *("failureThreshold", "initialDelaySeconds", "periodSeconds", "successThreshold"),
    *("terminationGracePeriodSeconds", "timeoutSeconds"),
)
_RESOURCES: Final = Fields({"limits": OBJECT, "requests": OBJECT, "claims": LIST})
_VARIABLE: Final = Fields(
    {
        **_anything("name", "value"),
        "valueFrom": Fields(
            {
                **dict.fromkeys(
                    ("configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef"), OBJECT
                ),
                # `pod_checks` decides from which volumes.
                "fileKeyRef": Fields(
                    {"volumeName": TEXT, **_anything("key", "optional", "path")},
                    required=("volumeName",),
                ),
            }
        ),
    }
)
_VARIABLES: Final = Fields({"prefix": ANY, "configMapRef": OBJECT, "secretRef": OBJECT})
_CONTAINER: Final = Fields(
    {
        "name": TEXT,
        "image": TEXT,
        "command": _TEXTS,
        "args": _TEXTS,
        "env": ListOf(_VARIABLE),
        "envFrom": ListOf(_VARIABLES),
        "lifecycle": Fields({"postStart": _HANDLER, "preStop": _HANDLER, "stopSignal": TEXT}),
        "livenessProbe": _PROBE,
        "readinessProbe": _PROBE,
        "startupProbe": _PROBE,
        "ports": ListOf(
            Fields(
                {
                    **_anything("containerPort", "name", "protocol"),
                    "hostPort": Checked(ANY, HOST_PORT, _one_of(0)),
                    "hostIP": Checked(TEXT, HOST_PORT, _one_of("")),
                }
            )
        ),
        "resources": _RESOURCES,
        "restartPolicy": Checked(TEXT, RESTARTS),
        "restartPolicyRules": Checked(LIST, RESTARTS),
        "securityContext": _CONTAINER_CONTEXT,
        "volumeDevices": ListOf(Fields(_anything("devicePath", "name"))),
        "volumeMounts": ListOf(
            Fields(
                {
                    "name": TEXT,
                    "mountPath": TEXT,
                    "mountPropagation": Checked(
                        TEXT, PROPAGATION, _one_of("", "None", "HostToContainer")
                    ),
                    **_anything("readOnly", "recursiveReadOnly", "subPath", "subPathExpr"),
                },
                required=("name", "mountPath"),
            )
        ),
        **_anything("imagePullPolicy", "resizePolicy", "stdin", "stdinOnce", "tty", "workingDir"),
        **_anything("terminationMessagePath", "terminationMessagePolicy"),
    },
    required=("name",),
)
_VOLUME: Final = Fields(
    {
        "name": TEXT,
        "hostPath": Checked(ANY, HOST_PATH),
        "projected": Fields(
            {
                "defaultMode": ANY,
                "sources": ListOf(
                    Fields(
                        {
                            **dict.fromkeys(
                                ("clusterTrustBundle", "configMap", "downwardAPI", "secret"), OBJECT
                            ),
                            # `pod_checks` decides which audiences are allowed.
                            "serviceAccountToken": Fields(
                                {"audience": TEXT, **_anything("expirationSeconds", "path")}
                            ),
                        }
                    )
                ),
            }
        ),
        **dict.fromkeys(
            (
                *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
                *("persistentVolumeClaim", "secret"),
            ),
            OBJECT,
        ),
    },
    required=("name",),
    unlisted=VOLUME_SOURCE,
)
_SELECTOR_TERMS: Final = ListOf(Fields({"matchExpressions": LIST, "matchFields": LIST}))
POD_SPEC: Final = Fields(
    {
        "containers": ListOf(_CONTAINER),
        "initContainers": ListOf(_CONTAINER | {"restartPolicy": TEXT}),
        "ephemeralContainers": Checked(LIST, EPHEMERAL, lambda value: value == []),
        "volumes": ListOf(_VOLUME),
        "securityContext": _POD_CONTEXT,
        "hostNetwork": _NOT_SET,
        "hostPID": _NOT_SET,
        "hostIPC": _NOT_SET,
        "shareProcessNamespace": Checked(FLAG, SHARED_PROCESSES, _one_of(False)),
        "affinity": Fields(
            {
                "podAffinity": OBJECT,
                "podAntiAffinity": OBJECT,
                "nodeAffinity": Fields(
                    {
                        "preferredDuringSchedulingIgnoredDuringExecution": LIST,
                        "requiredDuringSchedulingIgnoredDuringExecution": Fields(
                            {"nodeSelectorTerms": _SELECTOR_TERMS}
                        ),
                    }
                ),
            }
        ),
        "overhead": OBJECT,
        "resources": _RESOURCES,
        "runtimeClassName": TEXT,
        # Set by paddock; `paddock.fleet.kube.template` refuses them in a template.
        **_anything("automountServiceAccountToken", "restartPolicy", "serviceAccountName"),
        # `hostUsers: false` gives the Pod a user namespace; true is what it has without the field.
        "hostUsers": FLAG,
        # Where and when the Pod runs, and under which names: the operator's choice.
        **_anything("activeDeadlineSeconds", "dnsConfig", "dnsPolicy", "enableServiceLinks"),
        **_anything("hostAliases", "hostname", "hostnameOverride", "imagePullSecrets", "nodeName"),
        **_anything("nodeSelector", "os", "preemptionPolicy", "priority", "priorityClassName"),
        **_anything("readinessGates", "resourceClaims", "schedulerName", "schedulingGates"),
        **_anything("setHostnameAsFQDN", "subdomain", "terminationGracePeriodSeconds"),
        **_anything("tolerations", "topologySpreadConstraints"),
    },
    required=("containers",),
)
