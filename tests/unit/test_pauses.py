"""Leaving GitHub alone after a failure."""

from __future__ import annotations

from paddock.dispatch.pauses import Pauses, Place
from paddock.domain.github.errors import BackOff, Failure, Kind
from paddock.domain.github.objects import AppKey, GitHubAppId, GitHubHost
from paddock.domain.ids import JobId
from tests.support.time import ManualClock

APP = AppKey(host=GitHubHost("github.com"), app=GitHubAppId(1))
ACCOUNT = Place(app=APP, installation=7)


def failure(seconds: float, *, of: BackOff = BackOff.ACCOUNT) -> Failure:
    return Failure(
        kind=Kind.SERVER_ERROR,
        backs_off=of,
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


def test_a_failure_pauses_the_scope_it_names_and_nothing_beside_it() -> None:
    """I17"""
    job = Place(app=APP, installation=7, repository="acme/site", job=JobId(1))
    beside = {
        BackOff.JOB: Place(app=APP, installation=7, repository="acme/site", job=JobId(2)),
        BackOff.REPOSITORY: Place(app=APP, installation=7, repository="acme/api", job=JobId(1)),
        BackOff.ACCOUNT: Place(app=APP, installation=8, repository="other/site"),
        BackOff.APP: Place(app=AppKey(host=APP.host, app=GitHubAppId(2)), installation=7),
    }
    for scope, other in beside.items():
        pauses = Pauses(ManualClock())
        pauses.begin(job, failure(60.0, of=scope), at_least=5.0)
        assert pauses.active(job), scope
        assert not pauses.active(other), scope
