"""Leaving GitHub alone after a failure."""

from __future__ import annotations

from paddock.dispatch.pauses import Pauses, Place
from paddock.domain.github_errors import BackOff, Failure, Kind
from paddock.domain.ids import AppId
from tests.support.time import ManualClock

ACCOUNT = Place(app=AppId(1), installation=7)


def failure(seconds: float) -> Failure:
    return Failure(
        kind=Kind.SERVER_ERROR,
        backs_off=BackOff.ACCOUNT,
        backoff_s=seconds,
        ceiling_s=3600.0,
        retryable=False,
        sentence="test",
    )


def until_asked_again(pauses: Pauses, clock: ManualClock) -> float:
    waited = 0.0
    while pauses.active(ACCOUNT):
        clock.advance(1.0)
        waited += 1.0
    return waited


def test_a_pause_grows_while_its_failure_repeats() -> None:
    clock = ManualClock()
    pauses = Pauses(clock)
    waits = []
    for _ in range(4):
        pauses.begin(ACCOUNT, failure(30.0), at_least=5.0)
        waits.append(until_asked_again(pauses, clock))
    assert waits == [30, 60, 120, 240]


def test_short_failures_do_not_make_the_first_of_another_kind_wait_for_an_hour() -> None:
    clock = ManualClock()
    pauses = Pauses(clock)
    for _ in range(3):
        pauses.begin(ACCOUNT, failure(5.0), at_least=5.0)
        until_asked_again(pauses, clock)
    pauses.begin(ACCOUNT, failure(600.0), at_least=5.0)
    assert until_asked_again(pauses, clock) == 600


def test_what_worked_is_forgiven() -> None:
    clock = ManualClock()
    pauses = Pauses(clock)
    for _ in range(2):
        pauses.begin(ACCOUNT, failure(30.0), at_least=5.0)
        pauses.end(ACCOUNT)
        assert not pauses.active(ACCOUNT)
    assert pauses.begin(ACCOUNT, failure(30.0), at_least=5.0)
    assert until_asked_again(pauses, clock) == 30
