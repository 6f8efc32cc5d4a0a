"""Deliveries: stored in one insert, applied in one transaction with the changes they cause."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from paddock.domain.github.deliveries import (
    Delivery,
    DeliveryNumber,
    NewDelivery,
    Postponement,
    Settlement,
)
from paddock.domain.ids import AppId, HostId
from paddock.domain.jobs.facts import EventCause, JobReport, UnappliedEvent
from paddock.store.database import UNFLUSHED, Connection, retrying
from paddock.store.jobs import Jobs, merge_reports
from paddock.store.sql import converted, named

_SQL = named("deliveries")

#: A replica applies a batch in tens of milliseconds. If it has not done so after this, it has died or
#: stalled, or did not learn that it took the batch. Then another replica applies the batch. Applying a
#: batch twice has the effect of applying it once.
TAKEN_FOR = timedelta(seconds=3)


class Deliveries(Jobs):
    @retrying
    async def store_deliveries(self, deliveries: Sequence[NewDelivery]) -> frozenset[str]:
        async with self._database.statement() as connection:
            rows = await connection.fetch(
                *_SQL["store"](
                    hosts=[delivery.host for delivery in deliveries],
                    apps=[delivery.app for delivery in deliveries],
                    guids=[delivery.guid for delivery in deliveries],
                    events=[delivery.event for delivery in deliveries],
                    actions=[delivery.action for delivery in deliveries],
                    installations=[delivery.installation for delivery in deliveries],
                    payloads=[delivery.payload for delivery in deliveries],
                    now=self._clock.now(),
                ),
            )
        return frozenset(row["guid"] for row in rows)

    @retrying
    async def take_deliveries(self, limit: int) -> list[Delivery]:
        now = self._clock.now()
        async with self._database.statement() as connection:
            rows = await connection.fetch(
                *_SQL["take"](now=now, limit=limit, taken_until=now + TAKEN_FOR)
            )
        return [converted(Delivery, row) for row in rows]

    @retrying
    async def apply_deliveries(
        self,
        *,
        reports: Sequence[JobReport],
        settled: Sequence[Settlement],
        postponed: Sequence[Postponement],
    ) -> list[UnappliedEvent]:
        merged = merge_reports(reports)
        # A server crash may lose this commit: then the changes are lost too, and the deliveries are
        # pending again.
        async with self._database.transaction(begin=UNFLUSHED) as connection:
            unplaced = await self._apply(connection, merged, EventCause.WEBHOOK) if merged else []
            await self._settle(connection, settled)
            if postponed:
                await connection.execute(
                    *_SQL["postpone"](
                        numbers=[each.number for each in postponed],
                        untils=[each.until for each in postponed],
                        notes=[each.note for each in postponed],
                    ),
                )
        return unplaced

    async def _settle(self, connection: Connection, settled: Sequence[Settlement]) -> None:
        if settled:
            await connection.execute(
                *_SQL["settle"](
                    numbers=[each.number for each in settled],
                    states=[each.state for each in settled],
                    notes=[each.note for each in settled],
                    now=self._clock.now(),
                ),
            )

    async def expedite_deliveries(
        self, host: HostId, installation: int, also: Sequence[DeliveryNumber]
    ) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["expedite"](
                    host=host, installation=installation, now=self._clock.now(), also=list(also)
                )
            )

    async def retry_deliveries(self, numbers: Sequence[DeliveryNumber] | None) -> int:
        async with self._database.transaction() as connection:
            tag = await connection.execute(*_SQL["retry"](numbers=numbers, now=self._clock.now()))
        return int(tag.split()[-1])

    async def known_guids(self, host: HostId, guids: Sequence[str]) -> frozenset[str]:
        rows = await self._database.rows(*_SQL["known"](host=host, guids=guids))
        return frozenset(row["guid"] for row in rows)

    async def hook_cursor(self, app: AppId) -> datetime:
        async with self._database.transaction() as connection:
            cursor: datetime = await connection.fetchval(
                *_SQL["cursor"](app=app, now=self._clock.now())
            )
        return cursor

    async def move_hook_cursor(self, app: AppId, until: datetime) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(*_SQL["move_cursor"](app=app, until=until))
