"""Hosts (Kubernetes nodes) that are not fit for runners, as the leader last found them."""

from __future__ import annotations

from collections.abc import Mapping

from paddock.domain.reading.overview import UnfitHost
from paddock.store.base import Part
from paddock.store.sql import converted, named

_SQL = named("host_faults")


class Faulting(Part):
    async def note_host_faults(self, faults: Mapping[str, str]) -> None:
        hosts = sorted(faults)
        async with self._database.transaction() as connection:
            await connection.execute(*_SQL["forget"](hosts=hosts))
            await connection.execute(
                *_SQL["note"](
                    hosts=hosts, faults=[faults[host] for host in hosts], now=self._clock.now()
                )
            )

    async def host_faults(self) -> list[UnfitHost]:
        rows = await self._database.rows(*_SQL["current"]())
        return [converted(UnfitHost, row) for row in rows]
