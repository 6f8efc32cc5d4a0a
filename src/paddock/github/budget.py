"""The budget for requests to GitHub.

The client takes tokens for each request before it sends the request, and passes on what GitHub's
answers say is left. Without a budget a burst of webhooks exceeds GitHub's secondary limit, and the
pause that GitHub then orders is longer than the budget's own wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

import structlog

from paddock.domain.github.budgets import Bucket, BudgetKey, BudgetLimits, BudgetSpent, TokenBucket
from paddock.domain.github.objects import AppKey, InstallationId
from paddock.ports import Clock

_log = structlog.get_logger()

#: If the wait would be longer than this, the caller should do other work (I17): a Pod's poll is held
#: for some tens of seconds, and the mint itself needs part of that time.
LONGEST_WAIT_S: Final = 5.0
#: How long remarks are gathered. Fifty mints a second make fifty remarks; only the last one matters.
GATHERED_FOR_S: Final = 0.5


class Budget(Protocol):
    """Where the buckets are kept. `MemoryBudget` keeps them in this process; `PgBudget` in the store,
    shared between replicas.

    The matcher takes a claim's mint token in the transaction that writes the claim. So `PgBudget`,
    which uses the matcher's buckets, gives `Bucket.MINT` without counting it again.
    """

    async def take(self, key: BudgetKey, tokens: int) -> None:
        """Return when the tokens are taken, or raise `BudgetSpent` if that would take long."""
        ...

    async def observe(
        self, key: BudgetKey, *, remaining: int, resets_in_s: float | None = None
    ) -> None:
        """Note what GitHub says is left. If nothing is left and `resets_in_s` is given, no token is
        given out until then."""
        ...

    async def quotas_left(self, app: AppKey) -> Mapping[InstallationId | None, float]:
        """The share of the hourly quota, from 0 to 1, that each installation of the App and the App
        itself (`None`) still have. A missing one has spent nothing."""
        ...


class Remarks:
    """What GitHub's answers say is left, passed on to the budget in the background.

    A mint does not wait for this, because the write may wait for a row from which the matcher is
    taking tokens. Of several remarks on one key only the newest is written. All other requests wait
    until the remarks are written before they take tokens. A remark that nothing is left is passed on at
    once.
    """

    def __init__(self, budget: Budget, clock: Clock) -> None:
        self._budget = budget
        self._clock = clock
        self._newest: dict[BudgetKey, tuple[int, float | None]] = {}
        self._passing: asyncio.Task[None] | None = None
        self._gathering: asyncio.Task[None] | None = None

    def note(self, key: BudgetKey, *, remaining: int, resets_in_s: float | None) -> None:
        self._newest[key] = remaining, resets_in_s
        if remaining <= 0:
            self._begin()
        elif self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather(), name="GitHub's remarks")

    async def passed_on(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
        self._begin()
        if self._passing is not None:
            await asyncio.wait([self._passing])

    async def _gather(self) -> None:
        await self._clock.sleep(GATHERED_FOR_S)
        self._begin()

    def _begin(self) -> None:
        if self._newest and (self._passing is None or self._passing.done()):
            self._passing = asyncio.create_task(self._pass_on(), name="GitHub's remarks, passed on")

    async def _pass_on(self) -> None:
        while self._newest:
            key = next(iter(self._newest))
            remaining, resets_in_s = self._newest.pop(key)
            try:
                await self._budget.observe(key, remaining=remaining, resets_in_s=resets_in_s)
            except Exception as error:
                # The next answer repeats this information.
                _log.debug("budget.note_lost", error=str(error))


class MemoryBudget:
    """The budget of a single process."""

    def __init__(self, clock: Clock, limits: Mapping[AppKey, BudgetLimits] | None = None) -> None:
        self._clock = clock
        self._limits = limits or {}
        self._buckets: dict[BudgetKey, TokenBucket] = {}

    async def take(self, key: BudgetKey, tokens: int) -> None:
        deadline = self._clock.monotonic() + LONGEST_WAIT_S
        while True:
            bucket = self._bucket(key)
            if (taken := bucket.take(tokens)) is not None:
                self._buckets[key] = taken
                return
            wait = bucket.wait_s(tokens, self._clock.now())
            if self._clock.monotonic() + wait > deadline:
                raise BudgetSpent(key, wait)
            # A wait shorter than the clock's resolution would repeat this loop for ever.
            await self._clock.sleep(max(wait, 0.001))

    async def observe(
        self, key: BudgetKey, *, remaining: int, resets_in_s: float | None = None
    ) -> None:
        bucket = self._bucket(key)
        self._buckets[key] = bucket.told(remaining, resets_in_s, self._clock.now())

    async def quotas_left(self, app: AppKey) -> Mapping[InstallationId | None, float]:
        left: dict[InstallationId | None, float] = {}
        for key in self._buckets:
            if key.bucket is Bucket.REST and (key.host, key.app) == (app.host, app.app):
                bucket = self._bucket(key)
                left[key.installation] = bucket.tokens / bucket.capacity
        return left

    def _bucket(self, key: BudgetKey) -> TokenBucket:
        now = self._clock.now()
        if (bucket := self._buckets.get(key)) is None:
            limits = self._limits.get(AppKey(host=key.host, app=key.app), BudgetLimits())
            bucket = limits.bucket(key.bucket, now)
        return bucket.at(now)
