"""Services beside HTTP: a failure of one does not affect the others."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from paddock.ports.errors import DatabaseUnavailable
from paddock.services import LONGEST_BACKOFF, STORE_BACKOFF, Service, Troubles, running, supervise
from tests.support.time import ManualClock


class Clock(ManualClock):
    """Records the requested sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.naps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        await super().sleep(seconds)
        await asyncio.sleep(0)


AWAY = DatabaseUnavailable("The database is away.")


class Impatient(ManualClock):
    """Cancels the service at its first wait, before a second try."""

    async def sleep(self, seconds: float) -> None:
        raise asyncio.CancelledError


class Fragile:
    """Fails with each of the errors in turn, after working for so long; then ends."""

    def __init__(self, clock: Clock, *errors: str, works_for: float = 0.0) -> None:
        self._clock = clock
        self._errors = list(errors)
        self._works_for = works_for

    async def run(self) -> None:
        if self._errors:
            self._clock.advance(self._works_for)
            raise OSError(self._errors.pop(0))


async def test_a_service_that_fails_is_started_again_later_each_time() -> None:
    clock = Clock()
    with capture_logs():
        await supervise(Service("fragile", Fragile(clock, *["away"] * 7).run), clock)
    assert clock.naps == [1, 2, 4, 8, 16, 30, 30]


async def test_a_service_that_lost_the_database_is_started_again_soon() -> None:
    """I72: a longer back-off would be added to the outage of the database."""
    clock, left = Clock(), [AWAY, ExceptionGroup("two", [AWAY, AWAY])] * 4

    async def run() -> None:
        if left:
            raise left.pop()

    with capture_logs():
        await supervise(Service("dispatch", run), clock)
    assert clock.naps == [STORE_BACKOFF] * 8


async def test_a_trouble_with_the_database_is_over_when_it_is_back() -> None:
    clock = Clock()
    troubles = Troubles(clock)
    for times in range(1, 9):
        troubles.failed("dispatch", times, "away", backoff=STORE_BACKOFF)
    assert troubles.of("dispatch") is not None
    clock.advance(3 * STORE_BACKOFF)
    assert troubles.of("dispatch") is None


async def test_the_same_failure_is_logged_once() -> None:
    clock = Clock()
    with capture_logs() as logs:
        await supervise(Service("fragile", Fragile(clock, *["away"] * 5, "other").run), clock)
    assert [log["service"] for log in logs] == ["fragile", "fragile"]


@pytest.mark.parametrize(
    ("error", "sentence", "is_traced"),
    [
        (AWAY, "The database is away.", False),
        (ExceptionGroup("two", [AWAY, AWAY]), "The database is away.", False),
        (KeyError("x"), "KeyError: 'x'", True),
        (ExceptionGroup("two", [AWAY, KeyError("x")]), "The database is away. KeyError: 'x'", True),
    ],
)
async def test_a_known_trouble_is_logged_as_its_sentence_and_a_bug_with_its_trace(
    error: Exception, sentence: str, is_traced: bool
) -> None:
    async def failing() -> None:
        raise error

    with capture_logs() as logs, suppress(asyncio.CancelledError):
        await supervise(Service("service", failing), Impatient())
    assert [(log["error"], log["exc_info"]) for log in logs] == [(sentence, is_traced)]


async def test_a_service_that_worked_is_not_blamed_for_the_past() -> None:
    clock = Clock()
    fragile = Fragile(clock, "away", "away", works_for=LONGEST_BACKOFF + 1)
    with capture_logs() as logs:
        await supervise(Service("fragile", fragile.run), clock)
    assert clock.naps == [1, 1]
    assert len(logs) == 2


async def test_the_others_carry_on_and_all_end_together() -> None:
    clock = Clock()
    started, ended = asyncio.Event(), asyncio.Event()

    async def steady() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    services = [Service("fragile", Fragile(clock, "away").run), Service("steady", steady)]
    with capture_logs():
        async with running(services, clock):
            await started.wait()
    assert ended.is_set()


async def test_a_service_that_keeps_failing_is_a_trouble_for_as_long_as_it_does() -> None:
    clock = Clock()
    troubles = Troubles(clock)
    with capture_logs():
        await supervise(Service("dispatch", Fragile(clock, *["away"] * 3).run), clock, troubles)
        assert troubles.of("deliveries", "dispatch") is None
        await supervise(Service("dispatch", Fragile(clock, *["away"] * 4).run), clock, troubles)
    assert troubles.of("deliveries", "dispatch") == (
        "dispatch failed 4 times in a row: OSError: away"
    )
    clock.advance(3 * LONGEST_BACKOFF)
    assert troubles.of("deliveries", "dispatch") is None
