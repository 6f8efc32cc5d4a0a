"""Dispatch: hold the requests of idle Pods, and answer each with a JIT once there is a job for it.

Each replica matches the Pods whose requests it holds. It starts a match when demand was announced, or
when a Pod came while demand was known to be unmet. It also checks for demand from time to time, so a
lost wake-up costs seconds. All decisions are in the store: if a replica dies, another goes on from its
rows.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import structlog
from prometheus_client import Counter, Gauge, Histogram

from paddock.dispatch.minting import Minter
from paddock.dispatch.sealing import CannotUnseal, Sealer
from paddock.domain.allocation import Withheld
from paddock.domain.ids import RunnerId
from paddock.domain.names import runner_name
from paddock.domain.pods.pod import PodIdentity
from paddock.domain.recovery.stale_claim import MINT_DEADLINE
from paddock.domain.runners.handover import (
    Answer,
    Handover,
    Heard,
    Leave,
    NothingYet,
    reason_to_leave,
)
from paddock.domain.runners.runner import Claim, Conflict, Runner, WaitingPod, WaitingPods
from paddock.domain.states import RunnerState
from paddock.log_events import claim_fields, runner_fields
from paddock.ports import Clock, Topic, Wakeups
from paddock.ports.errors import DatabaseUnavailable, OutcomeUnknown, StoreError
from paddock.ports.matching import MatchingStore

_log = structlog.get_logger()

#: How long unmet demand can stay unnoticed if its wake-up was lost.
_LOOK_AGAIN: Final = 4.0
#: How often a match is tried while demand is withheld for a time (a budget, a back-off).
_WITHHELD_AGAIN: Final = 2.0
#: How often the requests of returning Pods are written. Together with the longest request this is less
#: than the time after which recovery judges a Pod silent (`recovery.gather`).
_HEAR_AGAIN: Final = 10.0
#: How long a claim is remembered. By then a read of its row that began before the claim has ended, and
#: a Pod that did not ask again is no longer expected (after two of `_HEAR_AGAIN`).
_MADE_LATELY: Final = 60.0
#: A request without waiting takes part in one match, and waits for its mint if that is quick.
_SHORTEST_WAIT: Final = 0.2
#: How often the row of a claim is read while another replica mints for it.
_OTHERS_MINT: Final = 0.25
#: While the store is away, one of the waiting requests tries it this often on behalf of all.
_TRY_STORE: Final = 0.5
#: With more Pods in doubt than this, all are forgotten: some may never ask again.
_MOST_IN_DOUBT: Final = 10_000

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


@dataclass(slots=True, eq=False)
class _Waiter:
    pod: WaitingPod
    #: Set to the answer, or to `None`: the request must read the row again.
    told: asyncio.Future[Answer | None]

    def tell(self, answer: Answer | None) -> None:
        if not self.told.done():
            self.told.set_result(answer)


class _Waiting:
    """The requests that wait for work. The cost of a match does not depend on their number (I77)."""

    def __init__(self) -> None:
        self.pods = WaitingPods()
        self._waiters: dict[RunnerId, _Waiter] = {}
        #: The requests that wait for one match only.
        self._brief: dict[RunnerId, _Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def enter(self, waiter: _Waiter, *, brief: bool) -> None:
        # A Pod that asks twice is one Pod: only its newer request is still open.
        if (older := self._waiters.get(waiter.pod.id)) is not None:
            older.tell(NothingYet())
            self.leave(older)
        self._waiters[waiter.pod.id] = waiter
        self.pods.add(waiter.pod)
        if brief:
            self._brief[waiter.pod.id] = waiter
        WAITING.set(len(self))

    def leave(self, waiter: _Waiter) -> None:
        if self._waiters.get(waiter.pod.id) is waiter:
            self.take(waiter.pod.id)

    def take(self, runner: RunnerId) -> _Waiter | None:
        """Remove the runner's request from the waiting ones; the caller must answer it."""
        waiter = self._waiters.pop(runner, None)
        if waiter is not None:
            self.pods.remove(waiter.pod)
            self._brief.pop(runner, None)
            WAITING.set(len(self))
        return waiter

    def take_brief(self) -> list[_Waiter]:
        return self._take_each(self._brief)

    def take_all(self) -> list[_Waiter]:
        return self._take_each(self._waiters)

    def _take_each(self, waiters: Mapping[RunnerId, _Waiter]) -> list[_Waiter]:
        taken = list(waiters.values())
        for waiter in taken:
            self.leave(waiter)
        return taken


