"""Deliveries on their way to the table: batches, refusals, and senders that hang up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from paddock.dispatch import inbox
from paddock.dispatch.inbox import Inbox, NotStored, Overloaded
from paddock.domain.github.deliveries import NewDelivery
from paddock.ports.errors import DatabaseUnavailable, OutcomeUnknown
from paddock.store.database import Database
from tests.support.payloads import delivery, workflow_job
from tests.support.time import ManualClock
from tests.support.world import World


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


def new(world: World, guid: str) -> NewDelivery:
    return delivery(world.host, world.app, guid, workflow_job())


async def guids(world: World) -> list[str]:
    return [row["guid"] for row in await world.rows("SELECT guid FROM deliveries ORDER BY id")]


class Trouble:
    """The store, with scripted failures."""

    def __init__(self, world: World, *troubles: Exception | None) -> None:
        self._store = world.store
        self._troubles = list(troubles)
        self.batches: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def store_deliveries(self, deliveries: Sequence[NewDelivery]) -> frozenset[str]:
        self.batches.append([one.guid for one in deliveries])
        await self.gate.wait()
        trouble = self._troubles.pop(0) if self._troubles else None
        if isinstance(trouble, DatabaseUnavailable):
            raise trouble
        stored = await self._store.store_deliveries(deliveries)
        if trouble is not None:
            raise trouble
        return stored


async def test_a_lone_delivery_is_stored_at_once(world: World) -> None:
    async with Inbox.open(world.store, world.clock) as box:
        assert await box.store(new(world, "a")) is True
        assert await box.store(new(world, "a")) is False
    assert await guids(world) == ["a"]


async def test_what_cannot_be_stored_takes_nothing_with_it(world: World) -> None:
    """I13: an input that passed all earlier checks."""
    poison = replace(new(world, "poison"), action="\0")
    async with Inbox.open(world.store, world.clock) as box:
        results = await asyncio.gather(
            box.store(new(world, "before")),
            box.store(poison),
            box.store(new(world, "after")),
            return_exceptions=True,
        )
    assert [result is True for result in results] == [True, False, True]
    assert isinstance(results[1], NotStored)
    assert await guids(world) == ["before", "after"]


async def test_those_who_come_during_a_write_share_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "BATCH", 10)
    store = Trouble(world)
    store.gate.clear()
    async with Inbox.open(store, world.clock) as box:
        first = [asyncio.create_task(box.store(new(world, "0")))]
        await asyncio.sleep(0.01)
        rest = [asyncio.create_task(box.store(new(world, f"{n:02}"))) for n in range(1, 26)]
        await asyncio.sleep(0.01)
        store.gate.set()
        await asyncio.gather(*first, *rest)
    assert [len(batch) for batch in store.batches] == [1, 10, 10, 5]
    assert len(await guids(world)) == 26


async def test_a_commit_of_unknown_outcome_is_repeated(world: World) -> None:
    """I6: it was stored, and is not stored again."""
    async with Inbox.open(Trouble(world, OutcomeUnknown("lost")), world.clock) as box:
        await box.store(new(world, "a"))
    assert await guids(world) == ["a"]


async def test_only_callers_are_told_of_a_database_that_is_away(
    world: World,
) -> None:
    store = Trouble(world, DatabaseUnavailable("away"))
    async with Inbox.open(store, world.clock) as box:
        with pytest.raises(NotStored, match="away"):
            await box.store(new(world, "a"))
        assert await box.store(new(world, "b")) is True
    assert await guids(world) == ["b"]


async def test_a_cancelled_caller_cancels_no_other(world: World) -> None:
    store = Trouble(world)
    store.gate.clear()
    async with Inbox.open(store, world.clock) as box:
        tasks = [asyncio.create_task(box.store(new(world, guid))) for guid in "abc"]
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        await asyncio.sleep(0.01)
        store.gate.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result is True for result in results] == [True, False, True]
    assert await guids(world) == ["a", "b", "c"]


async def test_a_write_that_hangs_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "WRITE_TIMEOUT", 0.05)
    monkeypatch.setattr(inbox, "AT_ONCE", 1)
    store = Trouble(world)
    store.gate.clear()
    async with Inbox.open(store, world.clock) as box:
        with pytest.raises(NotStored, match="did not answer within"):
            await box.store(new(world, "a"))
        # The next write may take as long as it needs on a busy machine.
        monkeypatch.setattr(inbox, "WRITE_TIMEOUT", 30.0)
        store.gate.set()
        assert await box.store(new(world, "b")) is True


async def test_a_caller_that_waited_too_long_is_told_so_and_not_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sender has hung up, or is about to."""
    monkeypatch.setattr(inbox, "AT_ONCE", 1)
    clock = ManualClock()
    store = Trouble(world)
    store.gate.clear()
    async with Inbox.open(store, clock) as box:
        first = asyncio.create_task(box.store(new(world, "first")))
        await asyncio.sleep(0.01)
        late = asyncio.create_task(box.store(new(world, "late")))
        await asyncio.sleep(0.01)
        clock.advance(inbox.MAX_WAIT + 1)
        store.gate.set()
        assert await first is True
        with pytest.raises(Overloaded):
            await late
    assert await guids(world) == ["first"]


async def test_there_is_an_end_to_how_many_may_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_WAITING", 3)
    store = Trouble(world)
    async with Inbox.open(store, world.clock) as box:
        tasks = [asyncio.create_task(box.store(new(world, str(n)))) for n in range(5)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, Overloaded) for result in results] == [False] * 3 + [True] * 2
    assert len(await guids(world)) == 3


async def test_no_caller_is_left_waiting_when_it_closes(world: World) -> None:
    store = Trouble(world)
    store.gate.clear()
    async with Inbox.open(store, world.clock) as box:
        tasks = [asyncio.create_task(box.store(new(world, "a")))]
        await asyncio.sleep(0.01)
        tasks += [asyncio.create_task(box.store(new(world, f"b{n}"))) for n in range(3)]
        await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, NotStored) for result in results)
    with pytest.raises(NotStored, match="being stopped"):
        await box.store(new(world, "c"))
