"""The Pod Security Standards of Kubernetes 1.34, as checks of a Pod.

Written from the text of the standards
(https://kubernetes.io/docs/concepts/security/pod-security-standards/), policy by policy, and not from
paddock's own rules: the two are compared. Each function yields its findings; a Pod that meets the
standard has none. `tests/cluster` compares them with the API server's admission.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

BASELINE_CAPABILITIES = {
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
}
SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
}
SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
RESTRICTED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def containers(pod: Json) -> list[Json]:
    spec = pod["spec"]
    return [
        each
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for each in spec.get(kind) or []
    ]


def contexts(pod: Json) -> Iterator[tuple[str, Json]]:
    yield "the Pod", pod["spec"].get("securityContext") or {}
    for container in containers(pod):
        yield container["name"], container.get("securityContext") or {}


def baseline(pod: Json) -> list[str]:
    return [
        *_host(pod),
        *_contexts(pod),
        *_containers(pod),
        *_annotations(pod),
    ]


def _host(pod: Json) -> Iterator[str]:
    spec = pod["spec"]
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"Host Namespaces: {field}"
    for volume in spec.get("volumes") or []:
        if volume.get("hostPath") is not None:
            yield f"HostPath Volumes: {volume['name']}"
    for sysctl in (spec.get("securityContext") or {}).get("sysctls") or []:
        if sysctl["name"] not in SAFE_SYSCTLS:
            yield f"Sysctls: {sysctl['name']}"


def _contexts(pod: Json) -> Iterator[str]:
    for of, context in contexts(pod):
        if (context.get("windowsOptions") or {}).get("hostProcess"):
            yield f"HostProcess: {of}"
        for field, policy in (("seccompProfile", "Seccomp"), ("appArmorProfile", "AppArmor")):
            profile = context.get(field)
            if profile is not None and profile.get("type") not in ("RuntimeDefault", "Localhost"):
                yield f"{policy}: {of}"
        options = context.get("seLinuxOptions") or {}
        if (
            options.get("type", "") not in SELINUX_TYPES
            or options.get("user")
            or options.get("role")
        ):
            yield f"SELinux: {of}"


def _containers(pod: Json) -> Iterator[str]:
    for container in containers(pod):
        of, context = container["name"], container.get("securityContext") or {}
        if context.get("privileged"):
            yield f"Privileged Containers: {of}"
        added = (context.get("capabilities") or {}).get("add") or []
        if not set(added) <= BASELINE_CAPABILITIES:
            yield f"Capabilities: {of} {added}"
        if context.get("procMount", "Default") not in ("", "Default"):
            yield f"/proc Mount Type: {of}"
        for port in container.get("ports") or []:
            if port.get("hostPort"):
                yield f"Host Ports: {of}"
        hooks = container.get("lifecycle") or {}
        handlers = [
            *(
                container.get(probe)
                for probe in ("livenessProbe", "readinessProbe", "startupProbe")
            ),
            *(hooks.get(hook) for hook in ("postStart", "preStop")),
        ]
        for handler in filter(None, handlers):
            for kind in ("httpGet", "tcpSocket"):
                if (handler.get(kind) or {}).get("host"):
                    yield f"Host Probes / Lifecycle Hooks: {of}"


def _annotations(pod: Json) -> Iterator[str]:
    for key, value in (pod["metadata"].get("annotations") or {}).items():
        if key.startswith("container.apparmor.security.beta.kubernetes.io/") and not (
            value in ("", "runtime/default") or value.startswith("localhost/")
        ):
            yield f"AppArmor: {key}"


def restricted(pod: Json) -> list[str]:
    return [*baseline(pod), *_restricted_volumes(pod), *_restricted_containers(pod)]


def _restricted_volumes(pod: Json) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or []:
        if not set(volume) - {"name"} <= RESTRICTED_VOLUMES:
            yield f"Volume Types: {volume['name']}"


def _restricted_containers(pod: Json) -> Iterator[str]:
    of_pod = pod["spec"].get("securityContext") or {}
    for container in containers(pod):
        of, context = container["name"], container.get("securityContext") or {}
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"Privilege Escalation: {of}"
        if context.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True:
            yield f"Running as Non-root: {of}"
        if context.get("runAsUser", of_pod.get("runAsUser")) == 0:
            yield f"Running as Non-root user: {of}"
        if context.get("seccompProfile", of_pod.get("seccompProfile")) is None:
            yield f"Seccomp: {of}"
        capabilities = context.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or []):
            yield f"Capabilities: {of} keeps some"
        if not set(capabilities.get("add") or []) <= {"NET_BIND_SERVICE"}:
            yield f"Capabilities: {of} adds some"
