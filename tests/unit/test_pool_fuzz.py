"""Random RunnerPools and pool files: each is read, or refused in a sentence."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.placement import NodeConstraints
from paddock.domain.pods.pod import PodOrder
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.pools.terms import Terms
from paddock.fleet.kube.shapes import TemplateRefused, manifest
from paddock.pools.spec import PoolFileError, described, parse_pools
from tests.support.pod_security import baseline
from tests.support.pool_objects import ANY_SPEC, JSON
from tests.unit.test_pod_rules import PLACEMENT

slowly = settings(
    max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def ordered(spec: str) -> PodOrder:
    return PodOrder(
        runner=RunnerId(UUID(int=1)),
        name=PodName("linux-a"),
        pool="linux",
        spec=spec,
        avoid=("node-1",),
        exclude=("node-2",),
    )


def read(spec: Any) -> PoolFacts | str:
    """The pool, or why there is none."""
    try:
        return described("linux", msgspec.json.encode(spec))
    except ValueError as error:
        return str(error)


def made(spec: str) -> dict[str, Any] | str:
    """The Pod, or why there is none."""
    try:
        return manifest(ordered(spec), PLACEMENT)
    except TemplateRefused as refused:
        return str(refused)


def mistakes(text: str) -> tuple[str, ...]:
    """None, if the file describes pools."""
    try:
        parse_pools(text, name="pools.yaml")
    except PoolFileError as error:
        return error.mistakes or ("",)
    return ()


@slowly
@given(ANY_SPEC)
def test_an_object_is_read_or_refused_in_a_sentence(spec: Any) -> None:
    """I57: nothing else is raised, so nothing else can stop the pools after it."""
    pool = read(spec)
    if isinstance(pool, str):
        assert pool.encode()
        return
    # What is read can be used.
    Terms.of(pool.spec)
    NodeConstraints.of(pool.spec)
    assert described("linux", pool.spec.encode()) == pool
    if spec.get("template") is None:
        return
    pod = made(pool.spec)
    if isinstance(pod, str):
        # All that cannot be judged before a cluster is known.
        assert "PADDOCK_KUBE_TOKEN_AUDIENCES" in pod
    elif spec.get("privileged", "refuse") == "refuse":
        assert baseline(pod) == []


@slowly
@given(ANY_SPEC)
def test_a_pod_is_made_or_refused_in_a_sentence_for_any_row(spec: Any) -> None:
    assert made(msgspec.json.encode(spec).decode())


@pytest.mark.parametrize("levels", [60, 900, 5_000, 100_000])
@pytest.mark.parametrize("kind", ["{}", "[]"])
def test_levels_without_end_are_refused_in_a_sentence(levels: int, kind: str) -> None:
    begin, end = ('{"a":', "}") if kind == "{}" else ("[", "]")
    runner = '"containers":[{"name":"runner","image":"x"}]'
    deep = f"{begin * levels}1{end * levels}"
    spec = f'{{"labels":["linux"],"template":{{"spec":{{{runner},"nodeSelector":{deep}}}}}}}'
    with pytest.raises(ValueError, match=r"levels|recursion|depth"):
        described("linux", spec.encode())
    assert isinstance(made(spec), str)
    text = (
        "apiVersion: paddock.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: linux}\n"
        f"spec: {spec}\n"
    )
    assert mistakes(text)


@slowly
@given(
    spec=ANY_SPEC,
    name=st.one_of(st.just("linux"), JSON),
    more=st.dictionaries(st.text(max_size=5), JSON, max_size=1),
)
def test_a_document_of_a_pool_file_is_read_or_refused(spec: Any, name: Any, more: Any) -> None:
    document = {
        "apiVersion": "paddock.dev/v1alpha1",
        "kind": "RunnerPool",
        "metadata": {"name": name},
        "spec": spec,
        **more,
    }
    # YAML holds what JSON does, and PyYAML cannot write every character that it reads.
    told = mistakes(json.dumps(document))
    assert all(each.startswith(("pools.yaml", "pool ")) for each in told)


_TAGGED = [
    *("2026-13-45", "!!timestamp x", "!!bool x", "!!int ''", "!!float x", "!!binary '*'"),
    *("!!set {a, b}", "2026-01-01", ".nan", ".inf", "!!binary aGk=", "? [a]\n: b", "&a [*a]"),
    *('"\\ud800"', "!!omap [a: 1]", "{1: 2}", "{null: 1}", "0x_", "190:20:30", "=", "<<: 1"),
]


@pytest.mark.parametrize("value", _TAGGED)
@pytest.mark.parametrize(
    "where",
    [
        "VALUE",
        "metadata: VALUE",
        "metadata: {name: VALUE}",
        "spec: VALUE",
        "spec: {labels: VALUE}",
        "spec: {labels: [linux], template: {spec: {nodeSelector: VALUE}}}",
        "spec: {labels: [linux], template: {spec: {containers: [RUNNER], dnsConfig: VALUE}}}",
        "spec: {labels: [linux], template: {spec: {containers: [RUNNER, {name: x, env: [VALUE]}]}}}",
    ],
)
def test_what_only_yaml_can_say_is_read_or_refused(where: str, value: str) -> None:
    head = "apiVersion: paddock.dev/v1alpha1\nkind: RunnerPool\n"
    name = "" if where.startswith("metadata") else "metadata: {name: linux}\n"
    text = f"{head}{name}{where}\n".replace("VALUE", value)
    text = text.replace("RUNNER", "{name: runner, image: x}")
    assert all(each.encode() for each in mistakes(text))


@pytest.mark.parametrize("kind", ["[%s]", "{<<: [%s]}", "{a: [%s]}"])
def test_aliases_that_stand_for_billions_of_values_are_refused(kind: str) -> None:
    """Each level of them took eight times as long: 0.2 s at five levels, 1.5 s at six."""
    base = "{a: 1}" if "<<" in kind else "[x, x]"
    levels = [f"  x0: &a0 {base}"]
    levels += [
        f"  x{level}: &a{level} " + kind % ", ".join([f"*a{level - 1}"] * 10)
        for level in range(1, 12)
    ]
    head = "apiVersion: paddock.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: linux}\nspec:\n"
    [mistake] = mistakes(head + "\n".join(levels))
    assert "aliases" in mistake


def test_an_alias_in_a_pool_file_stands_for_what_it_names() -> None:
    text = (
        "apiVersion: paddock.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: linux}\n"
        "spec: {labels: &labels [linux]}\n---\n"
        "apiVersion: paddock.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: arm}\n"
        "spec: {labels: &own [arm, &x y], resources: &r {vcpu: 1}}\n"
    )
    assert mistakes(text) == ()


@slowly
@given(st.text(max_size=200))
@example("a: !!python/object:os.system {}")
@example("%YAML 9.9\n---\n")
@example("\u2028")
def test_text_that_is_no_pool_file_is_refused(text: str) -> None:
    assert mistakes(text)
