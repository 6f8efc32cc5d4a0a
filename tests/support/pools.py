"""Pools over a fleet in memory and a real store: the reconciler's work, round by round."""

from __future__ import annotations

from paddock.domain.ids import PoolId, RunnerId
from paddock.domain.pods.pod import PodList
from paddock.domain.runners.runner import Runner, WaitingPod
from paddock.domain.states import RunnerState
from paddock.pools.reconciler import Reconciler
from paddock.pools.spec import parse_pools
from paddock.ports import Topic, Wakeups
from paddock.store.database import Database
from tests.support.fleet import MemoryFleet
from tests.support.runner_rows import read_runner
from tests.support.world import World


class Asleep:
    """Wakes no loop: tests call the rounds themselves."""

    def subscribe(self, *topics: Topic) -> Asleep:
        return self

    async def wait(self, timeout: float) -> frozenset[Topic]:
        raise AssertionError("tests make the rounds themselves")


class PoolWorld(World):
    def __init__(self, database: Database, *, hosts: tuple[str, ...] = ("host-1",)) -> None:
        super().__init__(database)
        self.fleet = MemoryFleet(self.clock, hosts=hosts)
        self.complete = True
        self.reconciler = self.leader()

    def leader(self, wakeups: Wakeups | None = None) -> Reconciler:
        return Reconciler(
            store=self.store,
            fleet=self.fleet,
            pods=self._pods,
            clock=self.clock,
            ids=self.ids,
            wakeups=wakeups or Asleep(),
        )

    def _pods(self) -> PodList:
        return PodList(pods=tuple(self.fleet.pods.values()), complete=self.complete)

    async def apply(self, name: str = "linux", **spec: object) -> PoolId:
        """A pool as its file would describe it."""
        lines = "".join(f"\n  {key}: {value}" for key, value in spec.items())
        text = (
            "apiVersion: paddock.dev/v1alpha1\nkind: RunnerPool\n"
            f"metadata: {{name: {name}}}\nspec:\n  labels: [self-hosted, {name}]{lines}\n"
        )
        [pool] = await self.store.apply_pools(parse_pools(text, name="test"))
        return pool

    async def round(self) -> None:
        """Time passes between rounds."""
        self.clock.advance(1)
        await self.reconciler.round()

    async def rounds(self, count: int = 8) -> None:
        """Rounds without trouble: Pods start, fenced ones leave."""
        for _ in range(count):
            await self.round()
            await self.let_start()
            await self.let_leave()

    async def let_start(self) -> None:
        """Pods that were created start and their pollers ask."""
        for runner in await self.having(RunnerState.BOOTING):
            if runner.pod_name in self.fleet.pods:
                await self.start(runner)

    async def start(self, runner: Runner) -> None:
        pod = self.fleet.start_polling(runner.pod_name)
        assert await self.store.hear_pod(runner.pod_name, pod_uid=pod.uid)

    async def let_leave(self) -> None:
        """Plays recovery: fenced runners without a claim end, and their Pods with them."""
        for runner in await self.having(RunnerState.RETIRING):
            if runner.key is None:
                await self.end(runner.id)

    async def end(self, runner: RunnerId) -> None:
        [row] = await self.rows("SELECT pod_name FROM runners WHERE id = $1", runner)
        await self.rows(
            "WITH gone AS (UPDATE runners SET state = 'gone', version = version + 1, gone_at = $2,"
            " since = $2, why = 'test', jit = NULL, jit_key = NULL, mint_deadline = NULL"
            " WHERE id = $1 RETURNING id)"
            " INSERT INTO verdicts (runner_id, ending, abnormal, why, ended_at, evidence, written_at)"
            " SELECT id, 'left', false, 'test', $2, '{}', $2 FROM gone",
            runner,
            self.clock.now(),
        )
        self.fleet.pods.pop(row["pod_name"], None)

    async def claim(self, count: int) -> list[Runner]:
        """Idle runners are matched with what is queued."""
        waiting = [self._waiting(each) for each in await self.having(RunnerState.IDLE)]
        match = await self.store.match(waiting[:count])
        return [await self.runner(claim.runner) for claim in match.claims]

    def _waiting(self, runner: Runner) -> WaitingPod:
        return WaitingPod(
            id=runner.id, pool=runner.pool, pod_name=runner.pod_name, generation=runner.generation
        )

    async def runner(self, runner: RunnerId) -> Runner:
        found = await read_runner(self.store, runner)
        assert found is not None
        return found

    async def having(self, state: RunnerState) -> list[Runner]:
        return [each for each in await self.store.live_runners() if each.state is state]

    async def counts(self, pool: PoolId | None = None) -> dict[str, int]:
        found: dict[str, int] = {}
        for runner in await self.store.live_runners():
            if pool in (None, runner.pool):
                found[runner.state] = found.get(runner.state, 0) + 1
        return found
