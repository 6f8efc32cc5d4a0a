"""Sizes that were wanted before.

They are kept in the database. Otherwise a new or restarted leader would know only its first look, and
send away runners that were wanted a moment ago (I53). Each round reads what is new.
"""

from __future__ import annotations

from collections.abc import Iterable

from paddock.domain.ids import PoolId
from paddock.domain.pools.scaling import SizeSample
from paddock.domain.pools.surveys import PastDecision
from paddock.domain.pools.terms import LONGEST_WINDOW


class DecisionHistory:
    def __init__(self) -> None:
        #: The number of the last one that was read; `None`: none has been read yet.
        self.last: int | None = None
        self._by_pool: dict[PoolId, list[PastDecision]] = {}

    def add(self, decisions: Iterable[PastDecision]) -> None:
        self.last = self.last or 0
        for past in decisions:
            self.last = max(self.last, past.number)
            known = self._by_pool.setdefault(past.decision.pool, [])
            known.append(past)
            # Of those that are older than any window only the last matters: it was in force.
            while len(known) > 1 and known[1].at <= past.at - LONGEST_WINDOW:
                del known[0]

    def latest(self, pool: PoolId) -> PastDecision | None:
        known = self._by_pool.get(pool)
        return known[-1] if known else None

    def history(self, pool: PoolId) -> list[SizeSample]:
        return [SizeSample(past.at, past.decision.wanted) for past in self._by_pool.get(pool, [])]
