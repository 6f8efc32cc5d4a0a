"""Which deliveries are requested again: all that are missing, none that arrived, never for ever."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.github.objects import DeliveryId, DeliveryRecord, GitHubHost
from paddock.domain.github.redelivery import (
    APPLIED_EVENTS,
    FIRST_GAP,
    OVERLAP,
    WINDOW,
    Asked,
    RedeliveryPlan,
    look_back,
    plan,
)

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

_ids = itertools.count(1)


def attempt(
    guid: str = "g",
    *,
    ago: timedelta = HOUR,
    status: int = 502,
    redelivery: bool = False,
    event: str = "workflow_job",
) -> DeliveryRecord:
    return DeliveryRecord(
        host=GitHubHost("github.com"),
        id=DeliveryId(next(_ids)),
        guid=guid,
        delivered_at=NOW - ago,
        redelivery=redelivery,
        status="OK" if status == 200 else "failed",
        status_code=status,
        event=event,
        action="queued",
        installation_id=None,
        repository_id=None,
    )


def planned(
    *attempts: DeliveryRecord,
    arrived: Iterable[str] = (),
    asked: dict[str, Asked] | None = None,
    cursor: datetime = NOW - 4 * DAY,
    seen_since: datetime | None = None,
    now: datetime = NOW,
    most: int = 100,
) -> RedeliveryPlan:
    return plan(
        attempts,
        arrived=frozenset(arrived),
        asked=asked or {},
        cursor=cursor,
        seen_since=look_back(cursor) if seen_since is None else seen_since,
        now=now,
        most=most,
    )


def asked_for(decided: RedeliveryPlan) -> list[str]:
    return [delivery.guid for delivery in decided.ask]


def test_what_failed_is_asked_for() -> None:
    failed = attempt()
    assert planned(failed).ask == (failed,)


def test_a_guid_that_succeeded_in_any_attempt_is_done() -> None:
    """I7: the failed attempt is still listed, before the one that succeeded and after it."""
    before = [attempt(ago=2 * HOUR), attempt(ago=HOUR, status=200, redelivery=True)]
    after = [attempt(ago=2 * HOUR, status=200), attempt(ago=HOUR, redelivery=True)]
    assert planned(*before).ask == planned(*after).ask == ()


def test_a_guid_that_arrived_is_done_even_if_github_disagrees() -> None:
    """I7: an answer that came too late counts as failed at GitHub."""
    assert planned(attempt(status=0), arrived=["g"]).ask == ()


@pytest.mark.parametrize("event", ["push", "ping", "check_run", "installation_target"])
def test_events_that_are_not_applied_are_left_alone(event: str) -> None:
    decided = planned(attempt(event=event), attempt("new", ago=MINUTE, status=200))
    assert decided.ask == ()
    assert decided.cursor == NOW - MINUTE - OVERLAP


def test_an_attempt_that_may_still_be_under_way_is_waited_for() -> None:
    assert planned(attempt(ago=FIRST_GAP - timedelta(seconds=1))).ask == ()
    assert asked_for(planned(attempt(ago=FIRST_GAP))) == ["g"]


def test_a_redelivery_just_asked_for_is_waited_for_before_it_is_listed() -> None:
    just_now = {"g": Asked(times=1, last=NOW - timedelta(seconds=30))}
    assert planned(attempt(), asked=just_now).ask == ()


def test_the_newest_attempt_is_the_one_to_repeat() -> None:
    first, again = attempt(ago=5 * HOUR), attempt(ago=3 * HOUR, redelivery=True)
    assert planned(first, again).ask == (again,)


def test_the_oldest_are_asked_for_first_and_not_all_at_once() -> None:
    late, early, middle = (
        attempt("c", ago=HOUR),
        attempt("a", ago=3 * HOUR),
        attempt("b", ago=2 * HOUR),
    )
    assert asked_for(planned(late, early, middle, most=2)) == ["a", "b"]


def test_what_is_older_than_githubs_window_is_given_up_and_holds_nothing() -> None:
    decided = planned(attempt("old", ago=WINDOW + MINUTE), attempt("new", ago=HOUR, status=200))
    assert decided.ask == ()
    assert decided.given_up == {"old"}
    assert decided.cursor == NOW - HOUR - OVERLAP


def test_repetitions_whose_original_has_left_the_list_are_not_repeated() -> None:
    """Each would open a window of its own, and there would be no end to it."""
    assert planned(attempt(redelivery=True)).ask == ()


def test_the_cursor_waits_for_what_has_not_arrived() -> None:
    """I8"""
    missing = attempt("missing", ago=5 * HOUR)
    decided = planned(missing, *(attempt(f"g{n}", ago=n * HOUR, status=200) for n in range(1, 5)))
    assert decided.cursor == missing.delivered_at


def test_the_cursor_stays_below_what_could_still_be_listed_late() -> None:
    assert planned(attempt(ago=HOUR, status=200)).cursor == NOW - HOUR - OVERLAP


def test_the_cursor_stays_where_it_is_if_nothing_is_listed() -> None:
    assert planned(cursor=NOW - DAY).cursor == NOW - DAY


def test_as_long_as_not_everything_is_read_the_cursor_stays() -> None:
    """I8, I29: what lies beyond is not concluded about; what is in full sight is asked for."""
    seen, beyond = attempt("seen", ago=HOUR), attempt("beyond", ago=3 * HOUR)
    decided = planned(seen, beyond, cursor=NOW - DAY, seen_since=NOW - 2 * HOUR)
    assert asked_for(decided) == ["seen"]
    assert decided.cursor == NOW - DAY
    assert decided.keep == {"seen", "beyond"}


def test_a_success_is_remembered_until_the_failure_before_it_can_be_read() -> None:
    """I7: only GitHub knows of this success, and the list is read from its new end."""
    success = attempt(status=200, redelivery=True, ago=HOUR)
    first = planned(success, cursor=NOW - DAY, seen_since=NOW - 2 * HOUR)
    assert "g" in first.keep
    assert planned(success, attempt(ago=3 * HOUR), cursor=NOW - DAY).ask == ()


def test_what_is_settled_is_forgotten_once_everything_is_read() -> None:
    settled = [attempt("a", status=200), attempt("b"), attempt("c", event="push")]
    assert planned(*settled, arrived=["b"]).keep == frozenset()


guids = st.sampled_from("abcde")
agos = st.integers(0, 5 * 24 * 60).map(lambda minutes: minutes * MINUTE)


@st.composite
def lists(draw: st.DrawFn) -> list[DeliveryRecord]:
    """Any list GitHub may give: every GUID's first attempt is its original."""
    listed: list[DeliveryRecord] = []
    for guid in draw(st.sets(guids)):
        event = draw(st.sampled_from([*sorted(APPLIED_EVENTS), "push"]))
        ages = sorted(draw(st.lists(agos, min_size=1, max_size=4)), reverse=True)
        listed += [
            attempt(
                guid,
                ago=ago,
                status=draw(st.sampled_from([0, 200, 401, 502, 503])),
                redelivery=number > 0,
                event=event,
            )
            for number, ago in enumerate(ages)
        ]
    return listed


