"""Names that GitHub and Kubernetes accept, and that no two things share."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.names import (
    POD_NAME_MAX,
    RUNNER_NAME_MAX,
    SUFFIX_LENGTH,
    PodName,
    PoolName,
    pod_name,
    pool_name_problem,
    runner_name,
)

DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"

dns_labels = st.from_regex(DNS_LABEL, fullmatch=True)
# Long names that differ late are where cutting would make two pools one.
alike = st.builds(
    lambda stem, tail: f"{stem}{tail}",
    st.sampled_from(["linux-" * 6, "macos-" * 9, "a" * 40]),
    st.from_regex(r"[a-z0-9]{1,9}", fullmatch=True),
)
pools = (dns_labels | alike).map(PoolName)
pods = dns_labels.map(PodName)
suffixes = st.from_regex(rf"[a-z0-9]{{1,{SUFFIX_LENGTH}}}", fullmatch=True)
generations = st.integers(min_value=0, max_value=2**63 - 1) | st.integers(0, 10)


def test_a_pods_name_is_its_pools_name_and_a_suffix() -> None:
    assert pod_name(PoolName("linux-large"), "x7k2m9qp4w") == "linux-large-x7k2m9qp4w"


def test_a_runners_name_is_its_pods_name_and_the_generation() -> None:
    assert runner_name(PodName("linux-large-x7k2m9qp4w"), 3) == "linux-large-x7k2m9qp4w-3"


@given(pools, suffixes)
def test_a_pods_name_is_a_dns_label(pool: PoolName, suffix: str) -> None:
    name = pod_name(pool, suffix)
    assert re.fullmatch(DNS_LABEL, name)
    assert len(name) <= POD_NAME_MAX


@given(pools, pools, suffixes, suffixes)
def test_two_pools_never_make_the_same_pod_name(
    one: PoolName, other: PoolName, suffix: str, other_suffix: str
) -> None:
    same = pod_name(one, suffix) == pod_name(other, other_suffix)
    assert same == ((one, suffix) == (other, other_suffix))


def test_a_pool_named_like_a_shortened_pool_keeps_its_own_pods() -> None:
    long = PoolName("linux-" * 8 + "large")
    shortened = pod_name(long, "x").rpartition("-")[0]
    assert pod_name(PoolName(shortened), "x") != pod_name(long, "x")


@given(pods, generations)
def test_a_runners_name_fits_github(pod: PodName, generation: int) -> None:
    """I19"""
    assert re.fullmatch(r"[A-Za-z0-9._-]+", runner_name(pod, generation))
    assert len(runner_name(pod, generation)) <= RUNNER_NAME_MAX


@given(st.integers(min_value=0), pods)
def test_a_runners_name_fits_github_at_any_generation(generation: int, pod: PodName) -> None:
    """I19"""
    assert len(runner_name(pod, 10**80 + generation)) <= RUNNER_NAME_MAX


@given(pools, suffixes, generations)
def test_a_pod_of_ours_is_legible_in_every_runners_name(
    pool: PoolName, suffix: str, generation: int
) -> None:
    pod = pod_name(pool, suffix)
    assert runner_name(pod, generation) == f"{pod}-{generation}"


@given(pods, pods, generations, generations)
def test_every_mint_has_a_name_of_its_own(
    pod: PodName, other_pod: PodName, generation: int, other_generation: int
) -> None:
    """I19"""
    same = runner_name(pod, generation) == runner_name(other_pod, other_generation)
    assert same == ((pod, generation) == (other_pod, other_generation))


@given(st.text("ab-", min_size=62, max_size=62), generations, generations)
def test_adopted_pods_with_long_names_get_a_name_per_generation(
    letters: str, generation: int, other_generation: int
) -> None:
    """I19"""
    pod, sibling = PodName(f"{letters}a"), PodName(f"{letters}b")
    assert runner_name(pod, generation) != runner_name(sibling, other_generation)
    assert runner_name(pod, generation) != runner_name(pod, generation + 1)


@pytest.mark.parametrize("suffix", ["", "UPPER", "with-hyphen", "elevenchars", "ü"])
def test_a_suffix_that_could_be_misread_is_refused(suffix: str) -> None:
    with pytest.raises(ValueError, match="suffix"):
        pod_name(PoolName("linux"), suffix)


def test_a_generation_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="generation"):
        runner_name(PodName("linux-x"), -1)


@given(dns_labels)
def test_any_dns_label_may_name_a_pool(name: str) -> None:
    assert pool_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "needs a name"),
        ("a" * 64, "at most 63 characters; this one has 64"),
        ("Linux", "'Linux' has 'L'"),
        ("linux large", "has ' '"),
        ("linux.large", "has '.'"),
        ("größe", "has 'ß' 'ö'"),
        ("-linux", "begins and ends"),
        ("linux-", "begins and ends"),
        ("linux\n", r"has '\n'"),
    ],
)
def test_a_bad_pool_name_is_refused_with_its_reason(name: str, reason: str) -> None:
    problem = pool_name_problem(name)
    assert problem is not None
    assert reason in problem
