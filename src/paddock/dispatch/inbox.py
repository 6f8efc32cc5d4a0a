"""Deliveries that arrive together share one commit.

A durable commit costs a write to disk, a round trip and a statement, which is most of what a webhook
costs. So deliveries that arrive while a batch is being stored wait and form the next batch. The inbox
adds no delay to gather more: on an idle system a batch is one delivery.

At most two batches are under way. While the database stores one, this process reads and answers the
requests of the other. With a single batch this process and PostgreSQL would take turns.

A request is answered or refused within GitHub's ten seconds: it waits at most `MAX_WAIT` for its turn
and `WRITE_TIMEOUT` for its commit. A refused delivery may still be stored, if the answer of its COMMIT
was lost; a redelivery then has a known GUID (I6).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import structlog
from prometheus_client import Gauge, Histogram

from paddock.domain.github.deliveries import NewDelivery
from paddock.ports import Clock
from paddock.ports.deliveries import InboxStore
from paddock.ports.errors import OutcomeUnknown, StoreError

_log = structlog.get_logger()

AT_ONCE: Final = 2
#: Deliveries in one transaction. At this size the rows cost ten times what the commit does, and more
#: rows would only delay the first answer.
BATCH: Final = 32
#: Ten times what one matrix can send at once (256) for each of a handful of repositories. If the
#: database is slow for long, deliveries are refused instead of filling the memory.
MAX_WAITING: Final = 20_000
#: The two together are less than the ten seconds after which GitHub hangs up.
MAX_WAIT: Final = 4.0
WRITE_TIMEOUT: Final = 4.0
_STOPPING: Final = "paddock is being stopped."
_CLOSE_TIMEOUT: Final = 1.0  # a cancelled transaction is rolled back in milliseconds, if at all

BATCH_SIZE = Histogram(
    "paddock_webhook_batch_deliveries",
    "Deliveries that shared a commit.",
    buckets=(1, 2, 4, 8, 16, 32),
)
COMMIT_SECONDS = Histogram(
    "paddock_webhook_commit_seconds",
    "From the start of a batch's transaction to its durable end.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
WAITING = Gauge("paddock_webhooks_waiting", "Deliveries received and not yet stored.")


class NotStored(Exception):
    """The delivery was not stored, as far as this process knows. GitHub can send it again."""


class Overloaded(NotStored):
    """More deliveries arrive than the database can store."""


@dataclass(slots=True, eq=False)
class _Request:
    delivery: NewDelivery
    since: float
    answer: asyncio.Future[bool]

    def tell(self, *, is_new: bool) -> None:
        if not self.answer.done():  # the request may have been cancelled
            self.answer.set_result(is_new)

    def refuse(self, error: NotStored) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Inbox:
    """`async with Inbox.open(store, clock) as inbox: await inbox.store(delivery)`"""

    def __init__(self, store: InboxStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Request] = deque()
        self._is_open = True
        self._is_pump_due = False
        self._writing: dict[asyncio.Task[None], asyncio.TimerHandle] = {}
        # Writes that no request waits for any more: their connection hangs.
        self._abandoned: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, store: InboxStore, clock: Clock) -> AsyncIterator[Self]:
        inbox = cls(store, clock)
        try:
            yield inbox
        finally:
            await inbox._close()

    async def store(self, delivery: NewDelivery) -> bool:
        """Return once the delivery is durable, with whether it is new. Raises `NotStored`."""
        if not self._is_open:
            raise NotStored(_STOPPING)
        if len(self._waiting) >= MAX_WAITING:
            raise Overloaded(f"{MAX_WAITING} deliveries wait to be stored already.")
        request = _Request(delivery, self._clock.monotonic(), self._loop.create_future())
        self._waiting.append(request)
        if not self._is_pump_due:
            # After all other requests that were read in this turn of the event loop.
            self._is_pump_due = True
            self._loop.call_soon(self._pump)
        return await request.answer

    def _pump(self) -> None:
        self._is_pump_due = False
        while self._waiting and len(self._writing) < AT_ONCE:
            if batch := self._next_batch():
                task = self._loop.create_task(self._serve(batch), name="inbox")
                task.add_done_callback(self._written)
                self._writing[task] = self._loop.call_later(
                    WRITE_TIMEOUT, self._give_up, task, batch
                )
        WAITING.set(len(self._waiting))

    def _next_batch(self) -> list[_Request]:
        too_old = self._clock.monotonic() - MAX_WAIT
        batch: list[_Request] = []
        while self._waiting and len(batch) < BATCH:
            request = self._waiting.popleft()
            if request.since > too_old:
                batch.append(request)
            else:
                request.refuse(Overloaded(f"Not stored within {MAX_WAIT:g} s."))
        return batch

    async def _serve(self, batch: Sequence[_Request]) -> None:
        try:
            await self._write(batch)
        finally:
            # Only after a cancelled write; otherwise all requests have their answer.
            for request in batch:
                request.refuse(NotStored(_STOPPING))

    async def _write(self, batch: Sequence[_Request]) -> None:
        began = self._clock.monotonic()
        deliveries = [request.delivery for request in batch]
        try:
            try:
                new = await self._store.store_deliveries(deliveries)
            except OutcomeUnknown:
                # The server may have restarted. Writing again is safe: a GUID is stored once.
                new = await self._store.store_deliveries(deliveries)
        except StoreError as error:
            for request in batch:
                request.refuse(NotStored(error.message))
        except Exception as error:
            await self._write_alone(batch, error)
        else:
            BATCH_SIZE.observe(len(batch))
            COMMIT_SECONDS.observe(self._clock.monotonic() - began)
            _answer(batch, new)

    async def _write_alone(self, batch: Sequence[_Request], error: Exception) -> None:
        """A delivery in the batch cannot be stored at all. The others must still be stored (I13)."""
        if len(batch) > 1:
            for request in batch:
                await self._write([request])
            return
        [request] = batch
        _log.error("delivery.unstorable", guid=request.delivery.guid, error=repr(error))
        request.refuse(NotStored("The delivery cannot be stored; the log says why."))

    def _written(self, task: asyncio.Task[None]) -> None:
        self._abandoned.discard(task)
        if timer := self._writing.pop(task, None):
            timer.cancel()
        self._pump()

    def _give_up(self, task: asyncio.Task[None], batch: Sequence[_Request]) -> None:
        """The connection hangs. Its cancellation may hang too, so do not wait for it: the next batch
        uses another connection."""
        for request in batch:
            request.refuse(NotStored(f"The database did not answer within {WRITE_TIMEOUT:g} s."))
        del self._writing[task]
        self._abandoned.add(task)
        task.cancel()
        self._pump()

    async def _close(self) -> None:
        self._is_open = False
        for request in self._waiting:
            request.refuse(NotStored(_STOPPING))
        self._waiting.clear()
        if tasks := {*self._writing, *self._abandoned}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT)


def _answer(batch: Sequence[_Request], new: frozenset[str]) -> None:
    """Answer the batch. Of a GUID that is in it twice, only the first is new."""
    told: set[str] = set()
    for request in batch:
        guid = request.delivery.guid
        request.tell(is_new=guid in new and guid not in told)
        told.add(guid)
