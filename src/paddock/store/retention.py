"""Forgetting, in small batches: history is useful for a while and then only slows things down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta

from paddock.domain.retention import BATCH, Retention
from paddock.store.base import Part
from paddock.store.sql import queries

_SQL = queries("retention")


class Retaining(Part):
    async def forget(self, retention: Retention) -> Mapping[str, int]:
        gone: dict[str, int] = {}
        now = self._clock.now()
        for field in fields(retention):
            kept: timedelta = getattr(retention, field.name)
            async with self._database.transaction() as connection:
                tag = await connection.execute(_SQL[field.name], now - kept, BATCH)
            gone[field.name] = int(tag.split()[-1])
        return gone
