"""Reading the live runners costs only those that changed, and returns what the rows say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState
from paddock.store.database import Database
from paddock.store.live_runners import LiveRunners
from tests.support.runner_rows import conclude_runner
from tests.support.world import World


class Reader:
    """Reads as the store does, and records which rows it requested."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.living = LiveRunners()
        self.asked: list[RunnerId] = []

    async def fetch(self, query: str, *arguments: Any) -> list[Any]:
        for ids in arguments:
            self.asked += ids
        return await self._database.rows(query, *arguments)

    async def read(self) -> list[Runner]:
        self.asked = []
        return await self.living.read(self.fetch)


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


async def waiting(world: World, count: int) -> Sequence[RunnerId]:
    pool = await world.pool()
    await world.key(await world.account(), pool)
    return [pod.id for pod in await world.idle_pods(pool, count)]


async def fence(world: World, runner: Runner) -> None:
    fenced = await world.store.fence_runner(
        runner.id, generation=runner.generation, state=runner.state, why="not needed"
    )
    assert isinstance(fenced, Runner)


async def end(world: World, runner: RunnerId) -> None:
    ended = await conclude_runner(
        world.store,
        runner,
        generation=0,
        state=RunnerState.IDLE,
        ending=Ending.LEFT,
        why="it went",
        ended_at=world.clock.now(),
    )
    assert isinstance(ended, Runner)


async def test_only_those_that_changed_are_read_again(world: World, database: Database) -> None:
    reader = Reader(database)
    ids = await waiting(world, 5)
    runners = await reader.read()
    assert {runner.id for runner in runners} == set(ids) == set(reader.asked)

    assert await reader.read() == runners
    assert reader.asked == []

    await fence(world, runners[2])
    again = await reader.read()
    assert reader.asked == [runners[2].id]
    assert again[2].state is RunnerState.RETIRING
    assert [runner.id for runner in again] == [runner.id for runner in runners]


async def test_a_change_that_is_no_step_is_seen_too(world: World, database: Database) -> None:
    reader = Reader(database)
    await waiting(world, 2)
    [first, _] = await reader.read()
    async with database.transaction() as connection:
        await connection.execute("UPDATE runners SET node = 'n7' WHERE id = $1", first.id)
    assert [runner.node for runner in await reader.read()] == ["n7", None]


async def test_those_that_went_are_forgotten(world: World, database: Database) -> None:
    reader = Reader(database)
    await waiting(world, 3)
    [first, second, third] = await reader.read()
    await end(world, second.id)
    assert await reader.read() == [first, third]
    assert reader.asked == []


async def test_one_that_goes_between_the_two_looks_is_left_out(
    world: World, database: Database
) -> None:
    ids = await waiting(world, 3)

    class Interrupted(Reader):
        async def fetch(self, query: str, *arguments: Any) -> list[Any]:
            if arguments:
                await end(world, ids[1])
            return await super().fetch(query, *arguments)

    assert {runner.id for runner in await Interrupted(database).read()} == {ids[0], ids[2]}


async def test_a_restored_row_under_an_old_transactions_number_is_read_again(
    world: World, database: Database
) -> None:
    class Renumbered(Reader):
        """A new server whose counter has come to the old one's number."""

        async def fetch(self, query: str, *arguments: Any) -> list[Any]:
            return [{**row, "xmin": 7} for row in await super().fetch(query, *arguments)]

    reader = Renumbered(database)
    await waiting(world, 1)
    [runner] = await reader.read()
    await fence(world, runner)
    assert [each.state for each in await reader.read()] == [RunnerState.RETIRING]


async def test_actors_of_the_same_store_share_what_is_known(world: World) -> None:
    ids = await waiting(world, 3)
    [first, *_] = await world.store.live_runners()
    [same, *_] = await world.store.acting_as("operator:ana").live_runners()
    assert first is same
    assert first.id in ids


async def test_the_runners_of_some_pods_are_those_of_all(world: World) -> None:
    first, second, third = await waiting(world, 3)
    await end(world, third)
    runners = {runner.id: runner for runner in await world.store.live_runners()}
    assert set(runners) == {first, second}
    names = [runner.pod_name for runner in runners.values()]
    assert await world.store.live_runners_of([*names, PodName("unknown")]) == [*runners.values()]
    assert await world.store.live_runners_of(names[:1]) == [runners[first]]
