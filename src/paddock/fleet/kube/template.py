"""A pool's Pod template: what it must contain, which names are paddock's, and what its Pods cost.

It is an ordinary Pod template, and its Pods run code that paddock's operator did not write.
`pod_checks` decides what such Pods may contain, on the Pod that would be created. It runs when the pool
is described and each time a Pod is created, since a description may bypass the first check.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from paddock.domain.limits import Resources
from paddock.domain.pods.fingerprints import RUNNER_CONTAINER
from paddock.domain.pods.quantities import MOST, mebibytes, milli
from paddock.fleet.kube.pod_checks import Json, malformed

PULL: Final = "pull"
POLLER: Final = "poller"
VITALS: Final = "vitals"
OURS: Final = frozenset({PULL, POLLER, VITALS})
#: The prefix of our volumes' names.
PREFIX: Final = "paddock-"
#: The prefix of our labels' and annotations' names.
_DOMAIN: Final = "paddock.dev/"

#: Requests of the sidecar, which runs beside every job; the poller has ended by then.
AGENT_CPU: Final = "10m"
AGENT_MEMORY: Final = "32Mi"

#: Real Pod specs have some ten levels. Reading one of a thousand exhausts the stack.
_DEEPEST: Final = 50


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


def normalised(template: PodTemplate) -> PodTemplate:
    """The template as the API server would read it: as JSON, with null fields left out. Raises
    ValueError."""
    return msgspec.structs.replace(template, spec=_normalised(template.spec, 0))


def _normalised(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"template.spec has more than {_DEEPEST} levels")
    match value:
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise ValueError("template.spec has a key that is not text: quote it")
            return {
                key: _normalised(each, depth + 1) for key, each in value.items() if each is not None
            }
        case list():
            return [_normalised(each, depth + 1) for each in value]
        case float() if not math.isfinite(value):
            raise ValueError(f"template.spec has the number {value}, which JSON cannot hold")
        case str() | int() | float() | None:
            return value
        case _:
            raise ValueError(
                f"template.spec has a {type(value).__name__}, which JSON cannot hold: quote it"
            )


def problem(template: PodTemplate) -> str | None:
    """Why no Pod can be composed from this normalised template; `None` if one can."""
    return malformed(template.spec) or next(_problems(template), None)


def _problems(template: PodTemplate) -> Iterator[str]:
    yield from _runner_problems(template.spec)
    yield from _name_problems(template)
    yield from _account_problems(template.spec)
    try:
        cost(template)
    except ValueError as error:
        yield f"template: {error}"


def _runner_problems(spec: Json) -> Iterator[str]:
    names = [each["name"] for each in containers(spec)]
    if names.count(RUNNER_CONTAINER) != 1 or RUNNER_CONTAINER not in [
        each["name"] for each in spec["containers"]
    ]:
        yield f"template.spec.containers has one container named `{RUNNER_CONTAINER}`, which becomes it"
    elif not runner(spec).get("image"):
        yield f"template.spec: the container `{RUNNER_CONTAINER}` needs an image"


def _name_problems(template: PodTemplate) -> Iterator[str]:
    for container in containers(template.spec):
        if container["name"] in OURS:
            yield f"template.spec: `{container['name']}` is the name of a container of paddock's own"
    for volume in template.spec.get("volumes", []):
        if volume["name"].startswith(PREFIX):
            yield f"template.spec.volumes: names that begin with `{PREFIX}` are paddock's own"
    for key in (*template.metadata.labels, *template.metadata.annotations):
        if key.startswith(_DOMAIN):
            yield f"template.metadata: `{key}` is paddock's own"


def _account_problems(spec: Json) -> Iterator[str]:
    if spec.get("automountServiceAccountToken"):
        yield "template.spec.automountServiceAccountToken is refused: jobs get no token of the cluster"
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        yield (
            "template.spec.serviceAccountName is refused: all runners have the one that "
            "PADDOCK_KUBE_SERVICE_ACCOUNT names, and none of its rights"
        )


def containers(spec: Json) -> list[Json]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def runner(spec: Json) -> Json:
    found: Json = next(each for each in spec["containers"] if each["name"] == RUNNER_CONTAINER)
    return found


def cost(template: PodTemplate, *, sidecar: bool = True) -> Resources:
    """What a Pod of this template takes from its node: the requests of containers that run at the same
    time, sidecars included, and the runtime's overhead (I48). Raises ValueError."""
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
    total = Resources(vcpu_milli=most[0] + overhead[0], memory_mib=most[1] + overhead[1])
    if max(total.vcpu_milli, total.memory_mib) > MOST:
        raise ValueError("its containers together ask for more than any machine has")
    return total


def _asked(container: Json) -> tuple[int, int]:
    """A limit without a request counts as the request."""
    resources = container.get("resources") or {}
    return _quantities({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _quantities(of: Json) -> tuple[int, int]:
    return milli(of.get("cpu", 0)), mebibytes(of.get("memory", 0))
