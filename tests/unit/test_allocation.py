"""The allocator: never over a limit, never idle without a reason, fair, oldest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.allocation import (
    AccountTerms,
    Allocation,
    KeyDemand,
    PoolTerms,
    QueuedJob,
    RepositoryTerms,
    Supplies,
    Withheld,
    allocate,
)
from paddock.domain.ids import AccountId, JobId, KeyId, PoolId, RepositoryId, RunnerId
from paddock.domain.limits import NOTHING, UNLIMITED, Limits, Resources

START = datetime(2026, 1, 5, 9, tzinfo=UTC).timestamp()
LINUX = PoolId(1)


def pods(count: int, *, pool: int = 0) -> list[RunnerId]:
    return [RunnerId(UUID(int=pool * 10_000 + number)) for number in range(count)]


def jobs(count: int, *, first: int = 0, step: int = 1) -> list[QueuedJob]:
    return [
        QueuedJob(START + first + n * step, JobId((first + n * step) * 10)) for n in range(count)
    ]


def demand(key: int, unserved: Sequence[QueuedJob], **changes: object) -> KeyDemand:
    fields: dict[str, object] = {"key": key, "account": key, "pool": LINUX}
    return KeyDemand(**{**fields, "unserved": unserved, **changes})  # type: ignore[arg-type]


def run(
    demands: Sequence[KeyDemand],
    *,
    waiting: int | Mapping[PoolId, Sequence[RunnerId]] = 10,
    accounts: Mapping[int, AccountTerms] | None = None,
    repositories: Mapping[RepositoryId, RepositoryTerms] | None = None,
    pools: Mapping[PoolId, PoolTerms] | None = None,
    mints: int = 1000,
    batch: float = inf,
) -> Allocation:
    terms = {AccountId(each.account): AccountTerms(mints=mints) for each in demands}
    terms |= {AccountId(number): term for number, term in (accounts or {}).items()}
    return allocate(
        demand=demands,
        supplies=Supplies(
            pods={LINUX: pods(waiting)} if isinstance(waiting, int) else waiting,
            batch=batch,
        ),
        accounts=terms,
        repositories=repositories or {},
        pools=pools or {LINUX: PoolTerms(cost=Resources())},
    )


def shares(allocation: Allocation) -> Counter[KeyId]:
    return Counter(given.key for given in allocation.assignments)


# By example: every reason for getting nothing.


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"accounts": {1: AccountTerms(limits=Limits(runners=0))}},
            Withheld.ACCOUNT_LIMIT,
        ),
        (
            {
                "accounts": {
                    1: AccountTerms(
                        limits=Limits(vcpu_milli=4000),
                        used=Resources(runners=1, vcpu_milli=3000),
                    )
                },
                "pools": {LINUX: PoolTerms(cost=Resources(vcpu_milli=2000))},
            },
            Withheld.ACCOUNT_LIMIT,
        ),
        ({"pools": {LINUX: PoolTerms(cost=Resources(), places=0)}}, Withheld.POOL_MAXIMUM),
        ({"mints": 0}, Withheld.MINT_BUDGET),
        ({"waiting": 0}, Withheld.NO_POD),
    ],
)
def test_a_key_that_gets_nothing_is_told_why(changes: dict[str, object], reason: Withheld) -> None:
    allocation = run([demand(1, jobs(3))], **changes)  # type: ignore[arg-type]
    assert allocation.assignments == ()
    assert allocation.withheld == {1: reason}


@pytest.mark.parametrize("reason", [Withheld.PAUSED, Withheld.INSTALLATION, Withheld.BACK_OFF])
def test_a_blocked_key_is_passed_over(reason: Withheld) -> None:
    """I26"""
    allocation = run([demand(1, jobs(50), blocked=reason), demand(2, jobs(3))], waiting=5)
    assert shares(allocation) == {2: 3}
    assert allocation.withheld == {1: reason}


def test_a_repository_limit_binds_its_own_key_and_no_other() -> None:
    repository = RepositoryId(9)
    allocation = run(
        [demand(1, jobs(5), repository=repository), demand(2, jobs(5), account=1)],
        repositories={repository: RepositoryTerms(limits=Limits(runners=1))},
    )
    assert shares(allocation) == {1: 1, 2: 5}


def test_within_an_account_the_oldest_job_goes_first() -> None:
    young, old = demand(1, jobs(3, first=100)), demand(2, jobs(3), account=1)
    assert shares(run([young, old], waiting=3)) == {2: 3}


def test_between_equal_accounts_the_oldest_job_goes_first() -> None:
    assert shares(run([demand(1, jobs(1, first=9)), demand(2, jobs(1, first=1))], waiting=1)) == {
        2: 1
    }


def test_a_limit_lowered_below_use_stops_new_claims() -> None:
    over = AccountTerms(limits=Limits(runners=2), used=Resources(runners=7))
    allocation = run([demand(1, jobs(3))], accounts={1: over})
    assert allocation.withheld == {1: Withheld.ACCOUNT_LIMIT}


def test_a_saturating_account_does_not_starve_a_small_one() -> None:
    """I26: the small one has the newest job, and gets the next Pod all the same."""
    allocation = run(
        [demand(1, jobs(100)), demand(2, jobs(1, first=1000))],
        waiting=1,
        accounts={1: AccountTerms(used=Resources(runners=30))},
    )
    assert shares(allocation) == {2: 1}


def test_an_account_whose_mints_are_spent_holds_up_no_other() -> None:
    """I26: GitHub counts for an installation."""
    spent = {1: AccountTerms(mints=1)}
    allocation = run([demand(1, jobs(5)), demand(2, jobs(5))], accounts=spent)
    assert shares(allocation) == {1: 1, 2: 5}


def test_weights_are_shares() -> None:
    allocation = run(
        [demand(1, jobs(100)), demand(2, jobs(100))],
        waiting=40,
        accounts={1: AccountTerms(weight=3), 2: AccountTerms(weight=1)},
    )
    assert shares(allocation) == {1: 30, 2: 10}


def test_pods_left_over_beside_unread_jobs_ask_for_a_deeper_read() -> None:
    assert run([demand(1, jobs(3), truncated=True)], waiting=5).read_deeper
    assert not run([demand(1, jobs(3), truncated=True)], waiting=3).read_deeper
    assert not run([demand(1, jobs(3))], waiting=5).read_deeper


def test_a_full_batch_is_not_a_reason_and_more_follows() -> None:
    """I77: what the batch did not reach is served by the next one."""
    allocation = run([demand(1, jobs(3)), demand(2, jobs(3, first=9))], waiting=9, batch=1)
    assert shares(allocation) == {1: 1}
    assert (allocation.withheld, allocation.more) == ({}, True)
    assert not run([demand(1, jobs(3))], waiting=9, batch=3).more
    truncated = run([demand(1, jobs(3), truncated=True)], waiting=9, batch=3)
    assert truncated.more
    assert not truncated.read_deeper


def test_a_key_that_got_some_pods_and_could_use_more_is_short_of_pods() -> None:
    assert run([demand(1, jobs(3))], waiting=2).short_of_pods
    assert not run([demand(1, jobs(3))], waiting=3).short_of_pods
    full = {1: AccountTerms(limits=Limits(runners=2))}
    assert not run([demand(1, jobs(3))], waiting=2, accounts=full).short_of_pods


# By property, over worlds with several pools, limits of every kind, weights and budgets.


@dataclass(frozen=True)
class Case:
    demand: Sequence[KeyDemand]
    supplies: Supplies
    accounts: Mapping[AccountId, AccountTerms]
    repositories: Mapping[RepositoryId, RepositoryTerms]
    pools: Mapping[PoolId, PoolTerms]

    def allocate(self) -> Allocation:
        return allocate(
            demand=self.demand,
            supplies=self.supplies,
            accounts=self.accounts,
            repositories=self.repositories,
            pools=self.pools,
        )

    def keys(self, allocation: Allocation) -> list[KeyDemand]:
        """The key of every assignment."""
        keys = {key.key: key for key in self.demand}
        return [keys[given_.key] for given_ in allocation.assignments]


@st.composite
def worlds(draw: st.DrawFn) -> Case:
    some = st.none() | st.integers(0, 8)
    costs = {
        PoolId(n): Resources(vcpu_milli=draw(st.integers(0, 4)), memory_mib=draw(st.integers(0, 4)))
        for n in range(draw(st.integers(1, 3)))
    }
    accounts = {
        AccountId(n): AccountTerms(
            mints=draw(some),
            weight=draw(st.integers(1, 4)),
            limits=Limits(runners=draw(some), vcpu_milli=draw(some), memory_mib=draw(some)),
            used=draw(
                st.builds(
                    Resources,
                    runners=st.integers(0, 4),
                    vcpu_milli=st.integers(0, 4),
                    memory_mib=st.integers(0, 4),
                )
            ),
        )
        for n in range(1, draw(st.integers(1, 5)) + 1)
    }
    repositories = {
        RepositoryId(n): RepositoryTerms(limits=Limits(runners=draw(st.integers(0, 3))))
        for n in range(2)
    }
    demands = []
    for number in range(draw(st.integers(0, 8))):
        ages = draw(st.lists(st.integers(0, 50), max_size=8))
        demands.append(
            KeyDemand(
                key=KeyId(number),
                account=draw(st.sampled_from(sorted(accounts))),
                pool=draw(st.sampled_from(sorted(costs))),
                repository=draw(st.none() | st.sampled_from(sorted(repositories))),
                unserved=[
                    QueuedJob(START + age, JobId(number * 100 + n))
                    for n, age in enumerate(sorted(ages))
                ],
                blocked=draw(st.none() | st.none() | st.just(Withheld.PAUSED)),
            )
        )
    return Case(
        demand=demands,
        supplies=Supplies(
            pods={pool: pods(draw(st.integers(0, 8)), pool=pool) for pool in costs},
        ),
        accounts=accounts,
        repositories=repositories,
        pools={pool: PoolTerms(cost=cost, places=draw(some)) for pool, cost in costs.items()},
    )


class After:
    """What is used once the assignments stand."""

    def __init__(self, case: Case, allocation: Allocation) -> None:
        self.accounts = {number: terms.used for number, terms in case.accounts.items()}
        self.repositories = {number: terms.used for number, terms in case.repositories.items()}
        self.pools: Counter[PoolId] = Counter()
        self.mints: Counter[AccountId] = Counter()
        for key in case.keys(allocation):
            cost = case.pools[key.pool].cost
            self.accounts[key.account] += cost
            if key.repository is not None:
                self.repositories[key.repository] += cost
            self.pools[key.pool] += 1
            self.mints[key.account] += 1


@given(worlds())
def test_no_limit_is_ever_exceeded(case: Case) -> None:
    """I25, I45: an account's headroom is spent once, over all pools and keys."""
    after = After(case, case.allocate())
    for account, terms in case.accounts.items():
        used = after.accounts[account]
        assert used == terms.used or terms.limits.admit(used, NOTHING)
    for repository, limited in case.repositories.items():
        used = after.repositories[repository]
        assert used == limited.used or limited.limits.admit(used, NOTHING)
    for pool, pool_terms in case.pools.items():
        assert pool_terms.places is None or after.pools[pool] <= pool_terms.places
    for account, terms in case.accounts.items():
        assert terms.mints is None or after.mints[account] <= terms.mints


