"""RunnerPool objects, within the schema of their definition and beyond it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from paddock.fleet.kube.pod_fields import POD_SPEC, Checked, Fields, ListOf, Node
from paddock.pools import crd
from tests.support.pod_templates import BASELINE, HARMLESS, MORE, Feature, templates

Json = dict[str, Any]


def _names(node: Node) -> Iterator[str]:
    match node:
        case Fields():
            for name, inner in node.known.items():
                yield name
                yield from _names(inner)
        case ListOf():
            yield from _names(node.item)
        case Checked() | _:
            return


#: Every field of a Pod that the program knows, and some that it does not.
FIELDS = sorted({*_names(POD_SPEC), "serviceAccount", "later", "", "\0", "é" * 70})
_TEXT = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            *("runner", "poller", "paddock-dispatch", "work", "Always", "Unconfined", "ALL"),
            *("1", "500m", "4Gi", "1e999999", "1E+999999m", "-1", "NaN", "9" * 50, "/run/paddock"),
            "\0",
        ]
    ),
)
_SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    _TEXT,
)
#: JSON of any shape, with the names of known fields.
JSON = st.recursive(
    _SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=12,
)


#: Values of a wrong type for most fields.
_WRONG: list[Any] = ["x", 7, True, None, [], {}, ["x"], [{}], {"x": "x"}, [None], ""]


def from_schema(schema: Json) -> st.SearchStrategy[Any]:
    """Values that an API server with this schema accepts, apart from its rules in CEL."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        pattern = schema.get("pattern")
        text = st.from_regex(pattern, fullmatch=True) if pattern else _TEXT
        return st.one_of(st.integers(-(2**40), 2**40), text)
    match schema["type"]:
        case "object":
            return _objects(schema)
        case "array":
            most = min(schema.get("maxItems", 3), 3)
            return st.lists(
                from_schema(schema["items"]), min_size=schema.get("minItems", 0), max_size=most
            )
        case "string":
            return st.one_of(_TEXT, st.text(max_size=300)).filter(
                lambda text: schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 300)
            )
        case "integer":
            return st.integers(schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1))
        case "boolean":
            return st.booleans()
        case kind:
            raise TypeError(kind)


def _objects(schema: Json) -> st.SearchStrategy[Json]:
    if "additionalProperties" in schema:
        return st.dictionaries(_TEXT, from_schema(schema["additionalProperties"]), max_size=3)
    fields = {name: from_schema(inner) for name, inner in schema.get("properties", {}).items()}
    required = {name: fields.pop(name) for name in schema.get("required", [])}
    known = st.fixed_dictionaries(required, optional=fields)
    if not schema.get("x-kubernetes-preserve-unknown-fields"):
        return known
    more = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3)
    return st.tuples(more, known).map(lambda both: {**both[0], **both[1]})


def _spec_schema() -> Json:
    [version] = crd.definition()["spec"]["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


WITHIN = from_schema(_spec_schema())


def _featured(features: list[Feature]) -> st.SearchStrategy[Json]:
    chosen = st.lists(st.sampled_from(features), min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {
            "labels": st.just(["linux"]),
            "template": chosen.flatmap(lambda some: templates(*some)),
        },
        optional={
            "shape": st.sampled_from(["gated", "single"]),
            "privileged": st.sampled_from(["refuse", "inVirtualMachine", "acceptRisk"]),
        },
    )


#: Most descriptions drawn from the schema are refused for their sizes. These are not.
SOUND = _featured(HARMLESS)
DANGEROUS = _featured([*BASELINE, *MORE])


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from _places(inner, (*path, key))


@st.composite
def mutated(draw: st.DrawFn, base: st.SearchStrategy[Json]) -> Json:
    """Replaces one to three values, or adds fields; mostly in the Pod's spec, which no type
    describes."""
    changed: Json = copy.deepcopy(draw(base))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(changed))
        if not places:
            break
        if draw(st.integers(0, 5)):
            places = [each for each in places if each[:2] == ("template", "spec")][1:] or places
        *above, last = draw(st.sampled_from(places))
        at: Any = changed
        for key in above:
            at = at[key]
        if isinstance(at, dict) and draw(st.booleans()):
            last = draw(st.sampled_from(FIELDS))
        at[last] = copy.deepcopy(draw(st.one_of(st.sampled_from(_WRONG), JSON)))
    return changed


ANY_SPEC = st.one_of(mutated(SOUND), mutated(SOUND), mutated(DANGEROUS), WITHIN, mutated(WITHIN))
