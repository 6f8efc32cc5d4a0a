"""Vitals: one compact series per runner, rewritten as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from paddock.domain.ids import RunnerId
from paddock.domain.vitals import Sample, extend
from paddock.store.base import Part
from paddock.store.database import retrying
from paddock.store.sql import queries

_SQL = queries("vitals")

_decode = msgspec.msgpack.Decoder(list[Sample]).decode
_encode = msgspec.msgpack.Encoder().encode


class Vitals(Part):
    @retrying
    async def add_vitals(
        self,
        pod_name: str,
        *,
        pod_uid: str,
        samples: Sequence[Sample],
        job_started_at: datetime | None,
    ) -> bool:
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(_SQL["series"], pod_name, pod_uid)
            if row is None:
                return False
            if job_started_at is not None:
                await connection.execute(_SQL["mark"], row["id"], job_started_at)
            series = extend(_decode(row["series"]) if row["series"] else [], samples)
            if series:
                last = datetime.fromtimestamp(min(series[-1].at, 4e9), UTC)
                await connection.execute(
                    _SQL["keep"], row["id"], _encode(series), len(series), last
                )
        return True

    async def vitals(self, runner: RunnerId) -> list[Sample]:
        async with self._database.transaction() as connection:
            series = await connection.fetchval(_SQL["read"], runner)
        return _decode(series) if series else []
