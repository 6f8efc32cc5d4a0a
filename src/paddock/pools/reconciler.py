"""Pools as they should be: the loop that reads what there is, decides, and asks for the difference.

Level-triggered (I28): each round reads all input of its decisions at one moment, and no round depends
on what an earlier one did. Changes only make the next round begin sooner. Two leaders at once make two
rounds of the same kind: rows are planned twice at worst, and the next round finds a surplus of Pods
that have not started.

The decisions are in `domain` (`sizing`, `reconcile`, `steering`). This module deletes nothing: it
fences a runner that is to go, and `recovery` does the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import structlog
from prometheus_client import Counter

from paddock.domain.allocation import Withheld
from paddock.domain.ids import PoolId, RunnerId
from paddock.domain.names import SUFFIX_LENGTH, PodName, PoolName, pod_name
from paddock.domain.pods.pod import Pod, PodList, PodOrder
from paddock.domain.pools.reconcile import Candidate, Fence, PoolAim, PoolPlan, plan
from paddock.domain.pools.sizing import Decision, SizedPool, as_found, change, decide
from paddock.domain.pools.surveys import Survey, SurveyedPool
from paddock.domain.pools.terms import LONGEST_WINDOW, Terms
from paddock.domain.runners.endings import Retired
from paddock.domain.runners.runner import Runner
from paddock.domain.runners.versions import EXCHANGED_AFTER
from paddock.domain.states import RunnerState
from paddock.log_events import runner_fields
from paddock.pools.decision_history import DecisionHistory
from paddock.pools.hosts import Hosts, rooms
from paddock.pools.pod_requests import PodRequests
from paddock.ports import Clock, Fleet, Ids, Topic, Wakeups
from paddock.ports.errors import StoreError
from paddock.ports.pools import PoolSizeStore

_log = structlog.get_logger()

#: A change without a wake-up need not be noticed sooner.
_LOOK_AGAIN: Final = 5.0
#: The interval while every pool is as it should be, nothing is queued and no host has changed.
_QUIET: Final = 30.0
#: Between two rounds, however often it is woken: each claim wakes it. With a thousand runners and
#: fifty claims a second it would otherwise do nothing else.
_BREATH: Final = 0.5
#: Rounds take this share of the time at most: Pods that wait for a JIT come first. A look at a thousand
#: runners takes 40 ms.
_SHARE: Final = 0.04
_LONGEST_BREATH: Final = 2.0
#: For so long replacements give way to jobs that begin and Pods that end, which need the same API
#: server and database. Every `_YIELD`, or less often if rounds take long, a round sees whether they
#: still have to; the last of these pauses ends on time.
_LONGEST_YIELD: Final = 2.5
_YIELD: Final = 0.2
#: Runners looked at in one go, some 1 ms: Pods are answered in between.
_AT_ONCE: Final = 512
#: How old the stored terms of a decision may be while its numbers stay the same.
_TERMS_EVERY: Final = timedelta(seconds=15)

FENCES = Counter("paddock_pool_fences_total", "Waiting runners fenced by pools.", ["cause"])


class Reconciler:
    def __init__(
        self,
        *,
        store: PoolSizeStore,
        fleet: Fleet,
        pods: Callable[[], PodList],
        clock: Clock,
        ids: Ids,
        wakeups: Wakeups,
    ) -> None:
        """`pods`: what is known of the fleet's Pods."""
        self._store = store
        self._pods = pods
        self._clock = clock
        self._ids = ids
        self._woken = wakeups.subscribe(Topic.DEMAND, Topic.RUNNERS, Topic.POOLS)
        self._orders = PodRequests(fleet=fleet, clock=clock)
        self._hosts = Hosts(store=store, fleet=fleet, clock=clock)
        self._past = DecisionHistory()
        #: The last look found every pool as it should be.
        self._quiet = False
        #: The last look planned no replacements, because of what is under way since then.
        self._yields = False
        self._under_way_since: float | None = None
        #: Descriptions that cannot be used, each logged once.
        self._useless: dict[PoolId, str] = {}

    async def run(self) -> None:
        # Another replica may have led meanwhile: its decisions are read again.
        self._past = DecisionHistory()
        async with asyncio.TaskGroup() as group:
            while True:
                began = self._clock.monotonic()
                self._quiet = self._yields = False
                try:
                    orders = await self.decide()
                except StoreError as error:
                    _log.warning("pool.round_failed", error=error.message)
                    orders = []
                # A fleet that is slow to create holds up no pool, not even its own (I57).
                for order in orders:
                    group.create_task(self._orders.place(order))
                await self._clock.sleep(self._breath(took=self._clock.monotonic() - began))
                if not self._yields:
                    await self._wait()

    def _breath(self, *, took: float) -> float:
        breath = min(took / _SHARE, _LONGEST_BREATH)
        if not self._yields or self._under_way_since is None:
            return max(_BREATH, breath)
        left = self._under_way_since + _LONGEST_YIELD - self._clock.monotonic()
        return max(_YIELD, min(breath, left))

    async def _wait(self) -> None:
        left = _QUIET if self._quiet else _LOOK_AGAIN
        while left > 0 and not await self._woken.wait(_LOOK_AGAIN):
            left -= _LOOK_AGAIN
            with suppress(StoreError):
                if await self._hosts.have_changed():
                    return

    async def round(self) -> None:
        """One look, and everything that follows from it."""
        await asyncio.gather(*(self._orders.place(order) for order in await self.decide()))

    async def decide(self) -> list[PodOrder]:
        """Bring rows to what pools should be; returns the Pods that have to be asked for."""
        hosts, seen = await self._hosts.read(), self._pods()
        pods = {pod.name: pod for pod in seen.pods}
        survey = await self._store.survey_pools(
            ended=[pod.name for pod in seen.pods if pod.phase.terminal],
            since=self._clock.now() - LONGEST_WINDOW,
            after=self._past.last,
        )
        self._past.add(survey.decisions)
        terms = self._terms(survey.pools)
        waiting = await _candidates(survey, pods, now=self._clock.now())
        sized = self._sized(survey, terms, waiting)
        decisions = decide(
            sized,
            accounts=survey.accounts,
            repositories=survey.repositories,
            rooms=rooms(survey.pools, terms, hosts, seen.pods),
            now=self._clock.now(),
        )
        await self._record(sized, decisions)
        self._yields = self._is_to_yield(survey, seen)
        orders = []
        for pool in survey.pools:
            await asyncio.sleep(0)
            mine, decision = waiting.get(pool.id, []), decisions.get(pool.id)
            if seen.complete:
                orders += self._lost_orders(pool, mine, pods)
            if pool.state != "active" or pool.paused:
                # Its target does not matter, but runners may have to leave.
                aim = PoolAim.of(pool, terms.get(pool.id, Terms()), target=0)
                orders += await self._carry_out(pool, plan(aim, mine, hosts))
            elif decision is not None:
                aim = PoolAim.of(pool, terms[pool.id], target=decision.target)
                orders += await self._carry_out(pool, plan(aim, mine, hosts))
        await self._delete_drained(survey)
        self._orders.forget(survey.waiting)
        self._quiet = not orders and _is_quiet(survey, sized, decisions)
        return orders

    def _terms(self, pools: Iterable[SurveyedPool]) -> dict[PoolId, Terms]:
        """One description that cannot be used stops one pool (I57)."""
        terms = {}
        for pool in pools:
            try:
                terms[pool.id] = Terms.of(pool.spec)
            except ValueError as error:
                if self._useless.get(pool.id) != pool.spec:
                    self._useless[pool.id] = pool.spec
                    _log.warning("pool.unusable", pool=pool.name, error=str(error))
        return terms

    def _sized(
        self,
        survey: Survey,
        terms: Mapping[PoolId, Terms],
        waiting: Mapping[PoolId, Sequence[Candidate]],
    ) -> list[SizedPool]:
        """A pool that is paused keeps what it has: a round without it is no signal (I53). No Pods are
        made for keys that dispatch would not serve now."""
        return [
            SizedPool(
                pool=pool.id,
                terms=terms[pool.id],
                cost=pool.cost,
                occupied=pool.occupied,
                waiting=sum(not each.ended for each in waiting.get(pool.id, [])),
                keys=tuple(
                    key.load
                    for key in survey.keys
                    if key.pool == pool.id and key.blocked in (None, Withheld.RUNNER_VERSION)
                ),
                history=self._past.history(pool.id),
            )
            for pool in survey.pools
            if pool.id in terms and pool.state == "active" and not pool.paused
        ]

    def _is_to_yield(self, survey: Survey, seen: PodList) -> bool:
        """Whether replacements wait. A JIT that is handed over serves a job, and a Pod that has ended
        holds a place; a replacement serves a job that is not there yet. Replacements do not wait if a
        job waits for one, and never longer than `_LONGEST_YIELD`."""
        now = self._clock.monotonic()
        under_way = survey.handovers or any(pod.phase.terminal for pod in seen.pods)
        if not under_way:
            self._under_way_since = None
            return False
        if self._under_way_since is None:
            self._under_way_since = now
        wanted = any(key.load.queued > key.load.supply for key in survey.keys)
        return not wanted and now - self._under_way_since < _LONGEST_YIELD

    async def _record(
        self, pools: Iterable[SizedPool], decisions: Mapping[PoolId, Decision]
    ) -> None:
        """Record decisions that differ from the last ones. A pool without a decision begins with the
        size it has."""
        now, new = self._clock.now(), []
        for pool in pools:
            decision, before = decisions[pool.pool], self._past.latest(pool.pool)
            if before is None:
                new += as_found(pool, decision)
            differs = change(before.decision if before else None, decision)
            outdated = before is not None and now - before.at >= _TERMS_EVERY
            if differs == "size" or (differs == "terms" and outdated):
                new.append(decision)
        await self._store.record_decisions(new)

    async def _carry_out(self, pool: SurveyedPool, made: PoolPlan) -> list[PodOrder]:
        for fence in made.fence:
            await self._fence(fence)
        if not made.create or self._yields:
            return []
        name = PoolName(pool.name)
        pods = [
            (RunnerId(self._ids.uuid()), pod_name(name, self._ids.suffix(SUFFIX_LENGTH)))
            for _ in range(made.create)
        ]
        try:
            planned = await self._store.plan_runners(
                pool.id, pods, why=f"{pool.name} should have more runners"
            )
            avoid = await self._hosts.avoided()
        except StoreError as error:
            _log.warning("pool.plan_failed", pool=pool.name, error=error.message)
            return []
        for runner in planned:
            self._orders.note(runner)
        return [self._order(pool, runner, avoid) for runner in planned]

    async def _fence(self, fence: Fence) -> None:
        """A fence that fails holds up no other (I57). A runner that has moved on is not fenced."""
        runner = fence.runner
        try:
            fenced = await self._store.fence_runner(
                runner.id,
                generation=runner.generation,
                state=runner.state,
                why=fence.why,
                retired=Retired.UNWANTED,
            )
        except StoreError as error:
            _log.warning("runner.fence_failed", **runner_fields(runner), error=error.message)
            return
        if isinstance(fenced, Runner):
            FENCES.labels(fence.cause).inc()

    def _lost_orders(
        self, pool: SurveyedPool, waiting: Iterable[Candidate], pods: Mapping[PodName, Pod]
    ) -> list[PodOrder]:
        """A row is written before its Pod is made: a crash in between leaves a row without a Pod. A row
        of an older description gets none: the Pod would not be what the row says it is."""
        if pool.state != "active":
            return []
        lost = [
            each.runner
            for each in waiting
            if each.runner.state is RunnerState.BOOTING
            and each.runner.spec_hash == pool.spec_hash
            and self._orders.lost(each.runner, pods)
        ]
        for runner in lost:
            self._orders.note(runner)
        return [self._order(pool, runner, ()) for runner in lost]

    def _order(self, pool: SurveyedPool, runner: Runner, avoid: tuple[str, ...]) -> PodOrder:
        return PodOrder(
            runner=runner.id,
            name=runner.pod_name,
            pool=pool.name,
            spec=pool.spec,
            cost=pool.cost,
            avoid=avoid,
            exclude=self._hosts.unfit(),
        )

    async def _delete_drained(self, survey: Survey) -> None:
        leaving = {pool.id for pool in survey.pools if pool.state != "active"}
        # A job that was judged while its pool was being deleted.
        if stranded := sorted({key.pool for key in survey.keys} & leaving):
            await self._store.refuse_jobs_of(stranded)
        if any(pool.state == "draining" and not pool.live for pool in survey.pools):
            for name in await self._store.delete_drained_pools():
                _log.info("pool.removed", pool=name)


