"""The chart: its objects for given values, and the values it refuses. On a cluster:
`tests/cluster`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import paddock
from paddock.domain.recovery.stale_claim import MINT_DEADLINE
from paddock.fleet.kube.settings import KubeSettings
from paddock.pools.spec import parse_pools
from paddock.settings import load
from paddock.web.server import FINISH_WITHIN
from tests.support.chart import CHART, LEAST, VALUES, Json, merged, named, notes, rendered, run
from tools.chart.parts import DEPLOY, outdated

pytestmark = pytest.mark.usefixtures("helm")


def pod_specs(objects: list[Json]) -> Iterator[Json]:
    for each in objects:
        if each["kind"] in ("Deployment", "Job"):
            yield each["spec"]["template"]["spec"]


def settings(objects: list[Json], directory: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    file = directory / "paddock.toml"
    file.write_text(named(objects, "ConfigMap")["data"]["paddock.toml"])
    # As the Deployment gives them.
    monkeypatch.setenv("PADDOCK_DATABASE_URL", "postgresql://paddock@db/paddock")
    return load(file)


def test_what_comes_from_elsewhere_is_up_to_date() -> None:
    assert [str(file) for file in outdated()] == [], "run `python -m tools.chart`"


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_finds_nothing_wrong(values: Json) -> None:
    done = run("lint", str(CHART), "--strict", values=values)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", VALUES)
def test_every_object_has_its_place_and_its_labels(name: str) -> None:
    objects = rendered(VALUES[name])
    keys = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in objects
    ]
    assert len(keys) == len(set(keys))
    for each in objects:
        cluster_wide = each["kind"] in ("Namespace", "ClusterRole", "ClusterRoleBinding")
        assert ("namespace" in each["metadata"]) is not cluster_wide, each
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "paddock"


def test_the_chart_is_of_the_programs_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == paddock.__version__


def test_the_rights_are_those_that_the_tests_run_with() -> None:
    """Object by object, but for the labels of the release."""
    objects = rendered(LEAST)
    for file in ("roles.yaml", "disruption-budget.yaml"):
        for plain in yaml.safe_load_all((DEPLOY / file).read_text()):
            found = [
                each
                for each in objects
                if each["kind"] == plain["kind"]
                and each["metadata"]["name"] == plain["metadata"]["name"]
                and each["metadata"].get("namespace") == plain["metadata"].get("namespace")
            ]
            assert len(found) == 1, plain
            del found[0]["metadata"]["labels"]
            assert found[0] == plain
    rights = {"Role", "ClusterRole"}
    roles = [each["metadata"]["name"] for each in objects if each["kind"] in rights]
    assert sorted(roles) == ["paddock", "paddock", "paddock-drain"]


def test_the_definition_is_the_one_written_from_the_program() -> None:
    definition = (CHART / "crds" / "runnerpools.yaml").read_text()
    assert definition == (DEPLOY / "crd.yaml").read_text()


@pytest.mark.parametrize("name", VALUES)
def test_the_program_takes_the_settings_it_is_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = VALUES[name]
    read = settings(rendered(values), tmp_path, monkeypatch)
    assert len(read.github.all_apps) == len(values["github"]["apps"])
    assert read.fleet == "kube"
    assert isinstance(read.kube, KubeSettings)
    assert str(read.kube.agent_image).startswith("registry.example.org/paddock")


def test_settings_of_the_file_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = settings(rendered(VALUES["everything"]), tmp_path, monkeypatch)
    assert read.accounts.max_runners == 20
    assert read.recovery.dry_run
    second = read.github.all_apps[1]
    assert (second.app_id, second.mints_per_hour) == (2, 20000)
    assert second.api_url == "https://github.example.org/api/v3"


def test_another_release_shares_no_name_with_the_first() -> None:
    one = rendered(merged(LEAST, runners={"namespace": "one-runners"}), namespace="one")
    other = rendered(merged(LEAST, runners={"namespace": "other-runners"}), namespace="other")
    cluster_wide = [
        {
            (each["kind"], each["metadata"]["name"])
            for each in objects
            if "namespace" not in each["metadata"]
        }
        for objects in (one, other)
    ]
    assert not cluster_wide[0] & cluster_wide[1]


@pytest.mark.parametrize("name", VALUES)
def test_secrets_are_named_and_never_written(name: str) -> None:
    objects = rendered(VALUES[name])
    assert not [each for each in objects if each["kind"] == "Secret"]
    environment = {
        each["name"]: each
        for each in named(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    for variable in ("PADDOCK_DATABASE_URL", "PADDOCK_SEALING_KEYS"):
        assert "value" not in environment[variable]
        assert environment[variable]["valueFrom"]["secretKeyRef"]["name"]
    toml = tomllib.loads(named(objects, "ConfigMap")["data"]["paddock.toml"])
    for app in toml["github"]["apps"]:
        assert "webhook_secret" not in app
        assert app["webhook_secret_file"].startswith("/etc/paddock/apps/")


@pytest.mark.parametrize("name", VALUES)
def test_no_container_of_ours_is_root_or_may_write_to_its_image(name: str) -> None:
    for spec in pod_specs(rendered(VALUES[name])):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume]


def test_a_new_server_answers_before_an_old_one_stops() -> None:
    """I64"""
    deployment = named(rendered(LEAST), "Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    spec = deployment["template"]["spec"]
    [server] = spec["containers"]
    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert server["livenessProbe"]["httpGet"]["path"] == "/healthz"
    keys = [each["topologyKey"] for each in spec["topologySpreadConstraints"]]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]


@pytest.mark.parametrize("drain", [1, 8, 30])
def test_a_server_has_time_for_what_it_holds(drain: int) -> None:
    """It waits until it gets no new requests, and finishes its requests and its mints."""
    values = merged(LEAST, server={"drainSeconds": drain})
    spec = named(rendered(values), "Deployment")["spec"]["template"]["spec"]
    [server] = spec["containers"]
    waits = server["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert waits == drain
    needed = waits + FINISH_WITHIN + MINT_DEADLINE.total_seconds()
    assert spec["terminationGracePeriodSeconds"] >= needed


def test_changed_settings_start_servers_anew() -> None:
    def mark(values: Json) -> str:
        template = named(rendered(values), "Deployment")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/settings"])

    assert mark(LEAST) != mark(merged(LEAST, settings={"accounts": {"weight": 2}}))
    assert mark(LEAST) == mark(merged(LEAST, server={"replicas": 5}))


def test_pools_are_as_the_program_reads_them() -> None:
    objects = rendered(VALUES["everything"])
    pools = [each for each in objects if each["kind"] == "RunnerPool"]
    for pool in pools:
        pool["metadata"] = {"name": pool["metadata"]["name"]}
    facts = parse_pools(yaml.safe_dump_all(pools), name="the chart")
    assert sorted(each.name for each in facts) == ["large", "linux"]


def test_uninstalling_drains_first_with_rights_of_its_own() -> None:
    """I75"""
    objects = rendered(LEAST)
    hooks = [each for each in objects if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    assert sorted(each["kind"] for each in hooks) == [
        "Job",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ]
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in hooks} == {"pre-delete"}
    [container] = named(objects, "Job", "paddock-drain")["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["drain"]
    verbs = {
        verb for rule in named(objects, "Role", "paddock-drain")["rules"] for verb in rule["verbs"]
    }
    pods = [
        rule
        for rule in named(objects, "Role", "paddock-drain")["rules"]
        if rule["resources"] == ["pods"]
    ]
    assert verbs == {"list", "patch", "delete"}
    # Even a faulty drain cannot end a Pod.
    assert pods == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch"]}]


def test_the_runners_namespace_outlives_the_release() -> None:
    """Deleting it would end every job in it."""
    namespace = named(rendered(LEAST), "Namespace", "paddock-runners")
    assert namespace["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_only_webhooks_are_for_the_world() -> None:
    ingress = named(rendered(VALUES["everything"]), "Ingress")
    [rule] = ingress["spec"]["rules"]
    assert [path["path"] for path in rule["http"]["paths"]] == ["/webhooks/github"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"image": {"repository": ""}}, "image.repository is empty"),
        ({"database": {"secretName": ""}}, "database.secretName is empty"),
        ({"sealing": {"secretName": ""}}, "sealing.secretName is empty"),
        ({"github": {"apps": []}}, "github.apps is empty"),
        ({"github": {"apps": [{"appId": "x", "secretName": "s"}]}}, "appId"),
        ({"github": {"apps": [{"appId": 1, "secretName": "s", "privateKey": "x"}]}}, "privateKey"),
        ({"network": {"dispatchEgress": "some"}}, "dispatchEgress"),
        ({"network": {"allowed": [{"cidr": "github.com"}]}}, "cidr"),
        ({"pools": {"Linux": {"labels": []}}}, "Linux"),
        ({"pools": {"linux": {"minIdle": 1}}}, "labels"),
        ({"databse": {"secretName": "x"}}, "databse"),
        ({"runners": {"namespace": "paddock"}}, "a namespace of their own"),
    ],
)
def test_a_mistake_is_told_before_anything_is_installed(change: Json, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        rendered(merged(LEAST, **change))


def test_the_schema_knows_every_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(given: Json, known: Json, path: str) -> None:
        if "properties" not in known:
            return
        assert set(given) == set(known["properties"]) - {"global"}, path
        for key, value in given.items():
            if isinstance(value, dict):
                compare(value, known["properties"][key], f"{path}.{key}")

    compare(values, schema, "values")


@pytest.mark.parametrize("name", VALUES)
def test_the_notes_tell_the_next_step(name: str, tmp_path: Path) -> None:
    said = notes(VALUES[name], tmp_path)
    assert "rollout status deployment/paddock" in said
    assert re.search(r"^3\. ", said, re.MULTILINE)
    assert "helm uninstall paddock" in said
    assert ("There is no pool yet" in said) is not bool(VALUES[name].get("pools"))
