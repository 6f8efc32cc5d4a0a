"""The definition of RunnerPool matches what the program reads. The API server's view:
`tests/cluster`."""

from __future__ import annotations

from typing import Any

import yaml

from paddock.domain.pools.objects import PoolStatus
from paddock.pools import crd
from paddock.pools.spec import PoolSpec

ROLES = crd.FILE.with_name("roles.yaml")
BUDGET = crd.FILE.with_name("disruption-budget.yaml")


def version() -> dict[str, Any]:
    [only] = crd.definition()["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def properties(part: str) -> dict[str, Any]:
    found = version()["schema"]["openAPIV3Schema"]["properties"][part]["properties"]
    assert isinstance(found, dict)
    return found


def test_the_file_is_up_to_date() -> None:
    assert crd.FILE.read_text("utf-8") == crd.text(), "run `python -m paddock.pools.crd`"


def test_every_field_is_in_the_schema() -> None:
    assert set(properties("spec")) == set(PoolSpec.__struct_encode_fields__)
    assert set(properties("status")) == set(PoolStatus.__struct_encode_fields__)


def test_a_size_of_zero_is_no_default() -> None:
    """I54: left out and zero are two things, so nothing may be filled in."""
    for name in ("size", "maxRunners"):
        assert "default" not in properties("spec")[name]
        assert properties("spec")[name]["minimum"] == 0


def test_descriptions_are_for_authors_of_pools() -> None:
    described = [each.get("description", "") for each in properties("spec").values()]
    assert sum(map(bool, described)) >= 9
    assert not [each for each in described if "(I" in each]


def test_a_pool_has_a_short_name_columns_and_a_status_of_its_own() -> None:
    names = crd.definition()["spec"]["names"]
    assert names["shortNames"] == ["rpool"]
    assert version()["subresources"] == {"status": {}}
    assert [column["name"] for column in version()["additionalPrinterColumns"]][:3] == [
        "Runners",
        "Idle",
        "Queued",
    ]


def test_the_budget_is_over_all_runners() -> None:
    budget = yaml.safe_load(BUDGET.read_text())
    assert isinstance(budget["spec"]["minAvailable"], int)
    [selector] = budget["spec"]["selector"]["matchExpressions"]
    assert selector == {"key": "paddock.dev/pool", "operator": "Exists"}


def test_no_right_is_granted_for_everything() -> None:
    for document in yaml.safe_load_all(ROLES.read_text()):
        for rule in document.get("rules", []):
            # A rule is about resources of API groups, or about paths that are no resources.
            granted = [name for names in rule.values() for name in names]
            assert not [name for name in granted if "*" in name]
            assert "secrets" not in granted