@given(worlds())
def test_a_pod_goes_to_one_key_of_its_own_pool(case: Case) -> None:
    """I15"""
    allocation = case.allocate()
    runners = [given_.runner for given_ in allocation.assignments]
    assert len(set(runners)) == len(runners)
    for runner, key in zip(runners, case.keys(allocation), strict=True):
        assert runner in case.supplies.pods[key.pool]


@given(worlds())
def test_no_pod_stays_idle_while_an_eligible_key_waits(case: Case) -> None:
    allocation = case.allocate()
    after, taken = After(case, allocation), shares(allocation)
    for key in case.demand:
        account, pool = case.accounts[key.account], case.pools[key.pool]
        eligible = (
            key.blocked is None
            and taken[key.key] < len(key.unserved)
            and account.limits.admit(after.accounts[key.account], pool.cost)
            and (
                key.repository is None
                or case.repositories[key.repository].limits.admit(
                    after.repositories[key.repository], pool.cost
                )
            )
            and (pool.places is None or after.pools[key.pool] < pool.places)
            and (account.mints is None or after.mints[key.account] < account.mints)
        )
        idle = len(case.supplies.pods[key.pool]) - after.pools[key.pool]
        assert not (idle and eligible)


@given(worlds())
def test_every_key_with_jobs_gets_a_pod_or_a_reason(case: Case) -> None:
    allocation = case.allocate()
    served, withheld = set(shares(allocation)), set(allocation.withheld)
    assert served | withheld == {key.key for key in case.demand if key.unserved}
    assert not served & withheld


