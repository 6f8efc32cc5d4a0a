"""The `RunnerPool` resource's definition, written from the structs that read it: `python -m
paddock.pools.crd` writes `deploy/crd.yaml`, `--check` says whether it is up to date.

A schema kept by hand differs from the program after a while, and its reader finds out when a pool
stands still. Types, defaults and descriptions come from `PoolSpec` and the comments on its fields. The
schema refuses what it can at once, with a sentence. Other mistakes are found when the pool is mirrored,
and stand in its status.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import inspect as types

from paddock.domain.jobs.labels import MAX_LABEL_LENGTH, MAX_LABELS
from paddock.domain.names import DNS_LABEL_MAX
from paddock.domain.pools.objects import GROUP, KIND, PLURAL, VERSION, PoolStatus
from paddock.domain.pools.terms import MOST
from paddock.fleet.kube.template import PodTemplate
from paddock.pools.spec import PoolSpec

FILE: Final = Path(__file__).parents[3] / "deploy" / "crd.yaml"

Schema = dict[str, Any]

_DURATION: Final = r"^\s*[0-9]{1,9}\s*[smh]?\s*$"
_ANYTHING: Final[Schema] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


_POWERLESS: Final = (
    "all(c, !has(c.securityContext) || !has(c.securityContext.privileged) "
    "|| !c.securityContext.privileged)"
)


def _rule(rule: str, message: str, **more: str) -> Schema:
    return {"rule": " ".join(rule.split()), "message": message, **more}


#: What a type does not say, by field.
_LIMITS: Final[Mapping[str, Schema]] = {
    "spec.labels": {"minItems": 1, "maxItems": MAX_LABELS},
    "spec.labels[]": {"minLength": 1, "maxLength": MAX_LABEL_LENGTH},
    "spec.size": {"minimum": 0, "maximum": MOST},
    "spec.minIdle": {"minimum": 0, "maximum": MOST},
    "spec.maxRunners": {"minimum": 0, "maximum": MOST},
    "spec.runnerGroup": {"minLength": 1, "maxLength": 64},
    "spec.provisioning.maxStarting": {"minimum": 1, "maximum": MOST},
    "spec.stabilisationWindow": {"pattern": _DURATION},
    "spec.provisioning.startTimeout": {"pattern": _DURATION},
    "spec.provisioning.schedulingTimeout": {"pattern": _DURATION},
    "spec.rollout.maxUnavailable": {"pattern": "^[0-9]{1,3}%$"},
    "status.conditions": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    "status.conditions[].lastTransitionTime": {"format": "date-time"},
}

_RULES: Final[Mapping[str, list[Schema]]] = {
    "": [
        _rule(
            f"self.metadata.name.size() <= {DNS_LABEL_MAX} && !self.metadata.name.contains('.')",
            f"a pool's name has at most {DNS_LABEL_MAX} characters: a–z, 0–9 and hyphens",
        ),
    ],
    "spec": [
        _rule(
            "!has(self.size) || (self.minIdle == 0 && !has(self.maxRunners))",
            "size is exact: leave out minIdle and maxRunners, or leave out size",
        ),
        _rule(
            f"""!has(self.template) || self.privileged == 'acceptRisk'
            || (self.privileged == 'inVirtualMachine' && has(self.template.spec.runtimeClassName))
            || (self.template.spec.containers.{_POWERLESS}
            && (!has(self.template.spec.initContainers)
            || self.template.spec.initContainers.{_POWERLESS}))""",
            "a privileged container controls its node: write `privileged: inVirtualMachine` with a "
            "runtimeClassName that gives each Pod a virtual machine, or `privileged: acceptRisk`",
        ),
    ],
    "spec.template.spec": [
        _rule(
            "self.containers.filter(c, c.name == 'runner').size() == 1",
            "there is one container named `runner`, which becomes the runner",
        ),
        _rule(
            "!has(self.volumes) || self.volumes.all(v, !has(v.hostPath))",
            "hostPath volumes are refused: what a job writes there is another job's, or the node's",
        ),
        _rule(
            "[has(self.hostNetwork) && self.hostNetwork, has(self.hostPID) && self.hostPID, "
            "has(self.hostIPC) && self.hostIPC].all(h, !h)",
            "hostNetwork, hostPID and hostIPC are refused: a job would be on its node, not in its Pod",
        ),
        _rule(
            "!has(self.serviceAccountName) && (!has(self.automountServiceAccountToken) || "
            "!self.automountServiceAccountToken)",
            "runners have no account of the cluster: leave out serviceAccountName and "
            "automountServiceAccountToken",
        ),
    ],
}

#: Of a Pod template only what rules look at. The API server checks the rest when a Pod is tried out.
_CONTAINERS: Final[Schema] = {
    "type": "array",
    "maxItems": 20,
    "items": {
        **_ANYTHING,
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "maxLength": DNS_LABEL_MAX},
            "securityContext": {**_ANYTHING, "properties": {"privileged": {"type": "boolean"}}},
        },
    },
}
_POD_SPEC: Final[Schema] = {
    **_ANYTHING,
    "required": ["containers"],
    "properties": {
        "containers": {**_CONTAINERS, "minItems": 1},
        "initContainers": _CONTAINERS,
        "volumes": {
            "type": "array",
            "maxItems": 100,
            "items": {
                **_ANYTHING,
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "hostPath": _ANYTHING},
            },
        },
        **{key: {"type": "boolean"} for key in ("hostNetwork", "hostPID", "hostIPC")},
        "automountServiceAccountToken": {"type": "boolean"},
        "runtimeClassName": {"type": "string"},
        "serviceAccountName": {"type": "string"},
    },
}


def definition() -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["rpool"],
                "categories": ["paddock"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(_columns()),
                    "schema": {"openAPIV3Schema": _root()},
                }
            ],
        },
    }


def _columns() -> Iterator[Schema]:
    for name, kind, path in (
        ("Runners", "integer", ".status.runners"),
        ("Idle", "integer", ".status.idle"),
        ("Queued", "integer", ".status.queued"),
        ("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status'),
        ("Age", "date", ".metadata.creationTimestamp"),
    ):
        yield {"name": name, "type": kind, "jsonPath": path}
    yield {"name": "Labels", "type": "string", "jsonPath": ".spec.labels", "priority": 1}


def _root() -> Schema:
    return {
        "type": "object",
        "description": "A kind of runner: labels, a Pod, and how many of them.",
        "required": ["spec"],
        "x-kubernetes-validations": _RULES[""],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _schema(types.type_info(PoolSpec), "spec"),
            "status": _schema(types.type_info(PoolStatus), "status"),
        },
    }


def _schema(kind: types.Type, path: str) -> Schema:
    return {
        **_plain(kind, path),
        **_LIMITS.get(path, {}),
        **({"x-kubernetes-validations": _RULES[path]} if path in _RULES else {}),
    }


def _plain(kind: types.Type, path: str) -> Schema:
    match kind:
        case types.StructType():
            return _object(kind, path)
        case types.UnionType():
            return _union(kind, path)
        case types.ListType():
            return {"type": "array", "items": _schema(kind.item_type, f"{path}[]")}
        case types.DictType():
            return {
                "type": "object",
                "additionalProperties": _schema(kind.value_type, f"{path}{{}}"),
            }
        case types.LiteralType():
            return {"type": "string", "enum": list(kind.values)}
        case types.StrType() | types.DateTimeType():
            return {"type": "string"}
        case types.IntType():
            return {"type": "integer"}
        case types.BoolType():
            return {"type": "boolean"}
        case _:
            raise TypeError(f"{path} has a type that a schema cannot say: {kind}")


def _union(kind: types.UnionType, path: str) -> Schema:
    """`None` is a field that is left out. A number or a string is Kubernetes' own kind; a fraction is
    written as a string there."""
    rest = [each for each in kind.types if not isinstance(each, types.NoneType)]
    if len(rest) == 1:
        return _plain(rest[0], path)
    if all(isinstance(each, types.StrType | types.IntType | types.FloatType) for each in rest):
        return {"x-kubernetes-int-or-string": True}
    raise TypeError(f"{path} may be too many things: {kind}")


def _object(kind: types.StructType, path: str) -> Schema:
    words = _comments(kind.cls)
    properties, required = {}, []
    for field in kind.fields:
        name = field.encode_name
        inner = f"{path}.{name}"
        if kind.cls is PodTemplate and name == "spec":
            schema = {**_POD_SPEC, "x-kubernetes-validations": _RULES[inner]}
        else:
            schema = _schema(field.type, inner)
        if field.name in words:
            schema = {"description": words[field.name], **schema}
        if field.required:
            required.append(name)
        else:
            schema |= _default(field)
        properties[name] = schema
    return {
        "type": "object",
        **({"required": required} if required else {}),
        "properties": properties,
    }


def _default(field: types.Field) -> Schema:
    """A field's default, where the schema can express it. An empty default is left out."""
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    if isinstance(default, msgspec.Struct):
        # An empty object: the API server fills in its fields' defaults, if there are any.
        filled = any(
            isinstance(value, str | int) for value in msgspec.structs.asdict(default).values()
        )
        return (
            {"default": {}} if filled and field.encode_name in ("provisioning", "rollout") else {}
        )
    if isinstance(default, bool | str) or (isinstance(default, int) and field.name != "vcpu"):
        return {"default": default} if default != "" else {}
    return {}


@cache
def _comments(kind: type) -> Mapping[str, str]:
    """What the `#:` lines before each field say."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each is msgspec.Struct or not issubclass(each, msgspec.Struct):
            continue
        said: list[str] = []
        for line in inspect.getsource(each).splitlines():
            if match := re.match(r" {4}#: ?(.*)", line):
                said.append(match[1].strip())
            elif said and (match := re.match(r" {4}(\w+):", line)):
                # Tags are for readers of the code.
                found[match[1]] = re.sub(r" \(I\d+\)", "", " ".join(said))
                said = []
            else:
                said = []
    return found


def text() -> str:
    written = yaml.safe_dump(
        definition(), sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
    )
    return f"# Written by `python -m paddock.pools.crd` from PoolSpec; do not edit.\n{written}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m paddock.pools.crd", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if it would change"
    )
    given = parser.parse_args(arguments)
    if not given.check:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(text(), "utf-8")
    elif not FILE.exists() or FILE.read_text("utf-8") != text():
        sys.stderr.write(f"{FILE.name} is out of date: run `python -m paddock.pools.crd`.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
