"""Pool files: what they may contain, and all errors of one file at once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from paddock.domain.limits import Resources
from paddock.domain.pods.quantities import mebibytes, milli
from paddock.domain.pools.terms import Terms
from paddock.pools.spec import PoolFileError, parse_pools, read_pool_file

GOOD = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata:
  name: linux-large
spec:
  labels: [Self-Hosted, linux, large]
  runnerGroup: builders
  resources: {vcpu: 4, memory: 8Gi}
  maxRunners: 20
"""


def mistakes(text: str) -> tuple[str, ...]:
    with pytest.raises(PoolFileError) as raised:
        parse_pools(text, name="pools.yaml")
    return raised.value.mistakes


def test_a_pool_is_read_with_its_labels_as_github_compares_them() -> None:
    [pool] = parse_pools(GOOD, name="pools.yaml")
    assert pool.labels == ("large", "linux", "self-hosted")
    assert pool.cost == Resources(vcpu_milli=4000, memory_mib=8192)
    assert (pool.max_runners, pool.runner_group, pool.shape) == (20, "builders", "gated")


def test_a_deliberate_zero_means_zero() -> None:
    """I54"""
    [pool] = parse_pools(GOOD.replace("maxRunners: 20", "maxRunners: 0"), name="pools.yaml")
    assert pool.max_runners == 0
    assert '"maxRunners":0' in pool.spec


def test_no_maximum_is_no_maximum() -> None:
    [pool] = parse_pools(GOOD.replace("  maxRunners: 20\n", ""), name="pools.yaml")
    assert pool.max_runners is None


def test_a_pools_program_is_the_one_it_names_or_the_one_of_its_command() -> None:
    """I89"""

    def program(lines: str) -> str:
        [pool] = parse_pools(f"{GOOD}{lines}", name="pools.yaml")
        return pool.runner

    template = "  template: {spec: {containers: [{name: runner, image: x, %s}]}}\n"
    assert program("") == "unknown"
    assert program("  runner: act-runner\n") == "act-runner"
    assert program("  runnerCommand: [/opt/x/bin/Runner.Listener, run]\n") == "actions"
    assert program(template % "command: [/usr/bin/github-act-runner, run]") == "act-runner"
    assert program(template % "command: [/entrypoint.sh]") == "unknown"
    assert program("  runner: actions\n" + template % "command: [/entrypoint.sh]") == "actions"


def test_a_program_that_paddock_does_not_know_is_refused() -> None:
    [wrong] = mistakes(f"{GOOD}  runner: gitlab\n")
    assert "Invalid enum value 'gitlab'" in wrong


def test_another_program_makes_other_pods_and_none_named_changes_nothing() -> None:
    [plain] = parse_pools(GOOD, name="pools.yaml")
    [named] = parse_pools(f"{GOOD}  runner: actions\n", name="pools.yaml")
    assert plain.spec_hash != named.spec_hash


def test_how_many_there_may_be_does_not_make_a_pod_stale() -> None:
    [one] = parse_pools(GOOD, name="pools.yaml")
    [other] = parse_pools(GOOD.replace("maxRunners: 20", "maxRunners: 30"), name="pools.yaml")
    [larger] = parse_pools(GOOD.replace("vcpu: 4", "vcpu: 8"), name="pools.yaml")
    assert one.spec_hash == other.spec_hash != larger.spec_hash


def test_how_fast_it_grows_and_shrinks_does_not_make_a_pod_stale() -> None:
    [one] = parse_pools(GOOD, name="pools.yaml")
    [other] = parse_pools(
        GOOD
        + "  minIdle: 3\n  stabilisationWindow: 10m\n  capacity: elastic\n"
        + "  provisioning: {maxStarting: 3, startTimeout: 2m, schedulingTimeout: 1h}\n"
        + "  rollout: {maxUnavailable: 2}\n",
        name="pools.yaml",
    )
    assert one.spec_hash == other.spec_hash
    terms = Terms.of(other.spec)
    assert (terms.min_idle, terms.window, terms.capacity) == (3, timedelta(minutes=10), "elastic")
    assert (terms.start_timeout, terms.scheduling_timeout) == (
        timedelta(minutes=2),
        timedelta(hours=1),
    )
    assert (terms.provisioning.max_starting, terms.rollout.max_unavailable) == (3, 2)


