"""The rules for what a runner's Pod may contain (I63).

They are applied to the Pod that would be created, after paddock's parts were added to the template.
Every field is listed in `pod_fields`; a field that is not listed is refused. A list of known attacks
would miss the next one: another spelling, a new field of Kubernetes.

The measure is the Pod Security Standard *baseline* of Kubernetes 1.34. What it refuses is refused here
too, unless the pool's `privileged` permits it. Where paddock refuses more, jobs would get paddock's own
credentials, the cluster's, or another job's files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

#: What a pool permits its Pods, from the least to the most.
Privileged = Literal["refuse", "inVirtualMachine", "acceptRisk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRule:
    #: What the rule refuses, for the documentation's table.
    refuses: str
    why: str
    #: The lowest value of `privileged` that permits this; `None`: no value does.
    permitted_by: Literal["inVirtualMachine", "acceptRisk"] | None = None
    instead: str = "leave it out"
    #: Whether the Pod Security Standard *baseline* refuses this too.
    in_baseline: bool = True

    def permits(self, privileged: Privileged) -> bool:
        return self.permitted_by is not None and privileged in (self.permitted_by, "acceptRisk")

    @property
    def advice(self) -> str:
        if self.permitted_by == "inVirtualMachine":
            return (
                f"{self.instead}, or write `privileged: inVirtualMachine` with a {_RUNTIME_CLASS}"
            )
        if self.permitted_by == "acceptRisk":
            return f"{self.instead}, or write `privileged: acceptRisk`"
        return self.instead


_RUNTIME_CLASS: Final = "runtimeClassName that gives each Pod a virtual machine"

# A virtual machine contains these: they concern the kernel that the Pod runs on.
PRIVILEGED: Final = FieldRule(
    refuses="`privileged` containers",
    why="job code that controls the container controls its node",
    permitted_by="inVirtualMachine",
)
CAPABILITIES: Final = FieldRule(
    refuses="capabilities other than those that baseline lets a container add, in exactly its spelling",
    why="it is not among the capabilities that are safe to add",
    permitted_by="inVirtualMachine",
    instead="add AUDIT_WRITE, CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, MKNOD, NET_BIND_SERVICE, "
    "SETFCAP, SETGID, SETPCAP, SETUID or SYS_CHROOT only",
)
SECCOMP: Final = FieldRule(
    refuses="seccomp profiles other than `RuntimeDefault` and `Localhost`",
    why="every system call of the node's kernel would be open to job code",
    permitted_by="inVirtualMachine",
    instead="use RuntimeDefault or Localhost",
)
APPARMOR: Final = FieldRule(
    refuses="AppArmor profiles other than `RuntimeDefault` and `Localhost`, in fields and annotations",
    why="the container would run without a profile",
    permitted_by="inVirtualMachine",
    instead="use RuntimeDefault or Localhost",
)
PROC_MOUNT: Final = FieldRule(
    refuses="`procMount: Unmasked`",
    why="it shows the parts of /proc that are the node's",
    permitted_by="inVirtualMachine",
)
SYSCTLS: Final = FieldRule(
    refuses="sysctls other than those that are safe in baseline",
    why="it is not among the sysctls that affect one Pod only",
    permitted_by="inVirtualMachine",
)
PROPAGATION: Final = FieldRule(
    refuses="`mountPropagation: Bidirectional`",
    why="mounts that job code makes would appear on the node",
    permitted_by="inVirtualMachine",
    in_baseline=False,
)
# A virtual machine does not contain these: the kubelet or the runtime carries them out on the node.
SELINUX: Final = FieldRule(
    refuses="SELinux types other than the container ones; SELinux users and roles",
    why="the node's own processes would not be protected from the container",
    permitted_by="acceptRisk",
)
HOST_PORT: Final = FieldRule(
    refuses="`hostPort`, `hostIP`",
    why="job code would answer at its node's address",
    permitted_by="acceptRisk",
)
HOST_PROBE: Final = FieldRule(
    refuses="`host` in probes and lifecycle hooks",
    why="the kubelet would send requests from the node to any address",
    permitted_by="acceptRisk",
)
VOLUME_SOURCE: Final = FieldRule(
    refuses="volumes other than configMap, csi, downwardAPI, emptyDir, ephemeral, image, "
    "persistentVolumeClaim, projected and secret",
    why="the kubelet would mount it with the node's rights",
    permitted_by="acceptRisk",
    instead="use a persistentVolumeClaim",
    in_baseline=False,
)
UNLISTED: Final = FieldRule(
    refuses="every field that paddock does not know",
    why="paddock does not know what this field permits",
    permitted_by="acceptRisk",
    in_baseline=False,
)
# No value permits these: they would give job code the node's files and network, or a credential (I21).
HOST: Final = FieldRule(
    refuses="`hostNetwork`, `hostPID`, `hostIPC`, Windows' `hostProcess`",
    why="a job would be on its node, not in its Pod",
)
HOST_PATH: Final = FieldRule(
    refuses="`hostPath` volumes",
    why="files that a job writes there reach other jobs, or the node",
    instead="use a persistentVolumeClaim or an emptyDir",
)
SHARED_PROCESSES: Final = FieldRule(
    refuses="`shareProcessNamespace`",
    why="job code could read the tokens of paddock's containers under /proc",
    in_baseline=False,
)
OWN_VOLUME: Final = FieldRule(
    refuses="mounts of paddock's volumes, variables from their files, and mounts below `/run/paddock`",
    why="it holds paddock's tokens or the runner's credential",
    in_baseline=False,
)
TOKEN: Final = FieldRule(
    refuses="projected ServiceAccount tokens for paddock, for the API server, or for an audience that "
    "`kube.token_audiences` does not list",
    why="a job would hold a credential of the cluster or of paddock",
    instead="name an audience that PADDOCK_KUBE_TOKEN_AUDIENCES lists",
    in_baseline=False,
)
EPHEMERAL: Final = FieldRule(
    refuses="`ephemeralContainers`",
    why="Kubernetes accepts them for Pods that exist, not for new ones",
    in_baseline=False,
)
RESTARTS: Final = FieldRule(
    refuses="`restartPolicy` of containers that are not init containers",
    why="a runner has one job",
    in_baseline=False,
)
#: In the order of the documentation.
RULES: Final = (
    *(PRIVILEGED, CAPABILITIES, SECCOMP, APPARMOR, PROC_MOUNT, SYSCTLS, PROPAGATION),
    *(SELINUX, HOST_PORT, HOST_PROBE, VOLUME_SOURCE, UNLISTED),
    *(HOST, HOST_PATH, SHARED_PROCESSES, OWN_VOLUME, TOKEN, EPHEMERAL, RESTARTS),
)


@dataclass(frozen=True, slots=True)
class FieldFinding:
    """If the field is malformed, `rule` is `None` and `expected` says what it should be."""

    path: str
    rule: FieldRule | None
    expected: str = ""

    @property
    def malformed(self) -> str:
        return f"{self.path} should be {self.expected}"

    def sentence(self, privileged: Privileged, *, runtime_class: bool) -> str | None:
        """The finding as a sentence for the pool's author; `None` if the pool permits it."""
        if self.rule is None:
            return self.malformed
        if not self.rule.permits(privileged):
            return f"{self.path} is refused: {self.rule.why}; {self.rule.advice}"
        if privileged == "inVirtualMachine" and not runtime_class:
            return f"{self.path} needs a {_RUNTIME_CLASS}, or `privileged: acceptRisk`"
        return None
