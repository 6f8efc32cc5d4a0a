"""Token buckets: never more than was put in, never more than GitHub allows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.github.budgets import (
    Bucket,
    BudgetKey,
    BudgetLimits,
    BudgetSpent,
    TokenBucket,
    costs,
)
from paddock.domain.github.objects import AppKey, GitHubAppId, GitHubHost, InstallationId, Operation
from paddock.github.budget import LONGEST_WAIT_S, MemoryBudget
from tests.support.time import ManualClock

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
APP = AppKey(host=GitHubHost("github.com"), app=GitHubAppId(1))

amounts = st.floats(0, 5_000, allow_nan=False)
seconds = st.floats(0, 7_200, allow_nan=False)
buckets = st.builds(
    lambda capacity, per_s, share: TokenBucket(
        capacity=capacity, refill_per_s=per_s, tokens=capacity * share, as_of=NOW
    ),
    st.floats(1, 10_000),
    st.floats(0.001, 1_000),
    st.floats(0, 1),
)


def after(wait: float) -> datetime:
    return NOW + timedelta(seconds=wait)


@given(buckets, seconds)
def test_a_bucket_never_holds_more_than_its_capacity(bucket: TokenBucket, wait: float) -> None:
    assert bucket.tokens <= bucket.at(after(wait)).tokens <= bucket.capacity


@given(buckets, seconds, seconds)
def test_it_does_not_matter_how_often_one_looks(
    bucket: TokenBucket, one: float, other: float
) -> None:
    early, late = sorted((after(one), after(other)))
    assert bucket.at(early).at(late).tokens == pytest.approx(bucket.at(late).tokens)


@given(buckets, seconds)
def test_a_clock_that_goes_back_changes_nothing(bucket: TokenBucket, back: float) -> None:
    assert bucket.at(NOW - timedelta(seconds=back)) == bucket


@given(buckets, amounts)
def test_what_is_taken_is_gone_and_what_is_not_there_is_not_taken(
    bucket: TokenBucket, n: float
) -> None:
    taken = bucket.take(n)
    if n <= bucket.tokens:
        assert taken is not None
        assert taken.tokens == bucket.tokens - n
    else:
        assert taken is None


@given(buckets, st.lists(st.tuples(seconds, amounts), max_size=20))
def test_no_series_of_takes_gets_more_than_was_there_and_flowed_in(
    bucket: TokenBucket, steps: list[tuple[float, float]]
) -> None:
    start, now, got = bucket, NOW, 0.0
    for wait, n in steps:
        now += timedelta(seconds=wait)
        bucket = bucket.at(now)
        if (taken := bucket.take(n)) is not None:
            bucket, got = taken, got + n
    passed = (now - NOW).total_seconds()
    assert got <= (start.tokens + passed * start.refill_per_s) * (1 + 1e-9)


@given(buckets, st.floats(0, 1))
def test_after_the_wait_the_tokens_are_there(bucket: TokenBucket, share: float) -> None:
    n = bucket.capacity * share
    wait = bucket.wait_s(n, NOW)
    # A clock tells microseconds; a token and a half of them is what may be missing.
    assert bucket.at(after(wait + 2e-6)).tokens >= n * (1 - 1e-9) - 1e-9


@given(buckets, st.lists(st.floats(0, 3), min_size=1, max_size=8))
def test_requests_that_are_refused_together_wait_once(
    bucket: TokenBucket, apart: list[float]
) -> None:
    """I26"""
    now = bucket.as_of
    for seconds_later in apart:
        now += timedelta(seconds=seconds_later)
        bucket = bucket.at(now).told(0, 600, now)
    assert bucket.as_of == now + timedelta(seconds=600)


def test_more_than_fits_is_refused_instead_of_waited_for() -> None:
    bucket = TokenBucket.full(capacity=10, per_s=1, now=NOW)
    with pytest.raises(ValueError, match="never holds 11"):
        bucket.wait_s(11, NOW)


@given(buckets, st.floats(-10, 10_000))
def test_githubs_word_lowers_and_never_raises(bucket: TokenBucket, remaining: float) -> None:
    limited = bucket.limit_to(remaining)
    assert limited.tokens == min(bucket.tokens, max(remaining, 0))


@given(buckets, st.floats(1, 3_600), st.floats(0, 3_600))
def test_nothing_is_given_before_githubs_reset(
    bucket: TokenBucket, reset: float, now: float
) -> None:
    emptied = bucket.empty_until(after(reset))
    if now <= reset:
        assert emptied.at(after(now)).tokens == 0
    assert emptied.wait_s(1, NOW) >= reset


@pytest.mark.parametrize(
    ("capacity", "per_s", "tokens"), [(0, 1, 0), (1, 0, 0), (1, 1, 2), (1, 1, -1)]
)
def test_a_bucket_that_makes_no_sense_cannot_be_made(
    capacity: float, per_s: float, tokens: float
) -> None:
    with pytest.raises(ValueError, match=r"bucket"):
        TokenBucket(capacity=capacity, refill_per_s=per_s, tokens=tokens, as_of=NOW)


@given(st.integers(15, 100_000))
def test_no_minute_spends_more_points_than_github_allows(per_minute: int) -> None:
    bucket = BudgetLimits(points_per_minute=per_minute).bucket(Bucket.POINTS, NOW)
    assert bucket.capacity + 60 * bucket.refill_per_s <= per_minute * (1 + 1e-9)


def test_a_matrix_of_sixty_is_minted_at_once_and_two_a_second_after_it() -> None:
    bucket = BudgetLimits().bucket(Bucket.POINTS, NOW)
    assert bucket.capacity / 5 == pytest.approx(60)
    assert bucket.refill_per_s / 5 == pytest.approx(2)


def test_a_mint_is_paid_from_its_own_quota() -> None:
    (points, spent), (hourly, one) = costs(Operation.MINT, APP, InstallationId(7))
    assert (points.bucket, spent) == (Bucket.POINTS, 5)
    assert (hourly.bucket, hourly.installation, one) == (Bucket.MINT, 7, 1)


def test_a_look_up_costs_a_point_and_a_request_of_the_installation() -> None:
    (_, spent), (hourly, one) = costs(Operation.GET_JOB, APP, InstallationId(7))
    assert (spent, one) == (1, 1)
    assert hourly == BudgetKey(
        bucket=Bucket.REST, host=APP.host, app=APP.app, installation=InstallationId(7)
    )


def test_two_installations_and_the_app_itself_share_nothing() -> None:
    """I26"""
    asked = [
        costs(Operation.GET_JOB, APP, who) for who in (InstallationId(7), InstallationId(8), None)
    ]
    assert len({points for (points, _), _ in asked}) == 3
    assert len({hourly for _, (hourly, _) in asked}) == 3


def test_the_same_app_id_on_another_host_has_its_own_budget() -> None:
    """I71"""
    elsewhere = AppKey(host=GitHubHost("github.example.org"), app=APP.app)
    assert costs(Operation.MINT, APP, None) != costs(Operation.MINT, elsewhere, None)


# -- one process's budget

REST = BudgetKey(bucket=Bucket.REST, host=APP.host, app=APP.app, installation=InstallationId(7))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def budget(clock: ManualClock) -> MemoryBudget:
    return MemoryBudget(clock, {APP: BudgetLimits(rest_per_hour=3600)})


async def test_a_short_want_is_waited_for(budget: MemoryBudget, clock: ManualClock) -> None:
    await budget.take(REST, 3600)
    before = clock.now()
    await budget.take(REST, 4)
    assert (clock.now() - before).total_seconds() == pytest.approx(4, abs=0.01)


async def test_a_long_want_is_refused_with_how_long_it_would_take(
    budget: MemoryBudget, clock: ManualClock
) -> None:
    """I17: the caller can do other work meanwhile."""
    await budget.take(REST, 3600)
    before = clock.now()
    with pytest.raises(BudgetSpent) as raised:
        await budget.take(REST, 100)
    assert raised.value.seconds == pytest.approx(100)
    assert clock.now() == before


async def test_one_installations_want_is_not_anothers(budget: MemoryBudget) -> None:
    """I26"""
    await budget.take(REST, 3600)
    other = BudgetKey(
        bucket=Bucket.REST, host=APP.host, app=APP.app, installation=InstallationId(8)
    )
    await budget.take(other, 3600)


async def test_what_github_says_is_left_is_all_there_is(
    budget: MemoryBudget, clock: ManualClock
) -> None:
    await budget.observe(REST, remaining=10, resets_in_s=600)
    await budget.take(REST, 10)
    with pytest.raises(BudgetSpent):
        await budget.take(REST, 10)


async def test_after_githubs_stop_nothing_is_given_until_its_reset(
    budget: MemoryBudget, clock: ManualClock
) -> None:
    await budget.observe(REST, remaining=0, resets_in_s=600)
    clock.advance(600 - LONGEST_WAIT_S - 2)
    with pytest.raises(BudgetSpent):
        await budget.take(REST, 1)
    clock.advance(LONGEST_WAIT_S + 2)
    await budget.take(REST, 1)


async def test_an_app_without_limits_of_its_own_has_githubs(clock: ManualClock) -> None:
    await MemoryBudget(clock).take(REST, 5000)


async def test_each_installations_quota_is_told_by_itself() -> None:
    """I26: one that is spent says nothing about another."""
    budget = MemoryBudget(ManualClock(), {APP: BudgetLimits(rest_per_hour=100)})
    installation = InstallationId(5)
    of_app = BudgetKey(bucket=Bucket.REST, host=APP.host, app=APP.app)
    await budget.take(replace(of_app, installation=installation), 75)
    await budget.take(of_app, 10)
    await budget.take(replace(of_app, app=GitHubAppId(2)), 10)
    assert await budget.quotas_left(APP) == {
        installation: pytest.approx(0.25),
        None: pytest.approx(0.9),
    }