def test_a_fixed_size_is_the_maximum_too() -> None:
    """I54: a size of zero as well."""
    for size in (0, 7):
        [pool] = parse_pools(GOOD.replace("maxRunners: 20", f"size: {size}"), name="pools.yaml")
        assert pool.max_runners == size
        assert Terms.of(pool.spec).size == size


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("size: -1", "size is at least 0"),
        ("size: 3\n  minIdle: 1", "size is exact: leave out minIdle and maxRunners"),
        ("minIdle: -1", "minIdle is at least 0"),
        ("maxRunners: -1", "maxRunners is at least 0"),
        ("maxRunners: 999999999999", "no pool has more than 100000 runners"),
        ("stabilisationWindow: soon", "stabilisationWindow: 'soon' is no duration"),
        ("stabilisationWindow: 2h", "stabilisationWindow is at most 1h"),
        ("capacity: rubber", "Invalid enum value 'rubber'"),
        ("provisioning: {maxStarting: 0}", "maxStarting is at least 1"),
        ("provisioning: {startTimeout: 0s}", "startTimeout is more than 0"),
        ("provisioning: {schedulingTimeout: 1w}", "schedulingTimeout: '1w' is no duration"),
        ("provisioning: {starts: 1}", "unknown field `starts`"),
        ("rollout: {maxUnavailable: 0}", "maxUnavailable is at least 1"),
        ("rollout: {maxUnavailable: 00%}", "maxUnavailable is at least 1"),
        ("rollout: {maxUnavailable: half}", "maxUnavailable is a number or a percentage"),
        ("rollout: {speed: 1}", "unknown field `speed`"),
    ],
)
def test_a_size_or_pace_that_cannot_be_is_refused_with_a_sentence(line: str, told: str) -> None:
    [sentence] = mistakes(GOOD.replace("maxRunners: 20", line))
    assert told in sentence
    assert sentence.startswith("pools.yaml, document 1 (pool linux-large): ")


def test_all_mistakes_are_told_at_once() -> None:
    told = mistakes(
        GOOD.replace("maxRunners", "maxRuners")
        + "---"
        + GOOD.replace("name: linux-large", "name: Linux_Large")
        + "---"
        + GOOD.replace("memory: 8Gi", "memory: lots")
    )
    assert len(told) == 3
    assert "maxRuners" in told[0]
    assert "Linux_Large" in told[1]
    assert "lots" in told[2]


def test_pools_that_contain_one_another_are_refused_before_anything_is_written() -> None:
    """I10"""
    [told] = mistakes(
        GOOD + "---" + GOOD.replace("linux-large", "linux").replace("linux, large", "linux")
    )
    assert "pool linux" in told


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1",
        "a: [",
        "kind: Pod\napiVersion: v1\nmetadata: {name: x}\nspec: {labels: [a]}",
        "\x00",
    ],
)
def test_what_is_no_pool_file_is_told_so_in_a_sentence(text: str) -> None:
    assert all(told.startswith("pools.yaml") for told in mistakes(text))


def test_a_file_that_cannot_be_read_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(PoolFileError, match="cannot be read: No such file"):
        read_pool_file(tmp_path / "missing.yaml")
    with pytest.raises(PoolFileError, match="cannot be read: Is a directory"):
        read_pool_file(tmp_path)


@pytest.mark.parametrize(
    ("quantity", "expected"), [(2, 2000), ("500m", 500), ("0.1", 100), (0.0005, 1), ("0", 0)]
)
def test_cpus_are_counted_in_thousandths(quantity: str, expected: int) -> None:
    assert milli(quantity) == expected


@pytest.mark.parametrize(
    ("quantity", "expected"), [("4Gi", 4096), ("512Mi", 512), (1, 1), ("1G", 954), ("0.5Gi", 512)]
)
def test_memory_is_counted_in_mebibytes(quantity: str, expected: int) -> None:
    assert mebibytes(quantity) == expected


@pytest.mark.parametrize("quantity", ["-1", "1e999", "1e999999", "many", "NaN", "9" * 40])
def test_a_quantity_that_is_none_is_refused(quantity: str) -> None:
    with pytest.raises(ValueError, match=r"is no|more than"):
        milli(quantity)
    with pytest.raises(ValueError, match=r"is no|more than"):
        mebibytes(quantity)
