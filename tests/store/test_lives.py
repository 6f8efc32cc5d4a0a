"""Random lives of runners, written by several writers at once.

For any steps, and with any stale knowledge: no history leaves the diagram, no limit is exceeded, no
Pod is in two claims (I14, I15, I16, I25).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.domain.ids import AccountId, KeyId, PoolId, RunnerId
from paddock.domain.limits import Limits
from paddock.domain.names import runner_name
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Conflict, Runner, WaitingPod
from paddock.domain.states import JobState, RunnerState, legal
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from tests.support.database import Loop, fresh_database
from tests.support.runner_rows import conclude_runner, read_runner
from tests.support.world import World, executor

LIMIT = 2
PODS = 5

STEPS = (
    "match",
    "arm",
    "release",
    "take over",
    "acknowledge",
    "in progress",
    "completed",
    "fence",
    "conclude",
    "replace",
)


@pytest.fixture(scope="module")
def loop(postgres: EmbeddedPostgres) -> Iterator[Loop]:
    with fresh_database(postgres) as loop:
        yield loop


#: What one writer does to one runner. `stale` makes it act on its knowledge of two steps before.
actions = st.tuples(st.sampled_from(STEPS), st.integers(0, PODS - 1), st.booleans())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(actions, min_size=1, max_size=4), min_size=5, max_size=25))
def test_no_history_leaves_the_diagram_and_no_limit_is_exceeded(
    loop: Loop, turns: list[list[tuple[str, int, bool]]]
) -> None:
    async def scenario(database: Database) -> None:
        stable = await Stable.begin(database)
        for turn in turns:
            await asyncio.gather(*(stable.act(*action) for action in turn))
            await stable.check_limit()
            stable.world.clock.advance(20)
        await stable.check_histories()

    loop.run(scenario)


@dataclass
class Stable:
    world: World
    account: AccountId
    pool: PoolId
    key: KeyId
    runners: list[RunnerId] = field(default_factory=list)
    beliefs: dict[RunnerId, list[Runner]] = field(default_factory=dict)

    @classmethod
    async def begin(cls, database: Database) -> Stable:
        world = await World(database).begin()
        account = await world.account(limits=Limits(runners=LIMIT))
        pool = await world.pool()
        key = await world.key(account, pool)
        await world.queue(account, key, 50)
        stable = cls(world, account, pool, key)
        for _ in range(PODS):
            await stable.add()
        return stable

    async def add(self) -> None:
        [pod] = await self.world.idle_pods(self.pool, 1)
        self.runners.append(pod.id)
        self.beliefs[pod.id] = []

    async def act(self, step: str, number: int, stale: bool) -> None:
        if step == "replace":
            return await self.add()
        runner = self.runners[number % len(self.runners)]
        seen = await read_runner(self.world.store, runner)
        assert seen is not None
        self.beliefs[runner].append(seen)
        believed = self.beliefs[runner][-3:][0] if stale else seen
        outcome = await self._do(step, believed)
        assert outcome is None or isinstance(outcome, Runner | Conflict)
        return None

    async def _do(self, step: str, runner: Runner) -> Runner | Conflict | None:
        store, generation = self.world.store, runner.generation
        match step:
            case "match":
                await store.match([self._waiting(runner)])
            case "arm":
                return await self.world.arm(runner.id, generation)
            case "release":
                return await store.release_runner(
                    runner.id, generation=generation, why="test", no_record_because=None
                )
            case "take over":
                taken = await store.take_over_claim(
                    runner.id,
                    generation=generation,
                    name=runner_name(runner.pod_name, generation + 1),
                    mint_deadline=self.world.clock.now(),
                )
                return taken if isinstance(taken, Conflict) else None
            case "acknowledge" if runner.delivery is not None and runner.pod_uid is not None:
                await store.acknowledge_delivery(
                    runner.pod_name, pod_uid=runner.pod_uid, delivery=runner.delivery
                )
            case "in progress" | "completed" if runner.github_id is not None:
                state = JobState.IN_PROGRESS if step == "in progress" else JobState.COMPLETED
                facts = self.world.facts(
                    900_000 + runner.github_id, state, executor=executor(runner)
                )
                await self.world.report(self.account, self.key, facts)
            case "fence":
                return await store.fence_runner(
                    runner.id, generation=generation, state=runner.state, why="test"
                )
            case "conclude":
                return await conclude_runner(
                    store,
                    runner.id,
                    generation=generation,
                    state=runner.state,
                    ending=Ending.UNKNOWN,
                    why="test",
                    ended_at=self.world.clock.now(),
                )
            case _:
                pass
        return None

    def _waiting(self, runner: Runner) -> WaitingPod:
        return WaitingPod(
            id=runner.id,
            pool=runner.pool,
            pod_name=runner.pod_name,
            generation=runner.generation,
        )

    async def check_limit(self) -> None:
        [row] = await self.world.rows(
            "SELECT count(*) FROM runners WHERE key_id IS NOT NULL AND state <> 'gone'"
        )
        assert row[0] <= LIMIT

    async def check_histories(self) -> None:
        for runner in self.runners:
            events = await self.world.rows(
                "SELECT before, after, generation FROM events WHERE runner_id = $1 ORDER BY id",
                runner,
            )
            _check_history(events)
            seen = await read_runner(self.world.store, runner)
            assert seen is not None
            assert (seen.state, seen.generation) == (events[-1]["after"], events[-1]["generation"])


def _check_history(events: Any) -> None:
    assert events[0]["before"] is None
    assert events[0]["after"] == RunnerState.BOOTING
    for earlier, later in pairwise(events):
        assert later["before"] == earlier["after"]
        assert legal(RunnerState(later["before"]), RunnerState(later["after"]))
        assert later["generation"] >= earlier["generation"]
