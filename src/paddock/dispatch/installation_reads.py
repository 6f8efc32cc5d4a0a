"""Read the installations that deliveries ask for, outside the loop that applies deliveries.

GitHub may take seconds to answer, and no queued job may wait behind that (I83). The deliveries
themselves say what has to be read: each stays pending until its installation was read, and an applier
takes it again after some seconds (`TAKEN_FOR`), so that no read is lost if this process dies. This
module only remembers which reads are requested and under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from paddock.dispatch.delivery_writer import Batch, DeliveryWriter
from paddock.dispatch.installations import Installations
from paddock.domain.github.deliveries import Delivery, DeliveryNumber, DeliveryState, Postponement
from paddock.domain.github.errors import GitHubError
from paddock.domain.ids import AppId, HostId
from paddock.domain.jobs.intake import Passed
from paddock.ports import Clock
from paddock.ports.deliveries import DeliveryStore
from paddock.ports.errors import StoreError

_log = structlog.get_logger()

#: Concurrent reads. One read takes a request or two, and one page per hundred chosen repositories.
AT_ONCE: Final = 4
#: Deliveries remembered for one installation. An applier takes the others again (`TAKEN_FOR`).
MOST_WAITING: Final = 1_000
#: An installation that cannot be read is tried again after a second, then two, up to this.
_LONGEST_WAIT: Final = timedelta(minutes=5)
#: GitHub cancels a queued job after a day; a delivery that could not be applied by then is useless.
_GIVE_UP: Final = timedelta(hours=24)


class InstallationToRead(NamedTuple):
    host: HostId
    app: AppId
    id: int


class InstallationReads:
    def __init__(
        self,
        *,
        store: DeliveryStore,
        installations: Installations,
        clock: Clock,
        writer: DeliveryWriter,
    ) -> None:
        self._store = store
        self._installations = installations
        self._clock = clock
        self._writer = writer
        #: The deliveries that wait for each installation, by number.
        self._waiting: dict[InstallationToRead, dict[DeliveryNumber, Delivery]] = {}
        self._reading: dict[InstallationToRead, dict[DeliveryNumber, Delivery]] = {}
        self._changed = asyncio.Event()

    def request(self, installation: InstallationToRead, deliveries: Iterable[Delivery]) -> None:
        """Read the installation soon. If a read is under way, another one follows for deliveries that
        arrived since, because the answer under way may be older than they are. A delivery that an
        applier has taken again is already waiting."""
        asked = self._reading.get(installation, {})
        waiting = self._waiting.get(installation, {})
        for each in deliveries:
            if each.number not in asked and len(waiting) < MOST_WAITING:
                waiting[each.number] = each
        if waiting:
            self._waiting[installation] = waiting
            self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            if not await self.read_next():
                self._changed.clear()
                await self._changed.wait()

    async def read_next(self) -> bool:
        """Read one requested installation that is not being read; false if there is none."""
        free = (each for each in self._waiting if each not in self._reading)
        installation = next(free, None)
        if installation is None:
            return False
        waiting = self._reading[installation] = self._waiting.pop(installation)
        try:
            await self._read(installation, list(waiting.values()))
        except StoreError as error:
            # The deliveries are still pending, and an applier takes them again.
            _log.warning("installation.read_not_written", error=error.message)
        finally:
            del self._reading[installation]
            self._changed.set()
        return True

    async def _read(self, installation: InstallationToRead, waiting: Sequence[Delivery]) -> None:
        """An event about an installation only asks for this read, so it is settled. Jobs of an unknown
        installation were waiting for it and are due now."""
        try:
            known = await self._installations.read(installation.app, installation.id)
        except GitHubError as error:
            await self._put_off(waiting, error.failure.sentence)
            return
        batch = Batch()
        for delivery in waiting:
            if delivery.event != "workflow_job":
                batch.settle(delivery, DeliveryState.APPLIED)
            elif not known:
                batch.pass_over(delivery, Passed.INSTALLATION_REMOVED)
        await self._writer.write(batch)
        if known:
            numbers = [delivery.number for delivery in waiting]
            await self._store.expedite_deliveries(installation.host, installation.id, numbers)

    async def _put_off(self, waiting: Sequence[Delivery], why: str) -> None:
        now = self._clock.now()
        batch = Batch()
        for delivery in waiting:
            if now - delivery.received_at > _GIVE_UP:
                batch.set_aside(delivery, f"its installation could not be read for a day: {why}")
                continue
            wait = min(timedelta(seconds=2 ** min(delivery.attempts, 16)), _LONGEST_WAIT)
            batch.postponed.append(Postponement(number=delivery.number, until=now + wait, note=why))
        await self._writer.write(batch)
