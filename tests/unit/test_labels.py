"""A job goes to the one pool that has all of its labels, or gets the reason why it has no pool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.jobs.labels import (
    MAX_LABEL_LENGTH,
    MAX_LABELS,
    LabelProblem,
    LabelSet,
    LabelsRefused,
    Resolved,
    conflicts,
    covers,
    pool_labels_problem,
    resolve,
)
from paddock.domain.names import PoolName

LARGE, GPU, MAC = PoolName("linux-large"), PoolName("linux-gpu"), PoolName("macos")
POOLS = {
    LARGE: LabelSet.of(["self-hosted", "linux", "large"]),
    GPU: LabelSet.of(["self-hosted", "linux", "gpu"]),
    MAC: LabelSet.of(["self-hosted", "macos"]),
}

# Few letters, so that sets often meet.
label_lists = st.lists(st.sampled_from(["self-hosted", "a", "b", "c", "ubuntu-latest"]), max_size=4)
label_sets = label_lists.map(LabelSet.of)
pool_maps = st.dictionaries(st.sampled_from("pqrs").map(PoolName), label_sets, max_size=4)


def refused(*labels: str, pools: dict[PoolName, LabelSet] = POOLS) -> LabelsRefused:
    resolution = resolve(LabelSet.of(labels), pools)
    assert isinstance(resolution, LabelsRefused)
    return resolution


@given(st.lists(st.sampled_from([" Linux", "linux", "LINUX ", "x64", "", "  "])))
def test_case_order_space_and_repetition_do_not_matter(labels: list[str]) -> None:
    tidy = sorted({label.strip().lower() for label in labels} - {""})
    assert LabelSet.of(labels) == LabelSet.of(reversed(labels)) == LabelSet.of(tidy)
    assert list(LabelSet.of(labels)) == tidy


def test_a_job_is_covered_by_a_pool_that_has_all_its_labels() -> None:
    assert covers(POOLS[LARGE], LabelSet.of(["Large", "linux"]))
    assert not covers(POOLS[LARGE], LabelSet.of(["large", "arm64"]))


def test_a_job_goes_to_the_pool_that_covers_it() -> None:
    assert resolve(LabelSet.of(["self-hosted", "GPU"]), POOLS) == Resolved(GPU)


def test_a_job_that_fits_two_pools_is_refused_and_told_which() -> None:
    """I10"""
    refusal = refused("self-hosted", "linux")
    assert refusal.reason is LabelProblem.AMBIGUOUS
    assert refusal.could_be_ours
    assert "linux-gpu, linux-large" in refusal.why


def test_a_job_for_githubs_own_machines_is_no_mistake() -> None:
    refusal = refused("ubuntu-latest")
    assert refusal.reason is LabelProblem.NO_POOL
    assert not refusal.could_be_ours


def test_a_job_that_misses_by_one_label_is_told_which() -> None:
    refusal = refused("self-hosted", "linux", "large", "arm64")
    assert refusal.reason is LabelProblem.NEAR_MISS
    assert refusal.could_be_ours
    assert refusal.why.endswith("the nearest, linux-large, lacks arm64")


def test_a_job_that_shares_only_a_label_of_ours_may_have_been_meant_for_us() -> None:
    assert refused("gpu", "h100").reason is LabelProblem.NEAR_MISS


def test_a_self_hosted_job_may_have_been_meant_for_us_before_there_is_any_pool() -> None:
    refusal = refused("self-hosted", pools={})
    assert refusal.reason is LabelProblem.NEAR_MISS
    assert "there is no pool yet" in refusal.why


def test_a_job_without_labels_is_refused_but_kept() -> None:
    refusal = refused()
    assert refusal.reason is LabelProblem.EMPTY
    assert refusal.could_be_ours


def test_a_strangers_thousand_labels_do_not_fill_the_sentence() -> None:
    refusal = refused("self-hosted", *(f"{'x' * 500}{n}" for n in range(1000)))
    assert refusal.reason is LabelProblem.NEAR_MISS
    assert "and 991 more" in refusal.why
    assert len(refusal.why) < 2000


@given(label_sets, pool_maps)
def test_pools_are_never_chosen_by_list_order(
    job: LabelSet, pools: dict[PoolName, LabelSet]
) -> None:
    """I10"""
    backwards = dict(reversed(pools.items()))
    assert resolve(job, pools) == resolve(job, backwards)
    assert conflicts(job, pools) == conflicts(job, backwards)


@given(label_sets, pool_maps)
def test_a_job_has_a_pool_exactly_when_one_and_only_one_covers_it(
    job: LabelSet, pools: dict[PoolName, LabelSet]
) -> None:
    """I10"""
    fitting = [name for name, labels in pools.items() if covers(labels, job)]
    match resolve(job, pools):
        case Resolved(pool):
            assert fitting == [pool]
        case LabelsRefused(reason=LabelProblem.AMBIGUOUS, why=why):
            assert len(fitting) > 1
            assert all(name in why for name in fitting)
        case LabelsRefused(reason=LabelProblem.EMPTY):
            assert not job
        case LabelsRefused():
            assert not fitting


@given(label_sets.filter(bool), pool_maps)
def test_a_refusal_is_only_counted_when_nothing_points_to_us(
    job: LabelSet, pools: dict[PoolName, LabelSet]
) -> None:
    ours = {"self-hosted"}.union(*(labels.labels for labels in pools.values()))
    resolution = resolve(job, pools)
    if isinstance(resolution, LabelsRefused):
        assert resolution.could_be_ours == bool(job.labels & ours)


@pytest.mark.parametrize(
    ("labels", "relation"),
    [
        (["self-hosted", "macos"], "has the same labels"),
        (["SELF-HOSTED", "macOS", "m4"], "has only labels that are among these"),
        (["macos"], "has all of these labels and more"),
    ],
)
def test_pools_that_contain_one_another_cannot_both_exist(labels: list[str], relation: str) -> None:
    [conflict] = conflicts(LabelSet.of(labels), POOLS)
    assert conflict.pool == MAC
    assert f"pool macos {relation}" in conflict.why


def test_pools_that_merely_overlap_can_both_exist() -> None:
    assert conflicts(LabelSet.of(["self-hosted", "linux", "small"]), POOLS) == []


@given(label_sets, label_sets)
def test_a_conflict_is_mutual(one: LabelSet, other: LabelSet) -> None:
    pool = PoolName("p")
    assert bool(conflicts(one, {pool: other})) == bool(conflicts(other, {pool: one}))


@given(label_sets.filter(bool), label_sets.filter(bool))
def test_without_a_conflict_each_pool_can_be_asked_for_by_its_own_labels(
    one: LabelSet, other: LabelSet
) -> None:
    pools = {PoolName("p"): one, PoolName("q"): other}
    if not conflicts(one, {PoolName("q"): other}):
        assert resolve(one, pools) == Resolved(PoolName("p"))
        assert resolve(other, pools) == Resolved(PoolName("q"))


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([], "at least one label"),
        (["  "], "at least one label"),
        ([f"l{n}" for n in range(MAX_LABELS + 1)], "at most 100 labels; these are 101"),
        (["x" * (MAX_LABEL_LENGTH + 1)], "at most 256 characters"),
    ],
)
def test_labels_that_github_would_refuse_are_refused_with_a_reason(
    labels: list[str], reason: str
) -> None:
    problem = pool_labels_problem(LabelSet.of(labels))
    assert problem is not None
    assert reason in problem


@pytest.mark.parametrize(
    "labels", [["linux"], [f"l{n}" for n in range(MAX_LABELS)], ["x" * MAX_LABEL_LENGTH]]
)
def test_labels_up_to_githubs_bounds_are_fine(labels: list[str]) -> None:
    assert pool_labels_problem(LabelSet.of(labels)) is None
