"""What a runner's Pod is made of. Whether Kubernetes agrees is shown in `tests/cluster`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from paddock.domain.ids import RunnerId
from paddock.domain.limits import Resources
from paddock.domain.names import PodName
from paddock.domain.pods.pod import PodOrder
from paddock.fleet.kube.shapes import (
    Placement,
    PodDescription,
    TemplateRefused,
    label_value,
    manifest,
    template_problem,
)
from paddock.fleet.kube.template import PodTemplate, cost
from paddock.pools.spec import PoolFileError, parse_pools

PLACEMENT = Placement(
    namespace="runners",
    service_account="paddock-runner",
    agent_image="agent:1",
    agent_command=("python3", "/opt/paddock/agent"),
    server="http://paddock:8787",
)
RUNNER: dict[str, Any] = {"name": "runner", "image": "runner:1"}
DIND: dict[str, Any] = {
    "name": "docker",
    "image": "docker:dind",
    "restartPolicy": "Always",
    "securityContext": {"privileged": True},
}


def pod(
    *,
    avoid: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    metadata: Any = None,
    described: Any = None,
    **spec: Any,
) -> dict[str, Any]:
    template = {"metadata": metadata or {}, "spec": {"containers": [RUNNER], **spec}}
    order = PodOrder(
        runner=RunnerId(UUID(int=1)),
        name=PodName("linux-a"),
        pool="linux",
        spec=json.dumps({"labels": ["linux"], "template": template, **(described or {})}),
        avoid=avoid,
        exclude=exclude,
    )
    return manifest(order, PLACEMENT)


def container(made: dict[str, Any], name: str) -> dict[str, Any]:
    spec = made["spec"]
    [found] = [each for each in spec["initContainers"] + spec["containers"] if each["name"] == name]
    assert isinstance(found, dict)
    return found


def mounted(made: dict[str, Any], name: str) -> list[str]:
    return [each["name"] for each in container(made, name).get("volumeMounts", [])]


def test_the_image_is_pulled_before_the_poller_asks_and_vitals_come_last() -> None:
    """I67"""
    made = pod()
    assert [each["name"] for each in made["spec"]["initContainers"]] == ["pull", "poller", "vitals"]
    assert container(made, "pull")["image"] == "runner:1"
    assert container(made, "vitals")["restartPolicy"] == "Always"
    assert "restartPolicy" not in container(made, "poller")


#: The beginning of bin/Runner.Listener.deps.json of a release.
BUILT_FROM = """{
  "runtimeTarget": {"name": ".NETCoreApp,Version=v8.0/linux-x64", "signature": ""},
  "targets": {
    ".NETCoreApp,Version=v8.0/linux-x64": {
      "Runner.Listener/2.336.0": {
        "dependencies": {"Runner.Common": "2.336.0"}
      }
    }
  }
}
"""


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (BUILT_FROM, "2.336.0"),
        (json.dumps(json.loads(BUILT_FROM)), "2.336.0"),
        ('"Runner.Listener/' + "9" * 5000 + '"', "9" * 32),
        ("{}", ""),
        (None, ""),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_the_first_init_container_tells_the_version_of_the_runner_in_its_image(
    tmp_path: Path, content: str | None, told: str, named: bool
) -> None:
    """Whatever the image holds, the container ends well."""
    directory, log = tmp_path / "actions runner", tmp_path / "log"
    (directory / "bin").mkdir(parents=True)
    log.touch()
    if content is not None:
        (directory / "bin" / "Runner.Listener.deps.json").write_text(content)
    env = [
        {"name": "PADDOCK_RUNNER_HOME", "value": str(directory)},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    made = container(pod(containers=[{**RUNNER, "env": env if named else []}]), "pull")
    assert made.get("env", []) == (env[:1] if named else [])

    shell, flag, script = made["command"]
    ended = subprocess.run(
        [shell, flag, script.replace("/dev/termination-log", str(log))],
        cwd=tmp_path if named else directory,
        env={"PADDOCK_RUNNER_HOME": str(directory)} if named else {},
        capture_output=True,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert log.read_text() == told


def test_a_token_is_mounted_only_where_it_is_needed() -> None:
    """I21: the runner has none, and no account of the cluster."""
    made = pod()
    assert mounted(made, "poller") == ["paddock-stage", "paddock-dispatch"]
    assert mounted(made, "vitals") == ["paddock-stage", "paddock-vitals"]
    assert mounted(made, "runner") == ["paddock-stage"]
    assert mounted(made, "pull") == []
    assert made["spec"]["automountServiceAccountToken"] is False
    audiences = {
        volume["name"]: volume["projected"]["sources"][0]["serviceAccountToken"]["audience"]
        for volume in made["spec"]["volumes"]
        if "projected" in volume
    }
    assert audiences == {
        "paddock-dispatch": "paddock.dev/dispatch",
        "paddock-vitals": "paddock.dev/vitals",
    }


def test_the_jit_lies_in_memory() -> None:
    [stage] = [each for each in pod()["spec"]["volumes"] if each["name"] == "paddock-stage"]
    assert stage["emptyDir"]["medium"] == "Memory"


def test_a_pod_is_protected_from_birth_and_has_no_owner() -> None:
    """I42, I22"""
    metadata = pod()["metadata"]
    assert metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert metadata["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert metadata["finalizers"] == ["paddock.dev/verdict"]
    assert metadata["labels"]["paddock.dev/pool"] == "linux"
    assert "ownerReferences" not in metadata


def test_nothing_runs_as_root_or_with_capabilities_unless_the_template_says_so() -> None:
    made = pod()
    assert made["spec"]["securityContext"]["runAsNonRoot"] is True
    assert made["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for name in ("pull", "poller", "vitals", "runner"):
        context = container(made, name)["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
    sudo = {**RUNNER, "securityContext": {"allowPrivilegeEscalation": True}}
    context = container(pod(containers=[sudo]), "runner")["securityContext"]
    assert context["allowPrivilegeEscalation"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_our_parts_run_as_the_runners_user() -> None:
    """Only the runner may read what the poller leaves."""
    made = pod(containers=[{**RUNNER, "securityContext": {"runAsUser": 1234}}])
    assert container(made, "poller")["securityContext"]["runAsUser"] == 1234


def test_the_runner_is_started_by_our_script_with_the_templates_own_command() -> None:
    """I60"""
    assert container(pod(), "runner")["command"] == ["/bin/sh", "/run/paddock/stage/run"]
    made = pod(containers=[{**RUNNER, "command": ["a"], "args": ["b"]}])
    assert container(made, "runner")["command"] == ["/bin/sh", "/run/paddock/stage/run"]
    assert container(made, "runner")["args"] == ["a", "b"]


@pytest.mark.parametrize("shape", ["gated", "single"])
def test_the_start_script_is_told_which_program_the_pool_names(shape: str) -> None:
    """I89"""
    made = pod(described={"shape": shape, "runner": "act-runner"})
    named = {"name": "PADDOCK_RUNNER", "value": "act-runner"}
    assert named in container(made, "runner")["env"]
    unnamed = container(pod(described={"shape": shape}), "runner").get("env", [])
    assert "PADDOCK_RUNNER" not in [each["name"] for each in unnamed]


def test_a_runner_that_is_told_to_stop_has_time() -> None:
    """I59"""
    assert pod()["spec"]["terminationGracePeriodSeconds"] == 60
    assert pod(terminationGracePeriodSeconds=9)["spec"]["terminationGracePeriodSeconds"] == 9


def test_a_runner_that_is_told_to_stop_is_heard_first_unless_its_template_has_its_own_way() -> None:
    """S4: its log goes with its container."""
    heard = {"preStop": {"sleep": {"seconds": 1}}}
    assert container(pod(), "runner")["lifecycle"] == heard
    own = {"preStop": {"exec": {"command": ["/bin/true"]}}}
    made = pod(containers=[{**RUNNER, "lifecycle": own}])
    assert container(made, "runner")["lifecycle"] == own
    # One that waits for work in the same container has nothing to say.
    assert "lifecycle" not in container(pod(described={"shape": "single"}), "runner")


def test_failing_hosts_are_avoided_softly_beside_what_the_template_prefers() -> None:
    """I51"""
    own = {"weight": 1, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    made = pod(avoid=("node-7",), affinity={"nodeAffinity": {preferred: [own]}})
    first, second = made["spec"]["affinity"]["nodeAffinity"][preferred]
    assert first == own
    [field] = second["preference"]["matchFields"]
    assert field == {"key": "metadata.name", "operator": "NotIn", "values": ["node-7"]}
    assert "affinity" not in pod()["spec"]


def test_hosts_with_a_fault_are_not_taken_whichever_term_of_the_template_holds() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    ssd = {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}
    own = {"nodeAffinity": {required: {"nodeSelectorTerms": [ssd, {"matchFields": []}]}}}
    excluded = [
        {"key": "metadata.name", "operator": "NotIn", "values": [name]}
        for name in ("mac-1", "mac-2")
    ]
    for affinity, terms in ((own, 2), ({}, 1)):
        made = pod(exclude=("mac-1", "mac-2"), affinity=affinity)["spec"]["affinity"][
            "nodeAffinity"
        ]
        found = made[required]["nodeSelectorTerms"]
        assert [term["matchFields"] for term in found] == [excluded] * terms
        if affinity:
            assert found[0]["matchExpressions"] == ssd["matchExpressions"]


def test_one_container_polls_and_runs_in_the_single_shape() -> None:
    made = pod(described={"shape": "single"})
    assert made["spec"]["initContainers"] == []
    assert mounted(made, "runner") == ["paddock-stage", "paddock-dispatch"]
    script = container(made, "runner")["command"][2]
    assert script.index("poll") < script.index("exec /bin/sh /run/paddock/stage/run")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}, "hostPath"),
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostPID": True}, "hostPID"),
        ({"serviceAccountName": "admin"}, "serviceAccountName"),
        ({"automountServiceAccountToken": True}, "automountServiceAccountToken"),
        ({"containers": [{"name": "other", "image": "x"}]}, "one container named `runner`"),
        ({"containers": [{"name": "runner"}]}, "needs an image"),
        ({"containers": "x"}, "containers should be a list"),
        ({"initContainers": [{"name": "poller"}]}, "paddock's own"),
        ({"volumes": [{"name": "paddock-stage"}]}, "paddock's own"),
        ({"initContainers": [DIND]}, "controls its node"),
        (
            {"containers": [{**RUNNER, "resources": {"requests": {"memory": "lots"}}}]},
            "no amount of memory",
        ),
        (
            {
                "volumes": [
                    {
                        "name": "x",
                        "projected": {
                            "sources": [
                                {"serviceAccountToken": {"audience": "paddock.dev/dispatch"}}
                            ]
                        },
                    }
                ]
            },
            "name an audience",
        ),
    ],
)
def test_what_would_hand_a_job_the_node_or_our_tokens_is_refused(spec: Any, words: str) -> None:
    """I21, I63"""
    with pytest.raises(TemplateRefused, match=words):
        pod(**spec)


@pytest.mark.parametrize("forks", ["ignore", "mark", "refuse"])
def test_a_pod_says_what_its_pool_does_about_strangers(forks: str) -> None:
    """For policies, and for the template: a container can have it in its environment."""
    labels = pod(described={"forks": forks})["metadata"]["labels"]
    assert labels["paddock.dev/forks"] == forks


def test_labels_of_ours_cannot_be_taken() -> None:
    with pytest.raises(TemplateRefused, match="paddock's own"):
        pod(metadata={"labels": {"paddock.dev/owner": "me"}})


def test_docker_in_docker_needs_a_virtual_machine_or_the_owners_word() -> None:
    """I63"""
    template = PodTemplate(spec={"containers": [RUNNER], "initContainers": [DIND]})
    in_vm = PodTemplate(spec={**template.spec, "runtimeClassName": "kata"})
    assert template_problem(PodDescription(template=template))
    assert template_problem(PodDescription(template=in_vm))
    assert template_problem(PodDescription(template=template, privileged="inVirtualMachine"))
    assert template_problem(PodDescription(template=in_vm, privileged="inVirtualMachine")) is None
    assert template_problem(PodDescription(template=template, privileged="acceptRisk")) is None


def test_the_runtimes_overhead_and_sidecars_are_part_of_the_cost() -> None:
    """I48"""
    template = PodTemplate(
        spec={
            "containers": [{**RUNNER, "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}],
            "initContainers": [
                {**DIND, "resources": {"limits": {"memory": "1Gi"}}},
                {"name": "warm", "resources": {"requests": {"cpu": "3"}}},
            ],
            "overhead": {"cpu": "250m", "memory": "160Mi"},
        }
    )
    assert cost(template) == Resources(vcpu_milli=3250, memory_mib=5120 + 32 + 160)


def test_a_pools_cost_is_what_it_says_or_what_its_template_asks_for() -> None:
    text = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux}
spec:
  labels: [linux]
  template: {spec: {containers: [{name: runner, image: x, resources: {requests: {cpu: 2}}}]}}
"""
    [pool] = parse_pools(text, name="x")
    assert pool.cost == Resources(vcpu_milli=2010, memory_mib=32)
    [pool] = parse_pools(text + "  resources: {vcpu: 4}\n", name="x")
    assert pool.cost == Resources(vcpu_milli=4000)


def test_another_template_makes_other_pods() -> None:
    text = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux}
spec: {labels: [linux], template: {spec: {containers: [{name: runner, image: IMAGE}]}}}
"""
    first, same, other = (
        parse_pools(text.replace("IMAGE", image), name="x")[0].spec_hash for image in "aab"
    )
    assert first == same != other


def test_a_pool_file_with_a_template_that_is_refused_says_why() -> None:
    text = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux}
spec: {labels: [linux], template: {spec: {containers: []}}}
"""
    with pytest.raises(PoolFileError, match="one container named `runner`"):
        parse_pools(text, name="x")


@pytest.mark.parametrize(
    ("owner", "value"), [("acme", "acme"), ("a/b", "a-b"), ("-x-", "x"), ("é" * 3, ""), ("7", "7")]
)
def test_an_owner_becomes_a_labels_value(owner: str, value: str) -> None:
    assert label_value(owner) == value
    assert len(label_value(owner * 100)) <= 63
