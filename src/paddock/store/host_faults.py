"""Hosts (Kubernetes nodes) that are not fit for runners, as the leader last found them."""

from __future__ import annotations

from collections.abc import Mapping

from paddock.domain.levels import HostFault
from paddock.store.base import Part
from paddock.store.sql import queries

_SQL = queries("host_faults")


class Faulting(Part):
    async def note_host_faults(self, faults: Mapping[str, str]) -> None:
        hosts = sorted(faults)
        async with self._database.transaction() as connection:
            await connection.execute(_SQL["forget"], hosts)
            await connection.execute(
                _SQL["note"], hosts, [faults[host] for host in hosts], self._clock.now()
            )

    async def host_faults(self) -> list[HostFault]:
        rows = await self._database.rows(_SQL["current"])
        return [HostFault(**row) for row in rows]