@given(worlds())
def test_an_allocation_does_not_depend_on_the_order_of_its_input(case: Case) -> None:
    assert case.allocate() == replace(case, demand=list(reversed(case.demand))).allocate()


@given(
    weights=st.lists(st.integers(1, 5), min_size=2, max_size=8),
    used=st.lists(st.integers(0, 10), min_size=8, max_size=8),
    count=st.integers(0, 60),
)
def test_with_saturated_demand_no_account_ends_above_another_by_more_than_one_pod(
    weights: list[int], used: list[int], count: int
) -> None:
    """Weighted max-min: an account that received a Pod has, per unit of weight, no more than any other
    account would have with one Pod more."""
    accounts = {
        n: AccountTerms(weight=weight, used=Resources(runners=used[n]))
        for n, weight in enumerate(weights)
    }
    allocation = run(
        [demand(n, jobs(count + 1)) for n in accounts], waiting=count, accounts=accounts
    )
    received = shares(allocation)
    assert received.total() == count
    for one in accounts:
        for other in accounts:
            if received[KeyId(one)]:
                mine = (used[one] + received[KeyId(one)]) / weights[one]
                theirs = (used[other] + received[KeyId(other)] + 1) / weights[other]
                assert mine <= theirs


@given(st.integers(2, 6), st.integers(1, 40))
def test_no_account_starves_over_time(number: int, rounds: int) -> None:
    """I26: one Pod comes free at a time, runners end in the order they began, demand never ends:
    every account is served in turn."""
    used = dict.fromkeys(range(number), 0)
    running: list[int] = []
    served: Counter[int] = Counter()
    for _ in range(rounds * number):
        if len(running) >= number:
            used[running.pop(0)] -= 1
        accounts = {n: AccountTerms(used=Resources(runners=u)) for n, u in used.items()}
        [given_] = run(
            [demand(n, jobs(1, first=served[n] * number + n)) for n in used],
            waiting=1,
            accounts=accounts,
        ).assignments
        used[given_.key] += 1
        served[given_.key] += 1
        running.append(given_.key)
    assert max(served.values()) - min(served[n] for n in used) <= 1


def test_unlimited_means_unlimited_and_zero_means_zero() -> None:
    """I54"""
    assert UNLIMITED.admit(Resources(runners=10**6), Resources())
    assert not Limits(runners=0).admit(NOTHING, Resources())
