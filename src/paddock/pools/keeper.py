"""Keeping pools filled, first form: the ended are concluded and replaced.

Each round looks at what there is (level-triggered, I28): Pods that ended are concluded, Pods whose
poller ended are stamped, and each pool is filled up to the idle runners it wants. Changes that the
fleet tells of only make it look sooner. Rollout, autoscaling and recovery build on this.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from paddock.dispatch.identity import Identities
from paddock.dispatch.stamping import Stamper
from paddock.domain.ids import RunnerId
from paddock.domain.names import PoolName, pod_name
from paddock.domain.pods import Pod, PodList, PodOrder
from paddock.domain.pools import PoolSummary
from paddock.domain.runners import Runner
from paddock.domain.states import RunnerState
from paddock.forensics.concluding import Conclusion
from paddock.pools.spec import PoolSpec
from paddock.ports import Clock, Fleet, FleetUnavailable, Ids, Store, Topic, Wakeups

_log = structlog.get_logger()

_LOOK_AGAIN: Final = 5.0
#: Between two rounds, however often it is woken: each claim wakes it, and a round reads every runner.
#: With a thousand of them and fifty claims a second it would otherwise do nothing else.
_BREATH: Final = 0.5
#: Starts at once, per pool and round: a machine that starts a hundred processes answers nobody.
_STARTS: Final = 8
#: Its Pod was asked for but is not to be seen: the request may have been lost, and is made again.
_LOST_ORDER: Final = 30.0
_SUFFIX: Final = 10
_WAITS = frozenset({RunnerState.BOOTING, RunnerState.IDLE})


class Keeper:
    def __init__(
        self,
        *,
        store: Store,
        fleet: Fleet,
        conclusion: Conclusion,
        stamper: Stamper,
        identities: Identities,
        clock: Clock,
        ids: Ids,
        wakeups: Wakeups,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._conclusion = conclusion
        self._stamper = stamper
        self._identities = identities
        self._clock = clock
        self._ids = ids
        self._woken = wakeups.subscribe(Topic.RUNNERS, Topic.POOLS)
        self._stamped: set[str] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            look = asyncio.Event()
            group.create_task(self._watch(look))
            group.create_task(self._listen(look))
            while True:
                look.clear()
                try:
                    await self.round()
                except FleetUnavailable as error:
                    _log.warning("the fleet could not be asked", error=str(error))
                await self._clock.sleep(_BREATH)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await look.wait()

    async def _watch(self, look: asyncio.Event) -> None:
        async for _ in self._fleet.watch():
            look.set()

    async def _listen(self, look: asyncio.Event) -> None:
        while True:
            if await self._woken.wait(_LOOK_AGAIN):
                look.set()

    async def round(self) -> None:
        pods, runners = await self._fleet.list(), await self._store.live_runners()
        await self._conclude(pods, runners)
        await self._stamp(pods, runners)
        runners = await self._store.live_runners()
        for pool in await self._store.list_pools():
            mine = [runner for runner in runners if runner.pool == pool.id]
            await self._repeat_lost_orders(pool, mine, pods)
            await self._fill(pool, mine)

    async def _conclude(self, pods: PodList, runners: list[Runner]) -> None:
        by_name = {pod.name: pod for pod in pods.pods}
        for runner in runners:
            pod = by_name.get(runner.pod_name)
            if pod is not None and pod.phase.terminal and _same(runner, pod):
                await self._conclusion.conclude(runner, pod)
                self._identities.forget(pod.uid)
                self._stamped.discard(pod.uid)

    async def _stamp(self, pods: PodList, runners: list[Runner]) -> None:
        """A claimed Pod whose poller has ended holds its JIT: now the label can cut off nothing."""
        owners = {runner.pod_name: runner.account for runner in runners}
        for pod in pods.pods:
            ended = pod.poller is not None and pod.poller.state.terminated is not None
            owner = owners.get(pod.name)
            if ended and owner is not None and pod.owner is None and pod.uid not in self._stamped:
                self._stamped.add(pod.uid)
                await self._stamper.stamp(pod, owner=str(owner))

    async def _fill(self, pool: PoolSummary, runners: list[Runner]) -> None:
        if pool.state != "active" or pool.paused_at is not None:
            return
        wanted = msgspec.json.decode(pool.spec, type=PoolSpec).min_idle
        waiting = sum(runner.state in _WAITS for runner in runners)
        booting = sum(runner.state is RunnerState.BOOTING for runner in runners)
        places = wanted if pool.max_runners is None else pool.max_runners - len(runners)
        missing = min(wanted - waiting, places, _STARTS - booting)
        if missing <= 0:
            return
        planned = await self._store.plan_runners(
            pool.id,
            [
                (
                    RunnerId(self._ids.uuid()),
                    pod_name(PoolName(pool.name), self._ids.suffix(_SUFFIX)),
                )
                for _ in range(missing)
            ],
            why=f"{pool.name} keeps {wanted} idle",
        )
        for runner in planned:
            await self._order(pool, runner)

    async def _repeat_lost_orders(
        self, pool: PoolSummary, runners: list[Runner], pods: PodList
    ) -> None:
        """The row came first; a crash before the Pod did leaves a row without one."""
        there = {pod.name for pod in pods.pods}
        now = self._clock.now()
        for runner in runners:
            late = (now - runner.since).total_seconds() > _LOST_ORDER
            if runner.state is RunnerState.BOOTING and runner.pod_name not in there and late:
                await self._order(pool, runner)

    async def _order(self, pool: PoolSummary, runner: Runner) -> None:
        await self._fleet.create(
            PodOrder(
                runner=runner.id,
                name=runner.pod_name,
                pool=pool.name,
                spec=pool.spec,
                cost=pool.cost,
            )
        )


def _same(runner: Runner, pod: Pod) -> bool:
    """A Pod that ended before its poller was ever heard has given its UID to nobody."""
    return runner.pod_uid in (None, pod.uid)
