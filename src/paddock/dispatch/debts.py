"""Debts: records at GitHub under names that no runner has any more. The collector deletes them.

A failed mint, a claim taken over, a Pod that vanished: each may have left a runner record. If they are
not deleted, they pile up as pages of offline runners (I41). A record that GitHub calls busy is left
alone: it executes a job, and GitHub removes it when the job ends.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import structlog
from prometheus_client import Counter

from paddock.dispatch.pauses import Pauses, Place
from paddock.domain.github.debts import Debt, MintOutcome
from paddock.domain.github.errors import GitHubError
from paddock.domain.github.objects import Absent, Removal
from paddock.domain.recovery.stale_claim import MINT_SETTLED
from paddock.ports import Clock, GitHub
from paddock.ports.matching import DebtStore

_log = structlog.get_logger()

_BATCH: Final = 50
_EVERY: Final = 15.0
#: After this a debt is tried again whose runner is busy, or about which GitHub did not answer.
_LATER: Final = timedelta(minutes=5)

#: After a failure, before its scope is asked again: otherwise a thousand debts of an account for which
#: GitHub does not answer would delay those of all other accounts (I26).
_PAUSE: Final = timedelta(seconds=5)
_LONGEST_PAUSE: Final = timedelta(seconds=60)

PAID = Counter("paddock_github_debts_paid_total", "Debts settled, by what was found.", ["outcome"])


class DebtCollector:
    def __init__(self, *, store: DebtStore, github: GitHub, clock: Clock) -> None:
        self._store = store
        self._github = github
        self._clock = clock
        self._pauses = Pauses(clock)

    async def run(self) -> None:
        while True:
            if await self.round() < _BATCH:
                await self._clock.sleep(_EVERY)

    async def round(self) -> int:
        """Try to settle the debts that are due; return how many were tried."""
        debts = await self._store.debts(before=self._clock.now() - MINT_SETTLED, limit=_BATCH)
        for debt in debts:
            place = _place(debt)
            if self._pauses.active(place):
                await self._later(debt, _LONGEST_PAUSE)
                continue
            try:
                await self._pay(debt)
            except GitHubError as error:
                _log.info(
                    "debt.postponed",
                    runner=debt.name,
                    account=debt.scope.owner,
                    error=error.failure.sentence,
                )
                self._pauses.begin(
                    place,
                    error.failure,
                    at_least=_PAUSE.total_seconds(),
                    at_most=_LONGEST_PAUSE.total_seconds(),
                )
                await self._later(debt)
            else:
                self._pauses.end(place)
        return len(debts)

    async def _pay(self, debt: Debt) -> None:
        runner = debt.github_id
        if runner is None:
            found = await self._github.find_runner(debt.who, debt.scope, name=debt.name)
            if isinstance(found, Absent):
                return await self._settle(debt, MintOutcome.NEVER_MADE)
            runner = found.id
        match await self._github.delete_runner(debt.who, debt.scope, runner):
            case Removal.REMOVED:
                await self._settle(debt, MintOutcome.REMOVED)
            case Removal.ABSENT:
                await self._settle(debt, MintOutcome.WAS_GONE)
            case Removal.BUSY:
                await self._later(debt)
        return None

    async def _settle(self, debt: Debt, outcome: MintOutcome) -> None:
        await self._store.settle_mint(debt.name, outcome=outcome)
        PAID.labels(outcome).inc()

    async def _later(self, debt: Debt, wait: timedelta = _LATER) -> None:
        await self._store.postpone_debt(debt.name, until=self._clock.now() + wait)


def _place(debt: Debt) -> Place:
    repository = f"{debt.scope.owner}/{debt.scope.repository}" if debt.scope.repository else None
    return Place(app=debt.who.app_key, installation=debt.who.installation, repository=repository)
