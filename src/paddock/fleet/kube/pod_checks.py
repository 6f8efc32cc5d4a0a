"""Whether a Pod may be created, by the rules of `pod_rules` (I63, I21)."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from paddock.fleet.kube.pod_fields import POD_SPEC, short
from paddock.fleet.kube.pod_rules import (
    APPARMOR,
    OWN_VOLUME,
    SECCOMP,
    TOKEN,
    FieldFinding,
    FieldRule,
    Privileged,
)

Json = dict[str, Any]

#: In old clusters these mean what the fields `appArmorProfile` and `seccompProfile` mean in new ones.
_PROFILE_ANNOTATIONS: Final[Mapping[str, FieldRule]] = {
    "container.apparmor.security.beta.kubernetes.io/": APPARMOR,
    "container.seccomp.security.alpha.kubernetes.io/": SECCOMP,
    "seccomp.security.alpha.kubernetes.io/": SECCOMP,
}


def malformed(spec: Json) -> str | None:
    """What is wrong with the first field that lacks the type on which this module and `shapes` rely;
    `None` if no field is wrong."""
    found = POD_SPEC.findings(spec, "template.spec")
    return next((each.malformed for each in found if each.rule is None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnParts:
    """Paddock's volumes that each container mounts, by the container's name; others mount none."""

    prefix: str
    mounts: Mapping[str, Collection[str]]
    #: Where they are mounted.
    directory: str
    #: Whether a template may ask for a token for this audience.
    permits_audience: Callable[[str], bool]


def refusal(pod: Json, own: OwnParts, privileged: Privileged) -> str | None:
    """Why this Pod, whole and well formed, must not be created; `None` if it may."""
    spec = pod["spec"]
    found = (
        *_annotations(pod["metadata"].get("annotations", {})),
        *POD_SPEC.findings(spec, "template.spec"),
        *_own_volumes(spec, own),
        *_tokens(spec, own),
    )
    runtime_class = bool(spec.get("runtimeClassName"))
    sentences = (each.sentence(privileged, runtime_class=runtime_class) for each in found)
    return next(filter(None, sentences), None)


def _annotations(annotations: Mapping[str, str]) -> Iterator[FieldFinding]:
    for key, value in annotations.items():
        for prefix, rule in _PROFILE_ANNOTATIONS.items():
            allowed = value in ("", "runtime/default") or value.startswith("localhost/")
            if key.startswith(prefix) and not allowed:
                yield FieldFinding(f"template.metadata.annotations[{short(key)}]", rule)


def _own_volumes(spec: Json, own: OwnParts) -> Iterator[FieldFinding]:
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind, []):
            path = f"template.spec.{kind}[{short(container['name'])}]"
            expected = list(own.mounts.get(container["name"], ()))
            for mount in container.get("volumeMounts", []):
                if mount["name"] in expected:
                    # Expected once: a second mount is the template's.
                    expected.remove(mount["name"])
                elif mount["name"].startswith(own.prefix) or _within(
                    mount["mountPath"], own.directory
                ):
                    yield FieldFinding(f"{path}.volumeMounts[{short(mount['name'])}]", OWN_VOLUME)
            for device in container.get("volumeDevices", []):
                if str(device.get("name")).startswith(own.prefix):
                    yield FieldFinding(f"{path}.volumeDevices", OWN_VOLUME)
            for variable in container.get("env", []):
                file = variable.get("valueFrom", {}).get("fileKeyRef")
                if file is not None and file["volumeName"].startswith(own.prefix):
                    yield FieldFinding(f"{path}.env", OWN_VOLUME)


def _within(path: str, directory: str) -> bool:
    """In most images /var/run is a link to /run."""
    normal = posixpath.normpath("/" + path.lstrip("/"))
    normal = normal.removeprefix("/var") if normal.startswith("/var/run/") else normal
    return normal == directory or normal.startswith(f"{directory}/")


def _tokens(spec: Json, own: OwnParts) -> Iterator[FieldFinding]:
    for volume in spec.get("volumes", []):
        if volume["name"].startswith(own.prefix):
            continue
        for source in volume.get("projected", {}).get("sources", []):
            token = source.get("serviceAccountToken")
            if token is not None and not own.permits_audience(token.get("audience", "")):
                yield FieldFinding(f"template.spec.volumes[{short(volume['name'])}]", TOKEN)
