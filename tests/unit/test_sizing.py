"""Decisions on sizes, hosts to avoid, and the settings of both in a pool's description."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.ids import AccountId, KeyId, PoolId
from paddock.domain.limits import Limits, Resources
from paddock.domain.pods.placement import StartFailures, hosts_to_avoid
from paddock.domain.pods.pod import Host
from paddock.domain.pools.scaling import KeyLoad, SizeSample, Want, share
from paddock.domain.pools.sizing import Decision, Room, SizedPool, change, decide
from paddock.domain.pools.terms import Rollout, Terms, duration, shown

NOON = datetime(2026, 6, 6, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
P, Q = PoolId(1), PoolId(2)
SMALL = Resources(vcpu_milli=1000, memory_mib=1000)
BIG = Resources(vcpu_milli=8000, memory_mib=8000)
PLENTY = 1_000_000


def key(queued: int, *, waited: timedelta = timedelta(0), number: int = 1) -> KeyLoad:
    return KeyLoad(
        key=KeyId(number), account=AccountId(1), queued=queued, supply=0, oldest=NOON - waited
    )


def pool(
    *keys: KeyLoad,
    number: PoolId = P,
    terms: Terms = Terms(),
    cost: Resources = SMALL,
    occupied: int = 0,
    waiting: int = 0,
    history: tuple[SizeSample, ...] = (),
) -> SizedPool:
    return SizedPool(
        pool=number,
        terms=terms,
        cost=cost,
        occupied=occupied,
        waiting=waiting,
        keys=keys,
        history=history,
    )


def host(
    vcpu: int, *, cordoned: bool = False, ready: bool = True, fault: str | None = None
) -> Host:
    capacity = Resources(runners=PLENTY, vcpu_milli=1000 * vcpu, memory_mib=PLENTY)
    return Host(name="h", capacity=capacity, cordoned=cordoned, ready=ready, fault=fault)


def decided(*pools: SizedPool, room: Room | None = None) -> dict[PoolId, Decision]:
    return decide(pools, accounts={}, repositories={}, rooms=[room] if room else [], now=NOON)


def test_a_decision_says_what_it_follows_from() -> None:
    decision = decided(
        pool(
            key(3),
            occupied=2,
            terms=Terms(min_idle=1, max_runners=20),
            history=(SizeSample(NOON - 2 * MINUTE, 9),),
        )
    )[P]
    assert (decision.wanted, decision.target) == (6, 9)
    assert decision.why == (
        "6 wanted: 2 occupied + 3 for queued jobs + 1 kept idle; "
        "9 kept: so many were wanted within the last 5m"
    )


def test_a_fixed_size_is_an_order_and_holds_at_once() -> None:
    """I54"""
    history = (SizeSample(NOON - MINUTE, 9),)
    for size in (0, 3, 12):
        decision = decided(pool(key(5), terms=Terms(size=size), history=history))[P]
        assert (decision.wanted, decision.target) == (size, size)


def test_a_first_look_does_not_shrink_a_pool() -> None:
    """I53"""
    assert decided(pool(occupied=1, waiting=4))[P].target == 5


def test_what_hosts_have_no_room_for_is_not_gone_for() -> None:
    room = Room.of([host(4)])
    decision = decided(pool(key(9), occupied=1), room=room)[P]
    assert (decision.wanted, decision.target) == (10, 4)
    assert decision.why.endswith("; 4 on the hosts there are, which pools share")


def test_hosts_that_take_no_new_pods_are_no_room_but_what_runs_there_needs_none() -> None:
    hosts = [host(4), host(8, cordoned=True), host(8, ready=False), host(8, fault="LoadFailed")]
    room = Room.of(hosts, elsewhere=[SMALL, SMALL], taken=[SMALL])
    assert room is not None
    assert room.limits.vcpu_milli == 4000 + 2000 - 1000


def test_a_fleet_that_cannot_tell_is_not_a_fleet_without_room() -> None:
    """I29"""
    assert Room.of([]) is None
    assert Room.of([host(4), Host(name="other")]) is None


def test_a_pool_of_large_pods_is_not_starved_by_small_ones_for_ever() -> None:
    """I47: otherwise small ones take every place as it comes free, and the large one never fits."""
    small = pool(key(100, number=1), number=P, occupied=9, terms=Terms(stabilisation_window=0))
    patient = pool(key(1, number=2, waited=MINUTE), number=Q, cost=BIG)
    starved = pool(key(1, number=2, waited=6 * MINUTE), number=Q, cost=BIG)
    room = Room.of([host(10)])
    assert decided(small, patient, room=room)[P].target == 10
    kept_free = decided(small, starved, room=room)
    assert (kept_free[P].target, kept_free[Q].target) == (9, 0)
    fewer = pool(key(100, number=1), number=P, occupied=2, terms=Terms(stabilisation_window=0))
    given_first = decided(fewer, starved, room=room)
    assert (given_first[P].target, given_first[Q].target) == (2, 1)


def test_no_place_is_kept_for_a_pod_that_would_never_fit() -> None:
    """I50"""
    small = pool(key(100, number=1), number=P)
    huge = pool(key(1, number=2, waited=60 * MINUTE), number=Q, cost=BIG)
    assert decided(small, huge, room=Room.of([host(6)]))[P].target == 6


def test_a_pool_too_large_for_any_host_takes_no_share_from_others() -> None:
    """I50: two hosts of six have room for eight, and no host has."""
    small = pool(key(100, number=1), number=P)
    large = pool(key(5, number=2, waited=60 * MINUTE), number=Q, cost=BIG)
    sizes = decided(small, large, room=Room.of([host(6), host(6)]))
    assert (sizes[P].target, sizes[Q].target) == (12, 0)


wants = st.lists(
    st.builds(
        Want,
        pool=st.integers(1, 9).map(PoolId),
        cost=st.sampled_from([SMALL, BIG]),
        occupied=st.integers(0, 3),
        demand=st.integers(1, 6),
        floor=st.integers(0, 3),
        headroom=st.integers(0, 3),
        starved_since=st.none() | st.integers(0, 5).map(lambda n: NOON - n * MINUTE),
    ),
    max_size=5,
    unique_by=lambda want: want.pool,
)


@given(wants, st.integers(0, 40))
def test_the_longest_starved_gets_the_first_place_it_fits_into(
    asked: list[Want], vcpu: int
) -> None:
    """I47"""
    capacity = Limits(vcpu_milli=1000 * vcpu)
    places = share(asked, capacity)
    taken = sum(each.occupied * each.cost.vcpu_milli for each in asked)
    starved = [each for each in asked if each.starved_since is not None]
    starved = [each for each in starved if each.cost.vcpu_milli <= 1000 * vcpu]
    if starved:
        first = min(starved, key=lambda each: (each.starved_since, each.pool))
        fits = taken + first.cost.vcpu_milli <= 1000 * vcpu
        assert (places[first.pool] > first.occupied) == fits


@given(wants, st.integers(0, 40))
def test_starved_pools_are_given_nothing_that_does_not_fit(asked: list[Want], vcpu: int) -> None:
    places = share(asked, Limits(vcpu_milli=1000 * vcpu))
    used = sum(places[each.pool] * each.cost.vcpu_milli for each in asked)
    given = any(places[each.pool] > each.occupied for each in asked)
    assert used <= 1000 * vcpu or not given


def test_what_differs_between_two_decisions() -> None:
    one = decided(pool(key(3)))[P]
    other = decided(pool(key(2), occupied=1))[P]
    assert change(None, one) == "size"
    assert change(one, one) == "same"
    assert change(one, other) == "terms"
    assert change(one, decided(pool(key(4)))[P]) == "size"


HOSTS = [Host(name=name) for name in "abcde"]


def failing(**counts: int) -> list[StartFailures]:
    return [StartFailures(host=name, count=count) for name, count in counts.items()]


def test_a_host_is_avoided_when_starts_fail_on_it_again_and_again() -> None:
    """I51"""
    assert hosts_to_avoid(failing(a=1, b=2, c=3), HOSTS) == ("c",)


def test_a_minority_of_the_hosts_is_avoided_at_most() -> None:
    """I51: where most hosts fail it is not the hosts."""
    everywhere = failing(a=3, b=9, c=5, d=7, e=3)
    assert hosts_to_avoid(everywhere, HOSTS) == ("b", "d")
    assert hosts_to_avoid(everywhere, HOSTS[:2]) == ()
    assert hosts_to_avoid(everywhere, HOSTS[:1]) == ()


def test_hosts_that_take_no_pods_anyway_are_not_counted_as_hosts() -> None:
    """I51"""
    leaving = [Host(name="x", cordoned=True), Host(name="y", ready=False), Host(name="a")]
    assert hosts_to_avoid(failing(a=9, x=9, y=9), leaving) == ()


@given(
    st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 9)),
    st.lists(
        st.builds(
            Host, name=st.sampled_from("abcdefg"), cordoned=st.booleans(), ready=st.booleans()
        ),
        unique_by=lambda each: each.name,
    ),
)
def test_most_usable_hosts_are_never_avoided(counts: dict[str, int], hosts: list[Host]) -> None:
    """I51"""
    avoided = hosts_to_avoid(failing(**counts), hosts)
    usable = [each for each in hosts if each.ready and not each.leaving]
    assert not avoided or 2 * len(avoided) < len(usable)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h", 3600), (45, 45), ("0", 0)]
)
def test_a_duration_is_read_and_shown(text: str | int, seconds: int) -> None:
    length = timedelta(seconds=seconds)
    assert duration(text) == length
    assert duration(shown(length)) == length


@pytest.mark.parametrize("text", ["", "soon", "-5m", "1.5h", "5d", "9" * 40, "m"])
def test_what_is_no_duration_is_told_so(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration: write 90s, 5m or 1h"):
        duration(text)


@pytest.mark.parametrize(
    ("given", "waiting", "missing"),
    [("25%", 8, 2), ("25%", 9, 3), ("25%", 1, 1), ("25%", 0, 1), (3, 8, 3), ("100%", 5, 5)],
)
def test_how_many_may_be_missing(given: int | str, waiting: int, missing: int) -> None:
    assert Terms(rollout=Rollout(max_unavailable=given)).may_be_missing(waiting) == missing


def test_pods_may_wait_longer_where_hosts_have_to_be_made() -> None:
    assert Terms(capacity="elastic").scheduling_timeout > Terms().scheduling_timeout


def test_a_description_of_a_later_version_is_understood_as_far_as_it_goes() -> None:
    """A rollback by one version must not stop a pool."""
    terms = Terms.of('{"minIdle": 2, "colour": "blue", "rollout": {"wave": 1}}')
    assert terms == Terms(min_idle=2)


@pytest.mark.parametrize("spec", ["", "[]", '{"minIdle": "two"}', '{"stabilisationWindow": "x"}'])
def test_a_description_that_is_no_use_is_told_so(spec: str) -> None:
    with pytest.raises(ValueError, match="its description is no use"):
        Terms.of(spec)
