"""What operators do to paddock while it runs: they change limits, pause, apply pools again, delete and
rename them, retire runners, make Pods by hand, and restore a backup."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

import msgspec

from paddock.domain.accounts import AccountSummary
from paddock.domain.ids import RunnerId
from paddock.domain.limits import UNLIMITED, Limits
from paddock.domain.names import PodName
from paddock.domain.pods.pod import PodOrder
from paddock.domain.runners.endings import Ending, Retired
from paddock.domain.runners.runner import Conflict
from paddock.domain.states import RunnerState
from paddock.ports import Store
from paddock.ports.errors import StoreError
from simulator.engine.backup import Backup
from simulator.engine.faults import Fault
from simulator.engine.scale import Described

if TYPE_CHECKING:
    from simulator.engine.workload import Stage

T = TypeVar("T")

Act = Callable[[], Awaitable[None]]

#: A runner's state changes between an operator's reading and writing.
_ATTEMPTS: Final = 5


class Operators:
    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self._stage = stage
        self._rng = rng
        self._scale = stage.scale
        self._pools = list(stage.scale.pools)
        self._backup = Backup(stage.session)
        self._named = 0

    async def begin(self) -> None:
        await self.operate(lambda store: store.apply_pools([pool.facts() for pool in self._pools]))
        for pool in self._pools:
            self._note(pool)

    def _note(self, pool: Described) -> None:
        ledger = self._stage.ledger
        ledger.labels[pool.name] = frozenset(pool.labels)
        ledger.idle[pool.name] = pool.idle
        ledger.size[pool.name] = pool.size
        ledger.described_at[pool.name] = self._stage.clock.monotonic()

    async def set_first_limits(self) -> None:
        for login, limits in self._scale.limits.items():
            await self.limit(login, limits)
        async with asyncio.TaskGroup() as group:
            for full_name, limits in self._scale.repository_limits.items():
                group.create_task(self.limit_repository(full_name, limits))

    # The story calls these repeatedly; each takes one of its actions.

    async def mind_accounts(self) -> None:
        await self._one_of(
            (Fault.LIMIT_LOWERED, 0.4, self._lower_a_limit),
            (Fault.ACCOUNT_PAUSED, 0.3, self._pause_account),
        )

    async def mind_pools(self) -> None:
        await self._one_of(
            (Fault.POOL_PAUSED, 0.3, self._pause_pool),
            (Fault.POOL_DELETED, 0.35, self._delete_pool),
            (Fault.POOL_CHANGED, 0.35, self._change_pool),
            (Fault.POOL_RESIZED, 0.35, self._resize_pool),
        )

    async def meddle(self) -> None:
        await self._one_of(
            (Fault.RETIRED_BY_HAND, 0.5, self._retire_one),
            (Fault.FOREIGN_POD, 0.3, self._make_a_pod),
        )

    async def mind_backups(self) -> None:
        if not self._stage.faults.in_the_air(Fault.RESTORED):
            return
        if not self._backup.taken:
            await self._backup.take()
            self._stage.trace.note("operator", "takes a backup")
        elif self._rng.random() < 0.5:
            self._stage.faults.happened(Fault.RESTORED)
            await self._restore()
            self._backup.taken = False

    async def _one_of(self, *acts: tuple[Fault, float, Act]) -> None:
        for fault, probability, act in self._rng.sample(acts, len(acts)):
            faults = self._stage.faults
            if faults.in_the_air(fault) and self._rng.random() < probability:
                faults.happened(fault)
                await act()
                return

    # Accounts.

    async def _lower_a_limit(self) -> None:
        rng = self._rng
        match rng.randrange(3):
            case 0:
                await self._for_a_while("umbrella", Limits(runners=rng.choice((0, 1, 2))))
            case 1:
                await self._for_a_while("acme", Limits(vcpu_milli=rng.choice((2_000, 7_000))))
            case _:
                own = self._scale.repository_limits
                name = rng.choice(sorted(own))
                # Without its only limit, all repositories of the organisation share its runners.
                fewer = (Limits(runners=0), Limits(runners=1), UNLIMITED)
                await self.limit_repository(name, rng.choice(fewer))
                await asyncio.sleep(rng.uniform(20.0, 120.0))
                await self.limit_repository(name, own[name])

    async def _for_a_while(self, login: str, limits: Limits) -> None:
        await self.limit(login, limits)
        await asyncio.sleep(self._rng.uniform(20.0, 120.0))
        await self.limit(login, self._scale.limits[login])

    async def _pause_account(self) -> None:
        paused = self._stage.ledger.paused
        paused.add("acme")
        await self._on_account("acme", lambda s, a: s.pause_account(a.id, why="simulated"))
        await asyncio.sleep(self._rng.uniform(10.0, 90.0))
        await self._on_account("acme", lambda s, a: s.resume_account(a.id, why="simulated"))
        paused.discard("acme")

    async def limit(self, login: str, limits: Limits) -> None:
        async def write(store: Store, account: AccountSummary) -> None:
            await store.set_account_limits(account.id, limits)
            self._stage.ledger.set_limits(login, limits, at=self._stage.clock.monotonic())

        await self._on_account(login, write)

    async def limit_repository(self, full_name: str, limits: Limits) -> bool:
        """Whether paddock knows the repository: without jobs it may not."""

        async def write(store: Store, account: AccountSummary) -> bool:
            found = await store.find_repository(account.id, full_name)
            if found is None:
                return False
            await store.set_repository_limits(found[0], limits)
            self._stage.ledger.set_limits(full_name, limits, at=self._stage.clock.monotonic())
            return True

        for _ in range(_ATTEMPTS):
            if await self._on_account(full_name.partition("/")[0], write):
                return True
            await asyncio.sleep(10.0)
        return False

    async def _on_account(
        self, login: str, act: Callable[[Store, AccountSummary], Awaitable[T]]
    ) -> T:
        """Waits until paddock knows the account."""
        while True:
            accounts = await self.operate(lambda store: store.list_accounts())
            found = [account for account in accounts if account.login == login]
            if found:
                break
            await asyncio.sleep(1.0)
        return await self.operate(lambda store: act(store, found[0]))

    # Pools.

    async def _pause_pool(self) -> None:
        name = self._rng.choice(self._pools).name
        pool = await self.operate(lambda store: store.find_pool(name))
        if pool is not None:
            self._stage.ledger.paused.add(name)
            await self.operate(lambda store: store.pause_pool(pool, why="simulated"))
            await asyncio.sleep(self._rng.uniform(10.0, 90.0))
            await self.operate(lambda store: store.resume_pool(pool, why="simulated"))
            self._stage.ledger.paused.discard(name)

    async def _delete_pool(self) -> None:
        """Deletes a pool and creates it again, under its old name or a new one: perhaps while its
        last Pods are busy."""
        old, ledger = self._rng.choice(self._pools), self._stage.ledger
        pool = await self.operate(lambda store: store.find_pool(old.name))
        if pool is None:
            return
        self._pools.remove(old)
        del ledger.labels[old.name]
        ledger.idle[old.name] = 0
        self._stage.trace.note("operator", f"deletes pool {old.name}")
        await self.operate(lambda store: store.delete_pool(pool, why="simulated"))
        await asyncio.sleep(self._rng.choice((2.0, 30.0, 120.0)) * self._rng.uniform(0.5, 1.0))
        new = old
        if self._rng.random() < 0.5:
            self._named += 1
            new = replace(old, name=f"{old.name.partition('-')[0]}-{self._named}")
        await self._describe(new)

    async def _change_pool(self) -> None:
        """Its idle Pods are replaced; busy ones finish."""
        old = self._rng.choice(self._pools)
        self._pools.remove(old)
        await self._describe(replace(old, vcpu=old.vcpu % 4 + 1))

    async def _resize_pool(self) -> None:
        old, rng = self._rng.choice(self._pools), self._rng
        self._pools.remove(old)
        size = rng.randrange(2, 7) if rng.random() < 0.3 else None
        await self._describe(replace(old, min_idle=rng.randrange(7), size=size))

    async def _describe(self, pool: Described) -> None:
        self._stage.trace.note("operator", f"describes {pool}")
        await self.operate(lambda store: store.apply_pools([pool.facts()]))
        self._pools.append(pool)
        self._note(pool)

    # Runners.

    async def _retire_one(self) -> None:
        """`paddock runners retire`: the state is drawn first, so that rare states are chosen too."""
        runners = await self.operate(lambda store: store.list_runners())
        if not runners:
            return
        state = self._rng.choice(sorted({runner.state for runner in runners}))
        name = self._rng.choice([runner.pod for runner in runners if runner.state is state])
        if self._rng.random() < 0.3:
            name = self._about_to_finish([runner.pod for runner in runners]) or name
        self._stage.trace.note("operator", f"retires {name}, which is {state}")
        for _ in range(_ATTEMPTS):
            found = await self.operate(lambda store: store.find_runner(name))
            if found is None or found.state in (RunnerState.RETIRING, RunnerState.GONE):
                return
            fenced = await self.operate(
                lambda store, found=found: store.fence_runner(  # type: ignore[misc]
                    found.id,
                    generation=found.generation,
                    state=found.state,
                    why="retired by hand",
                    retired=Retired.UNWANTED,
                )
            )
            if not isinstance(fenced, Conflict):
                return

    def _about_to_finish(self, names: Sequence[PodName]) -> PodName | None:
        """The runner whose job ends next: it may end before paddock acts on the retirement."""
        world, ends = self._stage.github.world, {}
        for pod in map(self._stage.fleet.named, names):
            job = None
            if pod is not None and pod.jit is not None and pod.process:
                job = world.jobs.get(self._stage.github.truth.executing(pod.jit.runner_id) or 0)
            if pod is not None and job is not None and job.started_at is not None:
                ends[pod.name] = job.started_at + timedelta(seconds=job.spec.seconds)
        return min(ends, key=lambda name: (ends[name], name), default=None)

    async def _make_a_pod(self) -> None:
        """A Pod with all our labels, and no row."""
        pool, rng = self._rng.choice(self._pools), self._rng
        order = PodOrder(
            runner=RunnerId(UUID(int=rng.getrandbits(128))),
            name=PodName(f"{pool.name}-byhand-{rng.randrange(10_000)}"),
            pool=pool.name,
            spec=msgspec.json.encode({"shape": "single" if pool.single else "gated"}).decode(),
        )
        self._stage.trace.note("operator", f"makes Pod {order.name} by hand")
        self._stage.fleet.create(order)
        made = self._stage.fleet.named(order.name)
        if made is not None:
            made.by_hand = True
            made.stuck = rng.random() < 0.5
            if self._stage.faults.in_the_air(Fault.UNRECOGNISED) and rng.random() < 0.5:
                self._stage.faults.happened(Fault.UNRECOGNISED)
                self._stage.fleet.look_strange(made, seconds=rng.uniform(60.0, 400.0))

    async def _restore(self) -> None:
        stage = self._stage
        stage.trace.note("operator", "puts the backup back")
        stage.ledger.restored_at = stage.clock.monotonic()
        for replica in stage.replicas:
            replica.crash("it is started over the restored database")
        await self._backup.restore()
        names, holding = await self._backup.unsettled_names(), await self._backup.holding()
        known, served = await self._backup.jobs(), await self._backup.served()
        over = {
            each.runner_id: each.job_id
            for each in stage.github.truth.executions
            if each.ended is not None
        }
        for pod in stage.fleet.pods:
            if pod.removed:
                # A restored backup does not know how it ended, and its Pod is gone.
                pod.endings |= set(Ending)
                pod.reaped = False
            elif pod.name not in holding:
                pod.uncounted = True
            elif pod.jit is not None:
                job = over.get(pod.jit.runner_id)
                lost = job is not None and job not in known
                pod.forgotten = pod.forgotten or lost or pod.name not in served
        stage.ledger.logs_told.clear()
        stage.ledger.forgotten_records |= {
            runner.id for runner in stage.github.world.runners.values() if runner.name not in names
        }

    async def operate(self, act: Callable[[Store], Awaitable[T]]) -> T:
        """Retries as an operator would, until it is done."""
        while True:
            try:
                return await act(self._stage.operator)
            except StoreError:
                await asyncio.sleep(1.0)
