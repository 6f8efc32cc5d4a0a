"""Sizing: what each pool wants, how it comes down, and how pools share what there is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.ids import AccountId, KeyId, PoolId, RepositoryId
from paddock.domain.limits import NOTHING, UNLIMITED, Limits, Resources
from paddock.domain.pools.scaling import (
    Allowance,
    Desired,
    KeyLoad,
    PoolLoad,
    SizeSample,
    Want,
    desired,
    settle,
    share,
)

NOON = datetime(2026, 6, 6, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WINDOW = 5 * MINUTE
SMALL = Resources(vcpu_milli=1000, memory_mib=2048)
BIG = Resources(vcpu_milli=4000, memory_mib=8192)
P, Q, R = PoolId(1), PoolId(2), PoolId(3)
ACME, BETA = AccountId(1), AccountId(2)


def key(
    queued: int,
    supply: int = 0,
    *,
    number: int = 1,
    account: AccountId = ACME,
    repository: RepositoryId | None = None,
    waited: int = 0,
) -> KeyLoad:
    return KeyLoad(
        key=KeyId(number),
        account=account,
        repository=repository,
        queued=queued,
        supply=supply,
        oldest=NOON - waited * MINUTE,
    )


def pool(
    *keys: KeyLoad, number: PoolId = P, occupied: int = 0, min_idle: int = 0, maximum: int = 1000
) -> PoolLoad:
    return PoolLoad(
        pool=number, cost=SMALL, occupied=occupied, min_idle=min_idle, maximum=maximum, keys=keys
    )


def runners(limit: int, used: int = 0) -> Allowance:
    return Allowance(
        limits=Limits(runners=limit),
        used=Resources(runners=used, vcpu_milli=1000 * used, memory_mib=2048 * used),
    )


def wish(
    *pools: PoolLoad,
    accounts: dict[AccountId, Allowance] | None = None,
    repositories: dict[RepositoryId, Allowance] | None = None,
) -> dict[PoolId, Desired]:
    return desired(pools, accounts=accounts or {}, repositories=repositories or {})


def test_a_pool_wants_its_occupied_pods_its_unserved_jobs_and_its_warm_floor() -> None:
    assert wish(pool(key(5, 2), occupied=4, min_idle=3))[P].target == 4 + 3 + 3


def test_a_burst_of_100_wants_100_pods_however_many_are_already_claimed() -> None:
    """I73"""
    for claimed in range(101):
        assert wish(pool(key(100, claimed), occupied=claimed))[P].target == 100


def test_more_supply_than_demand_wants_nothing_and_takes_nothing() -> None:
    """I73"""
    crowded, waiting = key(1, 5), key(2, number=2)
    assert wish(pool(crowded, waiting, occupied=5))[P].target == 5 + 2


def test_a_maximum_of_zero_means_zero() -> None:
    """I54"""
    assert wish(pool(key(9), occupied=2, min_idle=3, maximum=0))[P].target == 0


def test_a_pool_with_only_withheld_work_keeps_one_pod() -> None:
    """I44"""
    full = {ACME: runners(4, used=4)}
    assert wish(pool(key(50)), accounts=full)[P].target == 1


def test_a_pool_whose_version_is_refused_keeps_one_pod_however_long_its_queue() -> None:
    assert wish(pool(replace(key(100), refused=True)))[P].target == 1
    both = pool(replace(key(100), refused=True), key(3, number=2, account=BETA))
    assert wish(both)[P].target == 4


def test_a_capped_queue_is_not_built_for() -> None:
    """I44"""
    nearly_full = {ACME: runners(10, used=7)}
    assert wish(pool(key(50), occupied=7), accounts=nearly_full)[P].target == 7 + 3 + 1


def test_a_limit_lowered_below_use_wants_no_less_than_what_is_occupied() -> None:
    lowered = {ACME: runners(2, used=7)}
    assert wish(pool(key(50), occupied=7), accounts=lowered)[P].target == 7 + 1


def test_an_accounts_headroom_is_spent_once_on_the_longest_wait_first() -> None:
    """I45"""
    wishes = wish(
        pool(key(9, number=1, waited=1), number=P),
        pool(key(9, number=2, waited=5), number=Q),
        accounts={ACME: runners(10)},
    )
    assert (wishes[Q].demand, wishes[P].demand) == (9, 1)
    assert (wishes[Q].withheld, wishes[P].withheld) == (0, 1)


def test_equal_waits_are_served_in_an_order_that_does_not_change() -> None:
    """I45"""
    one, other = pool(key(9, number=1), number=P), pool(key(9, number=2), number=Q)
    cap = {ACME: runners(10)}
    assert wish(one, other, accounts=cap) == wish(other, one, accounts=cap)


def test_headroom_that_a_full_pool_cannot_use_is_left_to_the_others() -> None:
    """I45"""
    wishes = wish(
        pool(key(50, number=1, waited=9), number=P, occupied=5, maximum=6),
        pool(key(4, number=2), number=Q),
        accounts={ACME: runners(10, used=5)},
    )
    assert (wishes[P].target, wishes[Q].demand) == (6, 4)


def test_one_accounts_cap_does_not_hold_up_another() -> None:
    wishes = wish(
        pool(key(50, number=1, waited=9), key(3, number=2, account=BETA)),
        accounts={ACME: runners(0)},
    )
    assert wishes[P].demand == 3


def test_a_repositorys_own_limit_counts_beside_its_accounts() -> None:
    repository = RepositoryId(7)
    wishes = wish(
        pool(key(9, number=1, repository=repository, waited=1), key(9, number=2)),
        accounts={ACME: runners(5)},
        repositories={repository: runners(2)},
    )
    assert (wishes[P].demand, wishes[P].withheld) == (2 + 3, 1)


def test_a_limit_in_vcpu_counts_what_a_pod_costs() -> None:
    allowance = Allowance(limits=Limits(vcpu_milli=9000))
    load = replace(pool(key(9)), cost=BIG)
    assert wish(load, accounts={ACME: allowance})[P].demand == 2


def test_a_wish_explains_itself() -> None:
    wishes = wish(
        pool(key(9), occupied=4, min_idle=2, maximum=8), accounts={ACME: runners(7, used=4)}
    )
    assert str(wishes[P]) == (
        "8 wanted: 4 occupied + 3 for queued jobs + 1 for work withheld by a cap + 2 kept idle, "
        "limited to the maximum of 8"
    )
    assert str(wish(pool())[P]) == "0 wanted: no work"


counts = st.integers(0, 12)
limits = st.builds(
    Limits,
    runners=st.none() | counts,
    vcpu_milli=st.none() | st.integers(0, 20_000),
    memory_mib=st.none() | st.integers(0, 40_000),
)
costs = st.builds(
    Resources,
    runners=st.just(1),
    vcpu_milli=st.sampled_from([0, 500, 1000, 4000]),
    memory_mib=st.sampled_from([0, 1024, 3000]),
)
usages = st.builds(
    Resources,
    runners=counts,
    vcpu_milli=st.integers(0, 24_000),
    memory_mib=st.integers(0, 48_000),
)
allowances = st.builds(Allowance, limits=limits, used=usages)


@st.composite
def pool_loads(draw: st.DrawFn) -> list[PoolLoad]:
    loads = []
    for number in range(draw(st.integers(0, 4))):
        keys = tuple(
            key(
                draw(counts),
                draw(counts),
                number=10 * number + k,
                account=AccountId(draw(st.integers(1, 3))),
                repository=draw(st.none() | st.integers(1, 2).map(RepositoryId)),
                waited=draw(st.integers(0, 3)),
            )
            for k in range(draw(st.integers(0, 3)))
        )
        load = pool(
            *keys,
            number=PoolId(number),
            occupied=draw(counts),
            min_idle=draw(st.integers(0, 4)),
            maximum=draw(st.integers(0, 30)),
        )
        loads.append(replace(load, cost=draw(costs)))
    return loads


account_maps = st.dictionaries(st.integers(1, 3).map(AccountId), allowances, max_size=3)
repository_maps = st.dictionaries(st.integers(1, 2).map(RepositoryId), allowances, max_size=2)


@given(allowances, costs, st.integers(0, 40))
def test_headroom_is_what_the_limits_would_admit_one_by_one(
    allowance: Allowance, cost: Resources, most: int
) -> None:
    admitted, used = 0, allowance.used
    while admitted < most and allowance.limits.admit(used, cost):
        admitted, used = admitted + 1, used + cost
    assert allowance.headroom(cost, most=most) == admitted


@given(pool_loads(), account_maps, repository_maps)
def test_a_target_stays_between_zero_and_the_maximum(
    loads: list[PoolLoad],
    accounts: dict[AccountId, Allowance],
    repositories: dict[RepositoryId, Allowance],
) -> None:
    """I54"""
    wishes = desired(loads, accounts=accounts, repositories=repositories)
    for load in loads:
        assert 0 <= wishes[load.pool].target <= load.maximum


@given(pool_loads(), account_maps, repository_maps)
def test_the_target_is_the_formula(
    loads: list[PoolLoad],
    accounts: dict[AccountId, Allowance],
    repositories: dict[RepositoryId, Allowance],
) -> None:
    """With one pool, which alone spends the headroom, and one key per account and repository."""
    for load in loads:
        keys = load.keys[:1]
        alone = replace(load, keys=keys)
        demand = withheld = 0
        for k in keys:
            unserved = max(0, k.queued - k.supply)
            headroom = accounts.get(k.account, Allowance()).headroom(load.cost, most=999)
            if k.repository is not None:
                repository = repositories.get(k.repository, Allowance())
                headroom = min(headroom, repository.headroom(load.cost, most=999))
            demand += min(headroom, unserved)
            withheld = int(headroom < unserved)
        wanted = load.occupied + demand + withheld + load.min_idle
        wishes = desired([alone], accounts=accounts, repositories=repositories)
        assert wishes[load.pool].target == max(0, min(wanted, load.maximum))


@given(pool_loads(), account_maps)
def test_no_allowance_is_spent_twice(
    loads: list[PoolLoad], accounts: dict[AccountId, Allowance]
) -> None:
    """I45: all accounts made one, what all pools want together fits into its headroom."""
    loads = [
        replace(load, keys=tuple(replace(k, account=ACME, repository=None) for k in load.keys))
        for load in loads
    ]
    wishes = desired(loads, accounts=accounts, repositories={})
    ours = accounts.get(ACME, Allowance())
    used = ours.used
    for load in loads:
        for _ in range(wishes[load.pool].demand):
            assert ours.limits.admit(used, load.cost)
            used += load.cost


@given(pool_loads(), account_maps, repository_maps)
def test_headroom_is_left_only_where_no_pool_could_use_it(
    loads: list[PoolLoad],
    accounts: dict[AccountId, Allowance],
    repositories: dict[RepositoryId, Allowance],
) -> None:
    """I44: every unserved job is built for, or its pool is full, or a cap withholds it."""
    wishes = desired(loads, accounts=accounts, repositories=repositories)
    for load in loads:
        found = wishes[load.pool]
        unserved = sum(k.unserved for k in load.keys)
        if found.demand < unserved and load.occupied + found.demand < load.maximum:
            assert found.withheld == 1
        if found.demand == unserved:
            assert found.withheld == 0


@given(pool_loads(), account_maps, repository_maps)
def test_withheld_work_keeps_a_pod_unless_the_maximum_forbids_it(
    loads: list[PoolLoad],
    accounts: dict[AccountId, Allowance],
    repositories: dict[RepositoryId, Allowance],
) -> None:
    """I44"""
    wishes = desired(loads, accounts=accounts, repositories=repositories)
    for load in loads:
        if any(k.unserved for k in load.keys) and load.maximum > 0:
            assert wishes[load.pool].target > 0


@given(pool_loads(), account_maps, repository_maps)
def test_sizes_do_not_depend_on_the_order_of_pools_and_keys(
    loads: list[PoolLoad],
    accounts: dict[AccountId, Allowance],
    repositories: dict[RepositoryId, Allowance],
) -> None:
    backwards = [replace(load, keys=load.keys[::-1]) for load in reversed(loads)]
    assert desired(loads, accounts=accounts, repositories=repositories) == desired(
        backwards, accounts=accounts, repositories=repositories
    )


def test_more_is_wanted_at_once() -> None:
    size, _ = settle(
        [SizeSample(NOON, 2)], SizeSample(NOON + MINUTE, 9), window=WINDOW, maximum=100
    )
    assert size == 9


def test_less_is_wanted_for_a_whole_window_before_a_pool_shrinks() -> None:
    """I53"""
    history: tuple[SizeSample, ...] = (SizeSample(NOON, 9),)
    sizes = []
    for minute in range(1, 8):
        wanted = SizeSample(NOON + minute * MINUTE, 2)
        size, history = settle(history, wanted, window=WINDOW, maximum=100)
        sizes.append(size)
    assert sizes == [9, 9, 9, 9, 9, 2, 2]


def test_an_outage_longer_than_the_window_does_not_shrink_a_pool_at_its_end() -> None:
    """I53: nine was the last that was known to be wanted."""
    hours_later = SizeSample(NOON + timedelta(hours=3), 0)
    size, _ = settle([SizeSample(NOON, 9)], hours_later, window=WINDOW, maximum=100)
    assert size == 9


def test_a_lower_maximum_holds_at_once() -> None:
    """I54"""
    size, _ = settle([SizeSample(NOON, 9)], SizeSample(NOON, 9), window=WINDOW, maximum=0)
    assert size == 0


def test_without_a_window_a_pool_follows_at_once() -> None:
    size, _ = settle([SizeSample(NOON, 9)], SizeSample(NOON, 2), window=timedelta(0), maximum=100)
    assert size == 2


samples = st.builds(
    SizeSample, st.integers(0, 20).map(lambda minute: NOON + minute * MINUTE), st.integers(0, 50)
)


@given(st.lists(samples), samples, st.integers(0, 60))
def test_a_settled_size_is_never_below_anything_wanted_within_the_window(
    history: list[SizeSample], wanted: SizeSample, maximum: int
) -> None:
    """I53"""
    size, _ = settle(history, wanted, window=WINDOW, maximum=maximum)
    recent = [s.pods for s in history if s.at > wanted.at - WINDOW]
    assert size >= min(maximum, max([wanted.pods, *recent]))
    assert size <= min(maximum, max([wanted.pods, *(s.pods for s in history)]))


@given(st.lists(samples, min_size=1))
def test_what_is_forgotten_would_not_have_mattered(seen: list[SizeSample]) -> None:
    """I53"""
    seen = sorted(seen, key=lambda sample: sample.at)
    kept: tuple[SizeSample, ...] = ()
    for number, sample in enumerate(seen):
        size, kept = settle(kept, sample, window=WINDOW, maximum=100)
        assert size == settle(seen[:number], sample, window=WINDOW, maximum=100)[0]
        assert sum(s.at <= sample.at - WINDOW for s in kept) <= 1


def want(
    number: PoolId = P,
    *,
    occupied: int = 0,
    demand: int = 0,
    floor: int = 0,
    headroom: int = 0,
    cost: Resources = SMALL,
) -> Want:
    return Want(
        pool=number, cost=cost, occupied=occupied, demand=demand, floor=floor, headroom=headroom
    )


def nodes(pods: int) -> Limits:
    return Limits(vcpu_milli=1000 * pods, memory_mib=2048 * pods)


def test_pools_get_all_they_want_where_it_fits() -> None:
    wants = [want(P, demand=3, floor=2), want(Q, occupied=4, headroom=1)]
    assert share(wants, nodes(10)) == {P: 5, Q: 5}


def test_real_load_outranks_another_pools_warm_floor() -> None:
    """I47"""
    assert share([want(P, demand=8), want(Q, floor=8)], nodes(10)) == {P: 8, Q: 2}


def test_a_floor_outranks_another_pools_headroom() -> None:
    """I47"""
    assert share([want(P, headroom=8), want(Q, floor=8)], nodes(10)) == {P: 2, Q: 8}


def test_scarce_places_are_divided_in_proportion_and_the_rest_by_largest_remainder() -> None:
    """I47: of 10 places for 7, 5 and 3 wanted jobs the quotas are 4⅔, 3⅓ and 2."""
    wants = [want(P, demand=7), want(Q, demand=5), want(R, demand=3)]
    assert share(wants, nodes(10)) == {P: 5, Q: 3, R: 2}


def test_pods_at_work_are_not_taken_back_where_nodes_were_lost() -> None:
    assert share([want(P, occupied=8), want(Q, demand=5)], nodes(4)) == {P: 8, Q: 0}


def test_a_place_too_small_for_one_pool_is_left_to_another() -> None:
    wants = [want(P, demand=1, cost=BIG), want(Q, demand=9)]
    assert share(wants, nodes(3)) == {P: 0, Q: 3}


def test_nodes_take_only_so_many_pods_however_small() -> None:
    assert share([want(P, demand=10)], Limits(runners=4)) == {P: 4}


def test_a_target_is_split_by_how_much_it_matters() -> None:
    load = pool(key(9, waited=1), occupied=4, min_idle=2)
    [found] = wish(load, accounts={ACME: runners(7, used=4)}).values()
    assert Want.of(load, found, target=15) == want(occupied=4, demand=3, floor=3, headroom=5)
    assert Want.of(load, found, target=8) == want(occupied=4, demand=3, floor=1)
    assert Want.of(load, found, target=0) == want(occupied=4)


@st.composite
def want_lists(draw: st.DrawFn) -> list[Want]:
    return [
        want(
            PoolId(number),
            occupied=draw(st.integers(0, 5)),
            demand=draw(counts),
            floor=draw(counts),
            headroom=draw(counts),
            cost=draw(costs),
        )
        for number in range(draw(st.integers(0, 5)))
    ]


def used_by(wants: list[Want], places: dict[PoolId, int]) -> Resources:
    used = NOTHING
    for each in wants:
        for _ in range(places[each.pool]):
            used += each.cost
    return used


def at_work(wants: list[Want]) -> dict[PoolId, int]:
    return {each.pool: each.occupied for each in wants}


@given(want_lists(), limits)
def test_nothing_is_given_that_does_not_fit(wants: list[Want], capacity: Limits) -> None:
    """I48"""
    places = share(wants, capacity)
    if places != at_work(wants):
        assert capacity.admit(used_by(wants, places), NOTHING)


@given(want_lists(), limits)
def test_a_pool_gets_no_more_than_it_wants_and_no_less_than_it_occupies(
    wants: list[Want], capacity: Limits
) -> None:
    places = share(wants, capacity)
    for each in wants:
        most = each.occupied + each.demand + each.floor + each.headroom
        assert each.occupied <= places[each.pool] <= most


@given(want_lists(), limits)
def test_no_place_is_left_empty_that_someone_wants_and_that_fits(
    wants: list[Want], capacity: Limits
) -> None:
    places = share(wants, capacity)
    used = used_by(wants, places)
    for each in wants:
        if places[each.pool] < each.occupied + each.demand + each.floor + each.headroom:
            assert not capacity.admit(used, each.cost)


@given(want_lists(), limits)
def test_floors_and_headroom_take_nothing_from_real_load(
    wants: list[Want], capacity: Limits
) -> None:
    """I47"""
    cold = share([replace(each, floor=0, headroom=0) for each in wants], capacity)
    places = share(wants, capacity)
    assert all(places[each.pool] >= cold[each.pool] for each in wants)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 100))
def test_equal_pods_are_shared_within_one_of_the_exact_proportion(
    asked: list[int], capacity: int
) -> None:
    """I47"""
    wants = [want(PoolId(number), demand=demand) for number, demand in enumerate(asked)]
    places = share(wants, nodes(capacity))
    fair = min(1.0, capacity / max(1, sum(asked)))
    for each in wants:
        assert abs(places[each.pool] - each.demand * fair) < 1


@given(want_lists(), limits)
def test_shares_do_not_depend_on_the_order_of_pools(wants: list[Want], capacity: Limits) -> None:
    assert share(wants, capacity) == share(wants[::-1], capacity)


@given(want_lists())
def test_unlimited_nodes_give_everything(wants: list[Want]) -> None:
    places = share(wants, UNLIMITED)
    for each in wants:
        assert places[each.pool] == each.occupied + each.demand + each.floor + each.headroom