class _Returning:
    """Pods that were told to ask again a moment ago, and those of them that did.

    This replica read their rows when they first asked, and has not claimed them since. So a Pod that
    asks again waits at once, without a read. Its request is written together with those of all other
    Pods within some seconds: a thousand idle Pods cost the database one statement per interval.
    """

    def __init__(self) -> None:
        self._expected: dict[str, tuple[WaitingPod, float]] = {}
        self._asked: dict[RunnerId, datetime] = {}

    def expect(self, uid: str, pod: WaitingPod, *, at: float) -> None:
        self._expected[uid] = pod, at

    def ask(self, identity: PodIdentity, *, at: datetime) -> WaitingPod | None:
        pod, _ = self._expected.pop(identity.pod_uid, (None, 0.0))
        if pod is None or pod.pod_name != identity.pod_name:
            return None
        self._asked[pod.id] = at
        return pod

    def take(self, *, expected_since: float) -> Mapping[RunnerId, datetime]:
        """The Pods that asked since the last call. Forgets Pods expected before `expected_since`."""
        self._expected = {
            uid: known for uid, known in self._expected.items() if known[1] >= expected_since
        }
        asked, self._asked = self._asked, {}
        return asked

    def put_back(self, asked: Mapping[RunnerId, datetime]) -> None:
        self._asked = {**asked, **self._asked}

    def forget(self) -> None:
        self._expected.clear()


