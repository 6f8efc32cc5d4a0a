"""The decisions for a pool: drained, shrunk, rolled, filled, in every combination."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.ids import PoolId, RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import Host
from paddock.domain.pools.reconcile import Candidate, PoolAim, PoolPlan, plan
from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState

NOON = datetime(2026, 6, 6, 12, tzinfo=UTC)
BOOTING, IDLE = RunnerState.BOOTING, RunnerState.IDLE
FRESH, STALE = "new", "old"
CORDONED = Host(name="leaving", cordoned=True)
DELETING = Host(name="going", deleting=True)
FAULTY = Host(name="faulty", fault="LoadFailed: Resource busy")
HOSTS = (Host(name="staying"), CORDONED, DELETING, FAULTY)


def candidate(
    number: int,
    state: RunnerState = IDLE,
    *,
    spec_hash: str = FRESH,
    host: str | None = "staying",
    ended: bool = False,
) -> Candidate:
    """The higher its number, the newer it is."""
    runner = Runner(
        id=RunnerId(UUID(int=number)),
        pool=PoolId(1),
        pod_name=PodName(f"linux-{number}"),
        pod_uid=None,
        state=state,
        generation=0,
        since=NOON,
        key=None,
        account=None,
        name=None,
        mint_deadline=None,
        github_id=None,
        delivery=None,
        job=None,
        shape="gated",
        spec_hash=spec_hash,
        node=host,
        created_at=NOON + timedelta(seconds=number),
        heard_at=None,
        acknowledged_at=None,
        job_marked_at=None,
        hint=None,
        suspect_at=None,
        absent_reads=0,
        absent_since=None,
        retire_reason=None,
        deregistered_at=None,
        proved_at=None,
    )
    return Candidate(runner=runner, host=host, ended=ended)


def aim(target: int, **changes: object) -> PoolAim:
    return replace(
        PoolAim(
            spec_hash=FRESH,
            target=target,
            maximum=None,
            occupied=0,
            present=0,
            max_starting=100,
            may_be_missing=1,
        ),
        **changes,  # type: ignore[arg-type]
    )


def several(count: int, *args: object, first: int = 0, **kwargs: object) -> list[Candidate]:
    return [candidate(first + n, *args, **kwargs) for n in range(count)]  # type: ignore[arg-type]


def fenced(made: PoolPlan) -> list[int]:
    return [fence.runner.id.int for fence in made.fence]


def test_a_gap_is_filled() -> None:
    assert plan(aim(5), several(2)) == PoolPlan(create=3)


def test_occupied_runners_are_part_of_the_size() -> None:
    assert plan(aim(5, occupied=4, present=4), []).create == 1


def test_those_starting_count_against_the_start_limit() -> None:
    """I49"""
    made = plan(aim(20, max_starting=8), [*several(5, BOOTING), *several(3, first=9)])
    assert made == PoolPlan(create=3, held_back=("5 are starting, and 8 may at once",))


def test_those_still_leaving_count_against_the_maximum() -> None:
    made = plan(aim(4, maximum=4, present=3), several(1))
    assert made == PoolPlan(create=1, held_back=("3 are still there, and 4 may be",))


def test_a_pod_that_ended_is_no_supply_and_holds_no_place() -> None:
    """I40"""
    made = plan(aim(2, maximum=2, present=0), several(2, ended=True))
    assert made == PoolPlan(create=2)


def test_surplus_leaves_unstarted_first_and_newest_first() -> None:
    waiting = [*several(2, IDLE), *several(2, BOOTING, first=2), *several(2, IDLE, first=4)]
    assert [fenced(plan(aim(n), waiting)) for n in (5, 4, 3, 2, 1)] == [
        [3],
        [3, 2],
        [3, 2, 5],
        [3, 2, 5, 4],
        [3, 2, 5, 4, 1],
    ]


def test_a_runner_whose_version_is_refused_is_exchanged_at_the_pace_of_a_rollout() -> None:
    waiting = [replace(each, refused=True) for each in several(3, IDLE)]
    first = plan(aim(3), waiting)
    assert (fenced(first), first.create) == ([0], 1)
    assert first.fence[0].why == "GitHub refuses its runner's version"
    # The next one goes when the new one is ready.
    assert fenced(plan(aim(3), [*waiting[1:], candidate(5, BOOTING)])) == []
    assert fenced(plan(aim(3), [*waiting[1:], candidate(5, IDLE)])) == [1]


def test_of_the_surplus_a_stale_one_leaves_before_a_fresh_one() -> None:
    waiting = [candidate(1, spec_hash=STALE), candidate(2), candidate(3)]
    assert fenced(plan(aim(2), waiting)) == [1]


def test_a_deliberate_zero_keeps_no_waiting_runner() -> None:
    """I54"""
    assert len(fenced(plan(aim(0, maximum=0, occupied=2, present=5), several(3)))) == 3


def test_a_pool_being_deleted_keeps_no_waiting_runner_and_creates_none() -> None:
    """I42"""
    for state in ("draining", "deleted"):
        made = plan(aim(9, state=state), [*several(2), *several(2, BOOTING, first=2)])
        assert (len(made.fence), made.create) == (4, 0)


def test_a_leaving_host_keeps_no_waiting_runner_and_others_take_their_places() -> None:
    """I43"""
    waiting = [candidate(1, host="leaving"), candidate(2), candidate(3, BOOTING, host="going")]
    made = plan(aim(3), waiting, HOSTS)
    assert fenced(made) == [1, 3]
    assert made.create == 2
    assert made.fence[0].why == "its host leaving is cordoned"
    assert made.fence[1].why == "its host going is being deleted"


def test_no_runner_waits_on_a_host_whose_bootstrap_fails() -> None:
    """Their virtual machines may be filtered by nothing."""
    made = plan(aim(1), [candidate(1, host="faulty")], HOSTS)
    assert [fence.why for fence in made.fence] == [
        "its host faulty is not fit for runners: LoadFailed: Resource busy"
    ]
    assert made.create == 1


def test_a_paused_pool_keeps_what_it_has_but_for_leaving_hosts() -> None:
    """I43"""
    waiting = [candidate(1, host="leaving"), *several(3, first=2, spec_hash=STALE)]
    made = plan(aim(0, paused=True), waiting, HOSTS)
    assert (fenced(made), made.create) == ([1], 0)


def test_stale_ones_are_exchanged_as_far_as_enough_are_ready() -> None:
    """I52"""
    waiting = several(8, spec_hash=STALE)
    assert fenced(plan(aim(8, may_be_missing=2), waiting)) == [0, 1]


def test_fresh_ones_that_are_not_ready_stop_the_exchange() -> None:
    """I52"""
    waiting = [*several(6, spec_hash=STALE), *several(2, BOOTING, first=6)]
    assert plan(aim(8, may_be_missing=2), waiting) == PoolPlan()


def test_no_ready_runner_is_given_up_while_jobs_take_more_than_there_are() -> None:
    """I52"""
    waiting = several(3, spec_hash=STALE)
    made = plan(aim(8, may_be_missing=2), waiting)
    assert (fenced(made), made.create) == ([], 5)


states = st.sampled_from([BOOTING, IDLE])


@st.composite
def waiting_lists(draw: st.DrawFn) -> list[Candidate]:
    return [
        candidate(
            number,
            draw(states),
            spec_hash=draw(st.sampled_from([FRESH, STALE])),
            host=draw(st.sampled_from([None, "staying", "leaving"])),
            ended=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 12)))
    ]


@st.composite
def aims(draw: st.DrawFn, waiting: Sequence[Candidate]) -> PoolAim:
    occupied, leaving = draw(st.integers(0, 6)), draw(st.integers(0, 3))
    return PoolAim(
        state=draw(st.sampled_from(["active", "active", "active", "draining"])),
        paused=draw(st.sampled_from([False, False, True])),
        spec_hash=FRESH,
        target=draw(st.integers(0, 20)),
        maximum=draw(st.none() | st.integers(0, 20)),
        occupied=occupied,
        present=occupied + leaving + sum(not each.ended for each in waiting),
        max_starting=draw(st.integers(1, 8)),
        may_be_missing=draw(st.integers(1, 5)),
    )


situations = waiting_lists().flatmap(lambda waiting: st.tuples(aims(waiting), st.just(waiting)))


def left(waiting: Sequence[Candidate], made: PoolPlan) -> list[Candidate]:
    gone = {fence.runner.id for fence in made.fence}
    return [each for each in waiting if each.runner.id not in gone and not each.ended]


@given(situations)
def test_no_runner_is_fenced_twice_and_no_ended_pod_is(
    situation: tuple[PoolAim, list[Candidate]],
) -> None:
    """An ended Pod is concluded, not asked to go."""
    wanted, waiting = situation
    going = fenced(plan(wanted, waiting, HOSTS))
    assert len(going) == len(set(going))
    assert not set(going) & {each.runner.id.int for each in waiting if each.ended}


@given(situations)
def test_what_is_created_never_goes_beyond_target_maximum_or_start_limit(
    situation: tuple[PoolAim, list[Candidate]],
) -> None:
    """I49"""
    wanted, waiting = situation
    made = plan(wanted, waiting, HOSTS)
    if made.create:
        kept = left(waiting, made)
        assert wanted.occupied + len(kept) + made.create <= wanted.target
        assert wanted.maximum is None or wanted.present + made.create <= wanted.maximum
        starting = sum(not each.ready for each in kept)
        assert starting + made.create <= wanted.max_starting


@given(situations)
def test_enough_stay_ready_while_stale_ones_leave(
    situation: tuple[PoolAim, list[Candidate]],
) -> None:
    """I52: beside leaving hosts and surplus, only as many ready ones go as may be missing."""
    wanted, waiting = situation
    waiting = [replace(each, host="staying") for each in waiting]
    if wanted.state != "active":
        return
    there = [each for each in waiting if not each.ended]
    made = plan(wanted, waiting, HOSTS)
    should_wait = max(0, wanted.target - wanted.occupied)
    enough = max(0, should_wait - wanted.may_be_missing)
    ready = sum(each.ready for each in there)
    assert sum(each.ready for each in left(waiting, made)) >= min(ready, enough)


@given(situations)
def test_no_runner_that_is_wanted_fresh_and_on_a_staying_host_leaves(
    situation: tuple[PoolAim, list[Candidate]],
) -> None:
    wanted, waiting = situation
    there = [each for each in waiting if not each.ended and each.host != "leaving"]
    if wanted.state == "active" and wanted.occupied + len(there) <= wanted.target:
        going = set(fenced(plan(wanted, waiting, HOSTS)))
        fresh = {each.runner.id.int for each in there if each.runner.spec_hash == FRESH}
        assert not going & fresh


@given(situations)
def test_a_gap_that_is_not_filled_says_why(situation: tuple[PoolAim, list[Candidate]]) -> None:
    wanted, waiting = situation
    made = plan(wanted, waiting, HOSTS)
    missing = wanted.target - wanted.occupied - len(left(waiting, made))
    if wanted.state == "active" and made.create < missing:
        assert made.held_back


def lives(
    wanted: PoolAim, waiting: list[Candidate], *, new_start: bool
) -> Iterator[list[Candidate]]:
    """Round after round: what was fenced has left by the next, what was created exists."""
    number = 1000
    while True:
        present = wanted.occupied + len(waiting)
        made = plan(replace(wanted, present=present), waiting, HOSTS)
        waiting = left(waiting, made)
        yield waiting
        for _ in range(made.create):
            number += 1
            waiting.append(candidate(number, BOOTING))
        if new_start:
            waiting = [replace(each, runner=replace(each.runner, state=IDLE)) for each in waiting]


@given(situations)
def test_a_pool_comes_to_rest_fresh_and_of_its_size(
    situation: tuple[PoolAim, list[Candidate]],
) -> None:
    """I52: in so many rounds at most, and never with fewer ready than may be missing allows, once
    there were enough."""
    wanted, waiting = situation
    wanted = replace(wanted, state="active", paused=False, maximum=None)
    rounds = lives(wanted, waiting, new_start=True)
    final = [next(rounds) for _ in range(80)][-1]
    assert len(final) == max(0, wanted.target - wanted.occupied)
    assert all(each.runner.spec_hash == FRESH and each.host != "leaving" for each in final)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 8))
def test_new_ones_that_never_start_cost_no_more_than_may_be_missing(
    size: int, may_be_missing: int, max_starting: int
) -> None:
    """I52"""
    wanted = aim(size, may_be_missing=may_be_missing, max_starting=max_starting)
    rounds = lives(wanted, several(size, spec_hash=STALE), new_start=False)
    for waiting in (next(rounds) for _ in range(40)):
        ready = sum(each.ready for each in waiting)
        assert ready >= size - may_be_missing
