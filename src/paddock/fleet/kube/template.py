"""A pool's Pod template: what may stand in it, and what its Pods cost.

It is an ordinary Pod template, and its Pods run code that strangers write. So what would hand such code
the node, or a token of ours, is refused when the pool is described, in a sentence, and again whenever a
Pod is made: the description may have come another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from paddock.domain.fingerprints import RUNNER_CONTAINER
from paddock.domain.limits import Resources
from paddock.domain.quantities import mebibytes, milli
from paddock.fleet.kube.reviews import AUDIENCES

#: What a pool says to containers that could take over their node (I63).
Privileged = Literal["refuse", "inVirtualMachine", "acceptRisk"]

PULL: Final = "pull"
POLLER: Final = "poller"
VITALS: Final = "vitals"
OURS: Final = frozenset({PULL, POLLER, VITALS})
#: Our volumes' names begin so.
PREFIX: Final = "paddock-"

_HOST: Final = ("hostNetwork", "hostPID", "hostIPC")
#: What a privileged container is by other names.
_MIGHTY: Final = frozenset({"ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO", "BPF"})

#: Of the sidecar, which runs beside every job; the poller's time is over by then.
AGENT_CPU: Final = "10m"
AGENT_MEMORY: Final = "32Mi"

Json = dict[str, Any]


class TemplateMetadata(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodTemplate(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    metadata: TemplateMetadata = TemplateMetadata()
    #: An ordinary PodSpec. Its container `runner` becomes the runner.
    spec: Json


def problem(template: PodTemplate, *, privileged: Privileged) -> str | None:
    """What is wrong with it, for whoever wrote it; `None` if nothing is."""
    return next(_problems(template, privileged), None)


def _problems(template: PodTemplate, privileged: Privileged) -> Iterator[str]:
    spec = template.spec
    yield from _shape(spec)
    yield from _reserved(template)
    yield from _host(spec)
    if privileged != "acceptRisk":
        yield from _mighty(spec, privileged)
    yield from _credentials(spec)
    try:
        cost(template)
    except ValueError as error:
        yield f"template: {error}"


def _shape(spec: Json) -> Iterator[str]:
    for key in ("containers", "initContainers", "volumes"):
        if not isinstance(spec.get(key, []), list) or not all(
            isinstance(each, dict) for each in spec.get(key, [])
        ):
            yield f"template.spec.{key} is a list of objects"
            return
    names = [each.get("name") for each in containers(spec)]
    if names.count(RUNNER_CONTAINER) != 1 or RUNNER_CONTAINER not in [
        each.get("name") for each in spec.get("containers", [])
    ]:
        yield f"template.spec.containers has one container named `{RUNNER_CONTAINER}`, which becomes it"
        return
    if not runner(spec).get("image"):
        yield f"template.spec: the container `{RUNNER_CONTAINER}` needs an image"


def _reserved(template: PodTemplate) -> Iterator[str]:
    for container in containers(template.spec):
        if container.get("name") in OURS:
            yield f"template.spec: `{container['name']}` is the name of a container of paddock's own"
    for volume in template.spec.get("volumes", []):
        if str(volume.get("name", "")).startswith(PREFIX):
            yield f"template.spec.volumes: names that begin with `{PREFIX}` are paddock's own"
    ours = [
        key
        for key in (*template.metadata.labels, *template.metadata.annotations)
        if key.startswith("paddock.dev/")
    ]
    if ours:
        yield f"template.metadata: `{ours[0]}` is paddock's own"


def _host(spec: Json) -> Iterator[str]:
    for key in _HOST:
        if spec.get(key):
            yield f"template.spec.{key} is refused: a job would be on its node, not in its Pod"
    for volume in spec.get("volumes", []):
        if "hostPath" in volume:
            yield (
                f"template.spec.volumes: `{volume.get('name')}` is a hostPath, which is refused: what "
                "a job writes there is another job's, or the node's"
            )


def _mighty(spec: Json, privileged: Privileged) -> Iterator[str]:
    for container in containers(spec):
        context = container.get("securityContext") or {}
        added = {str(each).removeprefix("CAP_") for each in _added(context)}
        if not context.get("privileged") and not added & _MIGHTY:
            continue
        name = container.get("name")
        if privileged == "inVirtualMachine":
            if not spec.get("runtimeClassName"):
                yield (
                    f"template.spec: `{name}` is privileged, and `privileged: inVirtualMachine` needs "
                    "a runtimeClassName that gives each Pod a virtual machine"
                )
        else:
            yield (
                f"template.spec: `{name}` is privileged, and whoever controls it controls its node: "
                "write `privileged: inVirtualMachine` with a runtimeClassName that gives each Pod a "
                "virtual machine, or `privileged: acceptRisk`"
            )
        return


def _added(context: Json) -> Sequence[Any]:
    capabilities = context.get("capabilities") or {}
    added: Sequence[Any] = capabilities.get("add") or []
    return added


def _credentials(spec: Json) -> Iterator[str]:
    if spec.get("automountServiceAccountToken"):
        yield "template.spec.automountServiceAccountToken is refused: jobs get no token of the cluster"
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        yield (
            "template.spec.serviceAccountName is refused: all runners have the one that "
            "PADDOCK_KUBE_SERVICE_ACCOUNT names, and none of its rights"
        )
    for volume in spec.get("volumes", []):
        for source in (volume.get("projected") or {}).get("sources") or []:
            token = source.get("serviceAccountToken")
            if token is not None and token.get("audience") in (None, "", *AUDIENCES):
                yield (
                    f"template.spec.volumes: `{volume.get('name')}` holds a token for paddock or for "
                    "the cluster; name another audience"
                )


def containers(spec: Json) -> list[Json]:
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def runner(spec: Json) -> Json:
    found: Json = next(each for each in spec["containers"] if each.get("name") == RUNNER_CONTAINER)
    return found


def cost(template: PodTemplate, *, sidecar: bool = True) -> Resources:
    """What a Pod of it takes from its node: what its containers and sidecars ask for at the same time,
    and what the runtime takes for itself (I48). Raises ValueError."""
    spec = template.spec
    beside = [
        each for each in spec.get("initContainers", []) if each.get("restartPolicy") == "Always"
    ]
    asked = [_asked(each) for each in [*spec.get("containers", []), *beside]]
    if sidecar:
        asked.append((milli(AGENT_CPU), mebibytes(AGENT_MEMORY)))
    before = [
        _asked(each)
        for each in spec.get("initContainers", [])
        if each.get("restartPolicy") != "Always"
    ]
    overhead = _quantities(spec.get("overhead") or {})
    together = tuple(map(sum, zip(*asked, strict=True)))
    most = [max(each) for each in zip(together, *before, strict=True)]
    return Resources(vcpu_milli=most[0] + overhead[0], memory_mib=most[1] + overhead[1])


def _asked(container: Json) -> tuple[int, int]:
    """A limit without a request is one."""
    resources = container.get("resources") or {}
    return _quantities({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _quantities(of: Json) -> tuple[int, int]:
    return milli(of.get("cpu", 0)), mebibytes(of.get("memory", 0))