def _is_quiet(
    survey: Survey, pools: Sequence[SizedPool], decisions: Mapping[PoolId, Decision]
) -> bool:
    """Nothing is queued, nothing starts or leaves, and no pool waits for time to pass."""
    return (
        not survey.keys
        and len(pools) == len(survey.pools)
        and all(runner.state is RunnerState.IDLE for runner in survey.waiting)
        and all(
            decisions[pool.pool].wanted
            == decisions[pool.pool].target
            == pool.waiting + pool.occupied
            for pool in pools
        )
    )


async def _candidates(
    survey: Survey, pods: Mapping[PodName, Pod], *, now: datetime
) -> dict[PoolId, list[Candidate]]:
    refused = {pool.id: survey.refused_in(pool.id) for pool in survey.pools}
    newest = {pool.id: pool.version for pool in survey.pools}

    def is_old(runner: Runner) -> bool:
        is_newest = newest.get(runner.pool) == runner.version
        return not is_newest or now - runner.created_at >= EXCHANGED_AFTER

    found: dict[PoolId, list[Candidate]] = {}
    for number, runner in enumerate(survey.waiting, 1):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        pod = pods.get(runner.pod_name)
        if pod is not None and runner.pod_uid not in (None, pod.uid):
            pod = None
        found.setdefault(runner.pool, []).append(
            Candidate(
                runner=runner,
                host=pod.node if pod else runner.node,
                ended=pod is not None
                and (pod.phase.terminal or pod.deletion_requested_at is not None),
                refused=runner.version in refused.get(runner.pool, ()) and is_old(runner),
            )
        )
    return found
