"""Reading installations that deliveries ask for, beside the loop that applies deliveries.

GitHub may take seconds to answer, and no queued job waits behind that (I83). What has to be read
follows from the deliveries themselves: each stays pending until its installation was read, and comes
back to an applier after some seconds (`TAKEN_FOR`), so that nothing is lost if this process dies. What
is kept here is only which reads are asked for and under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from paddock.dispatch.installations import Installations
from paddock.dispatch.settling import Batch, Settler
from paddock.domain.deliveries import Delivery, DeliveryNumber, DeliveryState, Postponement
from paddock.domain.github_errors import GitHubError
from paddock.domain.ids import AppId, HostId
from paddock.domain.intake import Passed
from paddock.ports import Clock, Store
from paddock.store.errors import StoreError

_log = structlog.get_logger()

#: Reads under way. One takes a request or two, and a page for a hundred chosen repositories.
AT_ONCE: Final = 4
#: Deliveries that wait for one installation. Those beyond come back by themselves (`TAKEN_FOR`).
MOST_WAITING: Final = 1_000
#: An installation that cannot be read is tried again after a second, then two, up to this.
_LONGEST_WAIT: Final = timedelta(minutes=5)
#: GitHub cancels a queued job after a day; a delivery that could not be placed by then is of no use.
_GIVE_UP: Final = timedelta(hours=24)


class InstallationToRead(NamedTuple):
    host: HostId
    app: AppId
    id: int


class InstallationReads:
    def __init__(
        self, *, store: Store, installations: Installations, clock: Clock, settler: Settler
    ) -> None:
        self._store = store
        self._installations = installations
        self._clock = clock
        self._settler = settler
        #: Deliveries that wait for each, by number.
        self._waiting: dict[InstallationToRead, dict[DeliveryNumber, Delivery]] = {}
        self._reading: dict[InstallationToRead, dict[DeliveryNumber, Delivery]] = {}
        self._changed = asyncio.Event()

    def request(self, installation: InstallationToRead, deliveries: Iterable[Delivery]) -> None:
        """Read it soon. If it is being read now, it is read once more for those that came since: the
        answer under way may be older than they are. One that came back waits already."""
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
        """Read one that is asked for and not under way; false if there is none."""
        free = (each for each in self._waiting if each not in self._reading)
        installation = next(free, None)
        if installation is None:
            return False
        waiting = self._reading[installation] = self._waiting.pop(installation)
        try:
            await self._read(installation, list(waiting.values()))
        except StoreError as error:
            # The deliveries are pending, and come back.
            _log.warning("installation.read_not_written", error=error.message)
        finally:
            del self._reading[installation]
            self._changed.set()
        return True

    async def _read(self, installation: InstallationToRead, waiting: Sequence[Delivery]) -> None:
        """Events about an installation only say that it should be read; jobs of one that is not
        known wait until it is."""
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
        await self._settler.write(batch)
        if known:
            numbers = [delivery.number for delivery in waiting]
            await self._store.hurry_deliveries(installation.host, installation.id, numbers)

    async def _put_off(self, waiting: Sequence[Delivery], why: str) -> None:
        now = self._clock.now()
        batch = Batch()
        for delivery in waiting:
            if now - delivery.received_at > _GIVE_UP:
                batch.bury(delivery, f"its installation could not be read for a day: {why}")
                continue
            wait = min(timedelta(seconds=2 ** min(delivery.attempts, 16)), _LONGEST_WAIT)
            batch.postponed.append(Postponement(number=delivery.number, until=now + wait, note=why))
        await self._settler.write(batch)
