"""Dispatch: idle Pods wait here, and are handed a JIT as soon as there is work for one.

Each replica matches the Pods that wait with it. It looks when there is reason to: demand was
announced, or a Pod came while demand was known to be unmet. It looks by itself from time to time too,
so a lost wake-up costs seconds. What is decided is decided in the store; a replica that dies here
leaves rows from which the next one goes on.
"""

from __future__ import annotations

import asyncio
import collections
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog
from prometheus_client import Counter, Gauge, Histogram

from paddock.dispatch.minting import Minter
from paddock.dispatch.sealing import CannotUnseal, Sealer
from paddock.domain.allocation import Withheld
from paddock.domain.handover import (
    Answer,
    Handover,
    Heard,
    Leave,
    NothingYet,
    reason_to_leave,
)
from paddock.domain.ids import RunnerId
from paddock.domain.names import runner_name
from paddock.domain.pods import PodIdentity
from paddock.domain.runners import MINT_DEADLINE, Claim, Conflict, Runner, WaitingPod
from paddock.domain.states import RunnerState
from paddock.ports import Clock, Store, Topic, Wakeups
from paddock.store.errors import StoreError

_log = structlog.get_logger()

#: How long unmet demand can lie unnoticed if its wake-up was lost, and how often what is withheld
#: for a time (a budget, a back-off) is looked at again.
_LOOK_AGAIN: Final = 2.0
#: Whoever asks without waiting is there for one match, and for its mint if that is quick.
_SHORTEST_WAIT: Final = 0.2
#: A claim that another replica mints for: its row is looked at this often.
_OTHERS_MINT: Final = 0.25