class Dispatcher:
    def __init__(
        self,
        *,
        store: MatchingStore,
        minter: Minter,
        sealer: Sealer,
        clock: Clock,
        wakeups: Wakeups,
    ) -> None:
        self._store = store
        self._minter = minter
        self._sealer = sealer
        self._clock = clock
        self._demand = wakeups.subscribe(Topic.DEMAND)
        self._waiting = _Waiting()
        self._returning = _Returning()
        #: Pods of matches whose outcome is unknown, each with the generation its claim has if the match
        #: was written. The row is checked when the Pod asks again.
        self._in_doubt: dict[RunnerId, int] = {}
        #: Requests of Pods that were claimed while they waited: open until the mint has ended.
        self._claimed: dict[RunnerId, _Waiter] = {}
        self._minting: dict[RunnerId, asyncio.Task[Handover | None]] = {}
        #: The generation of each claim that this replica made lately, and when. What is known of a Pod
        #: with a lower generation is out of date.
        self._made: dict[RunnerId, tuple[int, float]] = {}
        self._look = asyncio.Event()
        self._unmet = True
        #: The last match withheld demand (a budget, a back-off): time frees it, without a wake-up.
        self._withheld = False
        self._closing = False
        self._store_answers = asyncio.Event()
        self._trying_store = asyncio.Lock()

    # The Pod's side.

    async def poll(self, pod: PodIdentity, *, wait: float) -> Answer | None:
        """The answer to the Pod, within `wait` seconds. `None`: the Pod has no row (yet)."""
        deadline = self._clock.monotonic() + max(wait, _SHORTEST_WAIT)
        brief = wait < _SHORTEST_WAIT
        answer: Answer | None = None
        if (returned := self._returning.ask(pod, at=self._clock.now())) is not None:
            answer = await self._wait(returned, pod.pod_uid, wait, brief=brief)
        while answer is None:
            try:
                heard = await self._hear(pod, deadline)
            except TimeoutError:
                return NothingYet()
            if heard is None:
                return None
            left = deadline - self._clock.monotonic()
            answer = await self._answer(heard, left, brief=brief)
            if answer is None and (left <= 0 or self._closing):
                answer = NothingYet()
        ANSWERS.labels(type(answer).__name__).inc()
        return answer

    async def _hear(self, pod: PodIdentity, deadline: float) -> Heard | None:
        """While the store is away the request waits, as it waits for work: a refused poller would stay
        away for longer than the store. Raises `TimeoutError`."""
        while True:
            try:
                heard = await self._store.hear_pod(pod.pod_name, pod_uid=pod.pod_uid)
            except (DatabaseUnavailable, OutcomeUnknown):
                if self._closing:
                    raise
                self._store_answers.clear()
                left = deadline - self._clock.monotonic()
                async with asyncio.timeout(max(left, 0.0)), self._trying_store:
                    if not self._store_answers.is_set():
                        await self._clock.sleep(_TRY_STORE)
            else:
                self._store_answers.set()
                return heard

    async def acknowledge(self, pod: PodIdentity, delivery: UUID) -> bool | Leave:
        """The Pod holds its JIT. It may acknowledge again; false if the delivery was never this Pod's.
        A Pod that was fenced meanwhile is told to leave: its runner has not started yet."""
        found = await self._store.acknowledge_delivery(
            pod.pod_name, pod_uid=pod.pod_uid, delivery=delivery
        )
        if found in (RunnerState.RETIRING, RunnerState.GONE):
            return Leave("it is being retired")
        if isinstance(found, Runner):
            _log.info("runner.acknowledged", **runner_fields(found))
        return found is not None

    async def _answer(self, heard: Heard, left: float, *, brief: bool) -> Answer | None:
        runner = heard.runner
        if (reason := reason_to_leave(runner.state)) is not None:
            return Leave(reason)
        doubted = self._in_doubt.pop(runner.id, None)
        match runner.state:
            case RunnerState.ARMED:
                return await self._replay(heard)
            case RunnerState.CLAIMED:
                return await self._await_mint(runner, left, is_ours=doubted == runner.generation)
            case _:
                waiting = WaitingPod(
                    id=runner.id,
                    pool=runner.pool,
                    pod_name=runner.pod_name,
                    generation=runner.generation,
                    cost=runner.cost,
                )
                return await self._wait(waiting, runner.pod_uid or "", left, brief=brief)

    async def _replay(self, heard: Heard) -> Answer:
        """Answer with the same JIT again: the reply was lost, or the replica died (I20)."""
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

    async def _await_mint(self, runner: Runner, left: float, *, is_ours: bool) -> Answer | None:
        """Wait for the claim's mint, which this replica or another one does, or none any more.
        `is_ours`: a match of this replica made the claim but did not learn that it was written."""
        task = self._minting.get(runner.id)
        if task is None and runner.mint_deadline is not None:
            if is_ours or runner.mint_deadline < self._clock.now():
                await self._take_over(runner, unanswered=is_ours)
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

    async def _take_over(self, runner: Runner, *, unanswered: bool) -> None:
        """No replica mints for the claim: mint under a fresh name; the old one stays a debt (I19)."""
        claim = await self._store.take_over_claim(
            runner.id,
            generation=runner.generation,
            name=runner_name(runner.pod_name, runner.generation + 1),
            mint_deadline=self._clock.now() + MINT_DEADLINE,
            unanswered=unanswered,
        )
        if isinstance(claim, Conflict):
            return
        _log.info("claim.taken_over", **claim_fields(claim))
        self._mint(claim)

    async def _wait(self, pod: WaitingPod, uid: str, left: float, *, brief: bool) -> Answer | None:
        if left <= 0 or self._closing or (brief and not self._unmet):
            return NothingYet()
        if pod.id in self._made and self._made[pod.id][0] > pod.generation:
            # Once: a restored backup may have forgotten the claim.
            del self._made[pod.id]
            return None
        waiter = _Waiter(pod, asyncio.get_running_loop().create_future())
        self._waiting.enter(waiter, brief=brief)
        # Also while a match is written that may leave demand for this Pod: only its end tells.
        self._look.set()
        try:
            async with asyncio.timeout(left):
                return await waiter.told
        except TimeoutError:
            if not waiter.told.cancelled():  # the answer came at the same moment
                return waiter.told.result()
            self._returning.expect(uid, pod, at=self._clock.monotonic())
            return NothingYet()
        finally:
            self._waiting.leave(waiter)
            if self._claimed.get(pod.id) is waiter:
                del self._claimed[pod.id]

    # The matcher's side.

    async def run(self) -> None:
        # After a failure announcements may have been missed, so demand counts as unmet.
        self._unmet = True
        self._look.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._match_for_ever())
            group.create_task(self._hear_for_ever())

    async def close(self) -> None:
        """Answer all waiting requests, and let the mints under way end."""
        self._closing = True
        for waiter in self._waiting.take_all():
            waiter.tell(None)
        if self._minting:
            await asyncio.wait(self._minting.values())

    async def _listen(self) -> None:
        while True:
            woken = await self._demand.wait(_WITHHELD_AGAIN if self._withheld else _LOOK_AGAIN)
            # Without demand a match would take the matcher's lock in vain.
            if not (woken or self._withheld or await self._store.has_demand()):
                continue
            self._unmet = True
            self._look.set()

    async def _hear_for_ever(self) -> None:
        while True:
            began = self._clock.monotonic()
            await self._clock.sleep(_HEAR_AGAIN)
            await self.hear_again(expected_since=began)

    async def hear_again(self, *, expected_since: float) -> None:
        """Write that Pods asked again. If a runner is no longer idle, its row decides the answer."""
        oldest = self._clock.monotonic() - _MADE_LATELY
        self._made = {runner: made for runner, made in self._made.items() if made[1] >= oldest}
        asked = self._returning.take(expected_since=expected_since)
        if not asked:
            return
        try:
            idle = await self._store.hear_again(asked)
        except StoreError:
            self._returning.put_back(asked)
            raise
        for runner in asked:
            if runner not in idle and (waiter := self._waiting.take(runner)) is not None:
                waiter.tell(None)

    async def _match_for_ever(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            while len(self._waiting) and self._unmet and await self.match():
                pass

    async def match(self) -> bool:
        """One match of the waiting Pods; returns whether another one should follow at once."""
        # Demand announced from here on calls for another match.
        self._unmet = False
        try:
            match = await self._store.match(self._waiting.pods)
        except OutcomeUnknown:
            self._doubt()
            raise
        BATCHES.observe(len(match.claims))
        withheld = collections.Counter(match.withheld.values())
        for reason in Withheld:
            WITHHELD.labels(reason).set(withheld[reason])
        self._unmet |= match.more or match.short_of_pods
        self._withheld = bool(match.withheld)
        for claim in match.claims:
            self._mint(claim)
        for runner in match.left_out:
            # Another replica claimed the runner, or it was fenced: its row decides the answer.
            if (waiter := self._waiting.take(runner)) is not None:
                waiter.tell(None)
        if not match.more:
            for waiter in self._waiting.take_brief():
                waiter.tell(NothingYet())
        return match.more

    def _doubt(self) -> None:
        """The match may have written claims that no replica mints for. All waiting requests read their
        rows again and find such claims."""
        waiting = self._waiting.take_all()
        self._returning.forget()
        if len(self._in_doubt) > _MOST_IN_DOUBT:
            self._in_doubt.clear()
        self._in_doubt |= {each.pod.id: each.pod.generation + 1 for each in waiting}
        for waiter in waiting:
            waiter.tell(None)

    def _mint(self, claim: Claim) -> None:
        """Mint in a separate task: a Pod that hangs up must not cancel the mint."""
        # Later matches must not see this Pod. Its request stays open for the answer.
        if (waiter := self._waiting.take(claim.runner)) is not None:
            self._claimed[claim.runner] = waiter
        self._made[claim.runner] = claim.generation, self._clock.monotonic()
        _log.info("claim.made", **claim_fields(claim))
        task = asyncio.create_task(self._minter.mint(claim), name=f"mint {claim.name}")
        self._minting[claim.runner] = task
        task.add_done_callback(lambda done: self._minted(claim, done))

    def _minted(self, claim: Claim, task: asyncio.Task[Handover | None]) -> None:
        if self._minting.get(claim.runner) is task:
            del self._minting[claim.runner]
        handover = None
        if not task.cancelled():
            error = task.exception()
            if isinstance(error, StoreError):
                # The row stays claimed until the mint's deadline; then a replica takes the claim over.
                _log.warning("mint.unwritten", **claim_fields(claim), error=error.message)
            elif error is not None:
                _log.error("mint.broken", **claim_fields(claim), error=repr(error))
            else:
                handover = task.result()
        if (waiter := self._claimed.pop(claim.runner, None)) is not None:
            waiter.tell(handover)