def unsettled(listed: list[DeliveryRecord], arrived: set[str]) -> dict[str, datetime]:
    """An independent definition: when each GUID that is still missing was first sent."""
    missing: dict[str, datetime] = {}
    for guid in {each.guid for each in listed} - arrived:
        mine = [each for each in listed if each.guid == guid]
        first = min(each.delivered_at for each in mine)
        if mine[0].event != "push" and not any(each.status_code == 200 for each in mine):
            missing[guid] = first
    return missing


@given(lists(), st.sets(guids), agos, st.integers(0, 3))
def test_the_cursor_never_passes_what_is_unsettled(
    listed: list[DeliveryRecord], arrived: set[str], back: timedelta, most: int
) -> None:
    """I8"""
    cursor = NOW - back
    decided = planned(*listed, arrived=arrived, cursor=cursor, most=most)
    newest = max((each.delivered_at for each in listed), default=cursor)
    assert cursor <= decided.cursor <= max(cursor, newest - OVERLAP)
    for guid, first in unsettled(listed, arrived).items():
        if first >= cursor and NOW - first <= WINDOW:
            assert decided.cursor <= first
            assert guid in decided.keep


@given(lists(), st.sets(guids), agos)
def test_nothing_is_asked_for_that_arrived_anyhow(
    listed: list[DeliveryRecord], arrived: set[str], back: timedelta
) -> None:
    """I7: all attempts are looked at, also those the plan has least reason to."""
    decided = planned(*listed, arrived=arrived, cursor=NOW - back)
    assert set(asked_for(decided)) <= set(unsettled(listed, arrived))


@given(lists(), st.randoms(use_true_random=False))
def test_the_order_of_the_list_decides_nothing(
    listed: list[DeliveryRecord], random: Random
) -> None:
    shuffled = list(listed)
    random.shuffle(shuffled)
    assert planned(*shuffled) == planned(*listed)


class Happens(StrEnum):
    """What may become of a redelivery that was asked for."""

    FAILS = "fails"
    SWALLOWED = "swallowed"  # GitHub said yes, and nothing is ever listed
    ARRIVES = "arrives"


@given(
    st.lists(st.sampled_from([Happens.FAILS, Happens.SWALLOWED]), max_size=30),
    st.sampled_from([Happens.FAILS, Happens.SWALLOWED, Happens.ARRIVES]),
    st.sampled_from([3 * DAY, 7 * DAY]),
)
def test_endless_redelivery_is_impossible(
    fates: list[Happens], at_last: Happens, listed_for: timedelta
) -> None:
    """I7: with any outcome of the redeliveries, a GUID is requested some twenty times at growing
    intervals, and never again after three days, however long GitHub lists an attempt."""
    original = attempt(ago=timedelta(0))
    listed, arrived = [original], set[str]()
    memory: dict[str, Asked] = {}
    times: list[datetime] = []
    cursor, now = NOW - HOUR, NOW
    while now < NOW + 8 * DAY:
        now += 5 * MINUTE
        listed = [each for each in listed if now - each.delivered_at < listed_for]
        decided = planned(*listed, arrived=arrived, asked=memory, cursor=cursor, now=now)
        assert decided.cursor >= cursor
        cursor = decided.cursor
        memory = {guid: each for guid, each in memory.items() if guid in decided.keep}
        for each in decided.ask:
            times.append(now)
            happens = fates[len(times) - 1] if len(times) <= len(fates) else at_last
            memory[each.guid] = Asked(times=len(times), last=now)
            if happens is Happens.ARRIVES:
                arrived.add(each.guid)
            if happens is not Happens.SWALLOWED:
                listed.append(
                    replace(each, id=DeliveryId(next(_ids)), delivered_at=now, redelivery=True)
                )
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(times) <= 21
    assert times[-1] - original.delivered_at <= WINDOW
    assert all(later >= earlier - 5 * MINUTE for earlier, later in itertools.pairwise(gaps))
    if at_last is Happens.ARRIVES and len(fates) < 15:
        assert len(times) == len(fates) + 1