WAITING = Gauge("paddock_waiting_pods", "Pods that hold a request open with this replica.")
BATCHES = Histogram(
    "paddock_match_claims", "Claims per match.", buckets=(0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
)
WITHHELD = Gauge(
    "paddock_withheld_keys",
    "Keys with unserved jobs that got nothing in this replica's last match, by reason.",
    ["reason"],
)
ANSWERS = Counter("paddock_dispatch_answers_total", "What polls were answered.", ["answer"])


@dataclass(slots=True)
class _Waiter:
    pod: WaitingPod
    #: It is there for one match, and no longer.
    hurried: bool
    #: Set to the answer, or to `None`: look at the row again.
    told: asyncio.Future[Answer | None]


class Dispatcher:
    def __init__(
        self, *, store: Store, minter: Minter, sealer: Sealer, clock: Clock, wakeups: Wakeups
    ) -> None:
        self._store = store
        self._minter = minter
        self._sealer = sealer
        self._clock = clock
        self._demand = wakeups.subscribe(Topic.DEMAND)
        self._waiting: dict[RunnerId, _Waiter] = {}
        #: Claimed while they waited: their requests are open until the mint has ended.
        self._claimed: dict[RunnerId, _Waiter] = {}
        self._minting: dict[RunnerId, asyncio.Task[Handover | None]] = {}
        self._look = asyncio.Event()
        self._unmet = True
        self._closing = False

    # The Pod's side.

    async def poll(self, pod: PodIdentity, *, wait: float) -> Answer | None:
        """What the Pod is told, within `wait` seconds. `None`: no row knows it (yet)."""
        deadline = self._clock.monotonic() + max(wait, _SHORTEST_WAIT)
        while True:
            heard = await self._store.hear_pod(pod.pod_name, pod_uid=pod.pod_uid)
            if heard is None:
                return None
            left = deadline - self._clock.monotonic()
            answer = await self._answer(heard, left, hurried=wait < _SHORTEST_WAIT)
            if answer is not None or left <= 0 or self._closing:
                answer = answer or NothingYet()
                ANSWERS.labels(type(answer).__name__).inc()
                return answer

    async def acknowledge(self, pod: PodIdentity, delivery: UUID) -> bool | Leave:
        """The Pod holds its JIT. Saying so again is fine; false if it never was this Pod's. One that
        was fenced meanwhile is told to leave: its runner has not started yet."""
        found = await self._store.acknowledge_delivery(
            pod.pod_name, pod_uid=pod.pod_uid, delivery=delivery
        )
        if found in (RunnerState.RETIRING, RunnerState.GONE):
            return Leave("it is being retired")
        return found is not None

    async def _answer(self, heard: Heard, left: float, *, hurried: bool) -> Answer | None:
        runner = heard.runner
        if (reason := reason_to_leave(runner.state)) is not None:
            return Leave(reason)
        match runner.state:
            case RunnerState.ARMED:
                return await self._replay(heard)
            case RunnerState.CLAIMED:
                return await self._await_mint(runner, left)
            case _:
                return await self._wait(runner, left, hurried=hurried)

    async def _replay(self, heard: Heard) -> Answer:
        """The same JIT as before: the reply was lost, or the server was (I20)."""
        runner = heard.runner
        assert heard.jit is not None
        assert runner.delivery is not None
        assert runner.name is not None
        try:
            jit = self._sealer.unseal(heard.jit, runner=runner.id, delivery=runner.delivery)
        except CannotUnseal as error:
            await self._store.fence_runner(
                runner.id,
                generation=runner.generation,
                state=RunnerState.ARMED,
                why=f"its JIT can no longer be unsealed: {error}",
            )
            return Leave("its JIT is lost")
        return Handover(delivery=runner.delivery, runner_name=runner.name, jit=jit)

    async def _await_mint(self, runner: Runner, left: float) -> Answer | None:
        """Its mint is under way: here, at another replica, or nowhere any more."""
        task = self._minting.get(runner.id)
        if task is None and runner.mint_deadline is not None:
            if runner.mint_deadline < self._clock.now():
                await self._take_over(runner)
                task = self._minting.get(runner.id)
            else:
                await self._clock.sleep(min(max(left, 0.0), _OTHERS_MINT))
                return None
        if task is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(max(left, 0.0)):
                return await asyncio.shield(task)
        return None

    async def _take_over(self, runner: Runner) -> None:
        """The replica that minted is dead; a fresh name, and the old one stays a debt (I19)."""
        claim = await self._store.take_over_claim(
            runner.id,
            generation=runner.generation,
            name=runner_name(runner.pod_name, runner.generation + 1),
            mint_deadline=self._clock.now() + MINT_DEADLINE,
        )
        if isinstance(claim, Conflict):
            return
        _log.info("claim taken over", runner=claim.name)
        self._mint(claim)

    async def _wait(self, runner: Runner, left: float, *, hurried: bool) -> Answer | None:
        if left <= 0 or self._closing or (hurried and not self._unmet):
            return NothingYet()
        pod = WaitingPod(
            id=runner.id,
            pool=runner.pool,
            pod_name=runner.pod_name,
            generation=runner.generation,
            cost=runner.cost,
        )
        waiter = _Waiter(pod, hurried, asyncio.get_running_loop().create_future())
        # A Pod that asks twice is one Pod: the newer request is the one that is still there.
        if (older := self._waiting.get(runner.id)) is not None and not older.told.done():
            older.told.set_result(NothingYet())
        self._waiting[runner.id] = waiter
        WAITING.set(len(self._waiting))
        if self._unmet:
            self._look.set()
        try:
            async with asyncio.timeout(left):
                return await waiter.told
        except TimeoutError:
            return NothingYet()
        finally:
            for places in (self._waiting, self._claimed):
                if places.get(runner.id) is waiter:
                    del places[runner.id]
            WAITING.set(len(self._waiting))

    # The matcher's side.

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._match_for_ever())

    async def close(self) -> None:
        """Answer everybody who waits, and let the mints under way end."""
        self._closing = True
        for waiter in list(self._waiting.values()):
            if not waiter.told.done():
                waiter.told.set_result(None)
        if self._minting:
            await asyncio.wait(self._minting.values())

    async def _listen(self) -> None:
        while True:
            await self._demand.wait(_LOOK_AGAIN)
            self._unmet = True
            self._look.set()

    async def _match_for_ever(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            while self._waiting and self._unmet and await self.match():
                pass

    async def match(self) -> int:
        """One match of those who wait; how many were claimed."""
        waiting = [waiter for waiter in self._waiting.values() if not waiter.told.done()]
        if not waiting:
            return 0
        # What is announced from here on is news.
        self._unmet = False
        match = await self._store.match([waiter.pod for waiter in waiting])
        BATCHES.observe(len(match.claims))
        withheld = collections.Counter(match.withheld.values())
        for reason in Withheld:
            WITHHELD.labels(reason).set(withheld[reason])
        self._unmet |= Withheld.NO_POD in match.withheld.values()
        for claim in match.claims:
            self._mint(claim)
        for waiter in waiting:
            if waiter.hurried and waiter.pod.id in self._waiting and not waiter.told.done():
                waiter.told.set_result(NothingYet())
        return len(match.claims)

    def _mint(self, claim: Claim) -> None:
        """In a task of its own: a Pod that hangs up does not end the mint its row waits for."""
        self._waiting_leaves(claim.runner)
        task = asyncio.create_task(self._minter.mint(claim), name=f"mint {claim.name}")
        self._minting[claim.runner] = task
        task.add_done_callback(lambda done: self._minted(claim, done))

    def _waiting_leaves(self, runner: RunnerId) -> None:
        """It is claimed: no later match may count on it. Its request stays open for the answer."""
        waiter = self._waiting.pop(runner, None)
        if waiter is not None:
            WAITING.set(len(self._waiting))
            self._claimed[runner] = waiter

    def _minted(self, claim: Claim, task: asyncio.Task[Handover | None]) -> None:
        if self._minting.get(claim.runner) is task:
            del self._minting[claim.runner]
        handover = None
        if not task.cancelled():
            error = task.exception()
            if isinstance(error, StoreError):
                # Its row stays claimed until the mint's deadline, and is then taken over.
                _log.warning("a mint was not written", runner=claim.name, error=error.message)
            elif error is not None:
                _log.error("a mint broke", runner=claim.name, error=repr(error))
            else:
                handover = task.result()
        waiter = self._claimed.pop(claim.runner, None)
        if waiter is not None and not waiter.told.done():
            waiter.told.set_result(handover)
