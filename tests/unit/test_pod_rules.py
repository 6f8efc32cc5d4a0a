"""What a runner's Pod may contain, tested with templates that have a feature in every possible
place."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import PodOrder
from paddock.fleet.kube.pod_rules import RULES, Privileged
from paddock.fleet.kube.settings import KubeSettings
from paddock.fleet.kube.shapes import Placement, TemplateRefused, manifest
from tests.support.pod_security import baseline, containers, restricted
from tests.support.pod_templates import BASELINE, HARMLESS, MORE, Feature, Json, plain, templates

PLACEMENT = Placement(
    namespace="runners",
    service_account="paddock-runner",
    agent_image="agent:1",
    agent_command=("python3", "/opt/paddock/agent"),
    server="http://paddock:8787",
    token_audiences=KubeSettings().audiences,
)
VALUES: tuple[Privileged, ...] = ("refuse", "inVirtualMachine", "acceptRisk")
SHAPES = st.sampled_from(["gated", "single"])


def made(template: Json, *, privileged: Privileged = "refuse", shape: str = "gated") -> Json:
    """The Pod; raises TemplateRefused."""
    described = {"template": template, "privileged": privileged, "shape": shape}
    order = PodOrder(
        runner=RunnerId(UUID(int=1)),
        name=PodName("linux-a"),
        pool="linux",
        spec=json.dumps(described),
    )
    return manifest(order, PLACEMENT)


def refused(template: Json, **described: Any) -> str | None:
    try:
        made(template, **described)
    except TemplateRefused as error:
        return str(error)
    return None


def with_runtime_class(template: Json) -> Json:
    return {**template, "spec": {**template["spec"], "runtimeClassName": "kata"}}


@pytest.mark.parametrize("feature", [*BASELINE, *MORE], ids=repr)
@settings(max_examples=25)
@given(data=st.data(), shape=SHAPES)
def test_a_dangerous_feature_is_refused_wherever_it_stands(
    feature: Feature, data: st.DataObject, shape: str
) -> None:
    """I63, I21"""
    template = data.draw(templates(feature))
    told = refused(template, shape=shape)
    assert told is not None
    assert told.startswith("template")
    assert len(told) < 500


@pytest.mark.parametrize("feature", [*BASELINE, *MORE], ids=repr)
@settings(max_examples=25)
@given(data=st.data(), shape=SHAPES)
def test_each_value_of_privileged_permits_what_its_table_says(
    feature: Feature, data: st.DataObject, shape: str
) -> None:
    """I63"""
    template = data.draw(templates(feature))
    in_machine = refused(with_runtime_class(template), privileged="inVirtualMachine", shape=shape)
    without_class = refused(template, privileged="inVirtualMachine", shape=shape)
    at_risk = refused(template, privileged="acceptRisk", shape=shape)
    assert without_class is not None
    assert (in_machine is None) == (feature.permitted_by == "inVirtualMachine")
    assert (at_risk is None) == (feature.permitted_by is not None)


@pytest.mark.parametrize("feature", HARMLESS, ids=repr)
@settings(max_examples=25)
@given(data=st.data(), shape=SHAPES)
def test_what_ordinary_jobs_use_is_permitted(
    feature: Feature, data: st.DataObject, shape: str
) -> None:
    template = data.draw(templates(feature))
    assert refused(template, shape=shape) is None


@given(data=st.data(), shape=SHAPES, privileged=st.sampled_from(VALUES))
def test_a_pod_that_is_made_meets_baseline_and_shows_its_tokens_to_paddocks_containers_only(
    data: st.DataObject, shape: str, privileged: Privileged
) -> None:
    """I21, I63"""
    features = st.lists(st.sampled_from([*BASELINE, *MORE, *HARMLESS, *HARMLESS]), max_size=4)
    template = data.draw(features.flatmap(lambda chosen: templates(*chosen)))
    try:
        pod = made(with_runtime_class(template), privileged=privileged, shape=shape)
    except TemplateRefused:
        return
    if privileged == "refuse":
        assert baseline(pod) == []
    mounts = {
        container["name"]: {
            mount["name"]
            for mount in container.get("volumeMounts", [])
            if mount["name"].startswith("paddock-")
        }
        for container in containers(pod)
    }
    gated = {
        "poller": {"paddock-stage", "paddock-dispatch"},
        "vitals": {"paddock-stage", "paddock-vitals"},
        "runner": {"paddock-stage"},
    }
    single = {"runner": {"paddock-stage", "paddock-dispatch"}}
    assert {name: found for name, found in mounts.items() if found} == (
        gated if shape == "gated" else single
    )
    tokens = {
        source["serviceAccountToken"]["audience"]: volume["name"]
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        if "serviceAccountToken" in source
    }
    assert tokens["paddock.dev/dispatch"] == "paddock-dispatch"
    assert not {"shareProcessNamespace", "hostPID", "serviceAccount"} & {
        key for key, value in pod["spec"].items() if value
    }
    assert pod["spec"]["serviceAccountName"] == "paddock-runner"
    assert pod["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("shape", ["gated", "single"])
def test_a_template_that_says_nothing_of_security_meets_restricted(shape: str) -> None:
    assert restricted(made(plain(), shape=shape)) == []


@pytest.mark.parametrize(
    ("given_", "made_"),
    [
        ({"add": ["CHOWN"]}, {"add": ["CHOWN"], "drop": ["ALL"]}),
        ({}, {"drop": ["ALL"]}),
        ({"drop": ["NET_RAW"]}, {"drop": ["NET_RAW"]}),
        ({"drop": []}, {"drop": []}),
    ],
)
def test_adding_a_capability_keeps_no_other(given_: Json, made_: Json) -> None:
    template = plain()
    for container in (*template["spec"]["containers"], *template["spec"]["initContainers"]):
        container["securityContext"] = {"capabilities": given_}
    pod = made(template)
    found = [
        container["securityContext"]["capabilities"]
        for container in containers(pod)
        if container["name"] not in ("pull", "poller", "vitals")
    ]
    assert found == [made_] * 4


def test_docker_in_docker_as_it_is_documented_needs_its_opt_in() -> None:
    """I63: a daemon with its socket at /var/run, its probe and the runner's own directories."""
    template = {
        "spec": {
            "initContainers": [
                {
                    "name": "externals",
                    "image": "runner:1",
                    "command": ["cp", "-r", "/home/runner/externals/.", "/externals"],
                    "volumeMounts": [{"name": "externals", "mountPath": "/externals"}],
                },
                {
                    "name": "dind",
                    "image": "docker:dind",
                    "restartPolicy": "Always",
                    "args": ["dockerd", "--host=unix:///var/run/docker.sock", "--group=123"],
                    "securityContext": {"privileged": True, "runAsUser": 0, "runAsNonRoot": False},
                    "startupProbe": {"exec": {"command": ["docker", "info"]}, "periodSeconds": 5},
                    "volumeMounts": [
                        {"name": "work", "mountPath": "/home/runner/_work"},
                        {"name": "socket", "mountPath": "/var/run"},
                        {"name": "externals", "mountPath": "/home/runner/externals"},
                    ],
                },
            ],
            "containers": [
                {
                    "name": "runner",
                    "image": "runner:1",
                    "env": [{"name": "DOCKER_HOST", "value": "unix:///var/run/docker.sock"}],
                    "volumeMounts": [
                        {"name": "work", "mountPath": "/home/runner/_work"},
                        {"name": "socket", "mountPath": "/var/run"},
                    ],
                }
            ],
            "volumes": [{"name": name, "emptyDir": {}} for name in ("work", "socket", "externals")],
        }
    }
    told = refused(template)
    assert told is not None
    assert told.startswith("template.spec.initContainers[dind].securityContext.privileged")
    assert refused(template, privileged="acceptRisk") is None
    assert refused(with_runtime_class(template), privileged="inVirtualMachine") is None


@pytest.mark.parametrize("feature", [*BASELINE, *MORE], ids=repr)
@settings(max_examples=5)
@given(data=st.data())
def test_the_table_says_which_features_baseline_refuses(
    feature: Feature, data: st.DataObject
) -> None:
    """Names and accounts are refused by sentences of their own."""
    template = data.draw(templates(feature))
    told = refused(template)
    assert told is not None
    rules = [rule for rule in RULES if f"is refused: {rule.why};" in told]
    assert all(rule.in_baseline == (feature in BASELINE) for rule in rules)


def test_every_rule_is_in_the_documentations_table_once() -> None:
    assert len({rule.refuses for rule in RULES}) == len({rule.why for rule in RULES}) == len(RULES)
    order = ["inVirtualMachine", "acceptRisk", None]
    assert [order.index(rule.permitted_by) for rule in RULES] == sorted(
        order.index(rule.permitted_by) for rule in RULES
    )
