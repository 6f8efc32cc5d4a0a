"""The clocks by which paddock judges times: the database's, and GitHub's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from paddock.domain.github.objects import GitHubHost
from paddock.github.clock import HostClock
from paddock.ports.errors import DatabaseUnavailable
from paddock.store.clock import DatabaseClock

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@dataclass
class World:
    """A database, and a machine whose own clock is ahead of it."""

    seconds: float = 0.0
    own_ahead: float = 0.0
    database_ahead: float = 0.0
    #: How long the request and its answer take.
    there: float = 0.0
    back: float = 0.0
    away: bool = False

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds + self.own_ahead)

    def monotonic(self) -> float:
        return 7.0 + self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    async def ask(self) -> datetime:
        self.seconds += self.there
        if self.away:
            raise DatabaseUnavailable("it is away")
        told = NOON + timedelta(seconds=self.seconds + self.database_ahead)
        self.seconds += self.back
        return told

    async def clock(self) -> DatabaseClock:
        return await DatabaseClock.measured(self.ask, self)

    def off(self, clock: HostClock | DatabaseClock) -> float:
        """How far the clock is ahead of the database's."""
        true = NOON + timedelta(seconds=self.seconds + self.database_ahead)
        return round((clock.now() - true).total_seconds(), 6)


async def test_replicas_whose_own_clocks_differ_tell_the_same_time() -> None:
    """I82"""
    ahead, behind = World(own_ahead=100.0), World(own_ahead=-100.0)
    clocks = [await ahead.clock(), await behind.clock()]
    assert [clock.now() for clock in clocks] == [NOON, NOON]
    assert [clock.skew.total_seconds() for clock in clocks] == [100.0, -100.0]


async def test_a_step_of_the_machines_own_clock_moves_nothing() -> None:
    world = World()
    clock = await world.clock()
    world.own_ahead = 3600.0
    world.seconds += 10.0
    assert world.off(clock) == 0.0


async def test_an_answer_moves_the_clock_no_further_than_it_proves() -> None:
    world = World(there=3.0, back=1.0)
    clock = await world.clock()
    assert world.off(clock) == 1.0  # of four seconds it may have been anywhere
    world.there = world.back = 0.1
    await clock.measure()
    assert world.off(clock) == pytest.approx(0.1)
    world.there = world.back = 15.0
    await clock.measure()
    assert world.off(clock) == pytest.approx(0.1), "a slow answer moves nothing"


async def test_a_jump_of_the_databases_clock_is_followed() -> None:
    world = World()
    clock = await world.clock()
    for jump in (100.0, -250.0):
        world.database_ahead += jump
        await clock.measure()
        assert world.off(clock) == 0.0


async def test_without_an_answer_the_count_goes_on() -> None:
    world = World(own_ahead=60.0)
    clock = await world.clock()
    world.away = True
    world.seconds += 500.0
    with pytest.raises(DatabaseUnavailable):
        await clock.measure()
    assert world.off(clock) == 0.0


@pytest.mark.parametrize("ahead", [-400.0, -3.0, 0.0, 3.0, 400.0])
def test_what_github_judges_is_dated_by_githubs_clock(ahead: float) -> None:
    world = World(own_ahead=ahead)
    clock = HostClock(GitHubHost("github.com"), world)
    clock.note({"date": "Mon, 05 Jan 2026 12:00:00 GMT"})
    assert clock.now() == NOON + timedelta(seconds=ahead if abs(ahead) < 5 else 0.0)


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 99 Jan 2026 12:00:00 GMT"])
def test_a_date_that_is_none_says_nothing(date: str) -> None:
    world = World(own_ahead=400.0)
    clock = HostClock(GitHubHost("github.com"), world)
    clock.note({"date": date})
    clock.note({})
    assert clock.now() == world.now()
