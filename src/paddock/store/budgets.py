"""The GitHub request budget, stored as rows that all replicas share.

The arithmetic is in `paddock.domain.github.budgets`; this module only stores the buckets. Spending a
token does not wait for a disk flush: a crash of the database may lose the last tokens taken, and the
headers of GitHub's next answer correct the count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from paddock.domain.github.budgets import Bucket, BudgetKey, BudgetLimits, BudgetSpent, TokenBucket
from paddock.domain.github.objects import AppKey, InstallationId, Operation
from paddock.domain.ids import AppId
from paddock.ports import Clock
from paddock.store.database import UNFLUSHED, Database, retrying
from paddock.store.sql import named

_SQL = named("budgets")

#: If the wait would be longer than this, the caller should do other work instead (I17).
LONGEST_WAIT_S: Final = 5.0
#: Stored in place of an installation's number for the App's own budget; GitHub never uses it.
_THE_APP: Final = 0


class PgBudget:
    """The `Budget` of the GitHub client.

    The matcher pays for a claim's mint in the transaction that writes the claim, so this class does
    not count it again. It writes what GitHub's headers say about mints to the rows the matcher reads.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        apps: Mapping[AppKey, tuple[AppId, BudgetLimits]],
    ) -> None:
        self._database = database
        self._clock = clock
        self._apps = apps

    async def take(self, key: BudgetKey, tokens: int) -> None:
        if key.bucket is Bucket.MINT or key.operation is Operation.MINT:
            return
        deadline = self._clock.monotonic() + LONGEST_WAIT_S
        while (wait := await self._try(key, tokens)) is not None:
            if self._clock.monotonic() + wait > deadline:
                raise BudgetSpent(key, wait)
            # A wait shorter than the clock's resolution would repeat this loop for ever.
            await self._clock.sleep(max(wait, 0.001))

    async def observe(
        self, key: BudgetKey, *, remaining: int, resets_in_s: float | None = None
    ) -> None:
        answered_at = self._clock.now()
        await self._change(key, lambda bucket, _: bucket.told(remaining, resets_in_s, answered_at))

    async def _try(self, key: BudgetKey, tokens: int) -> float | None:
        """Take the tokens and return `None`, or return the seconds until the bucket has enough."""
        wait: float | None = None

        def take(bucket: TokenBucket, now: datetime) -> TokenBucket:
            nonlocal wait
            taken = bucket.take(tokens)
            wait = None if taken else bucket.wait_s(tokens, now)
            return taken or bucket

        await self._change(key, take)
        return wait

    @retrying
    async def _change(
        self, key: BudgetKey, change: Callable[[TokenBucket, datetime], TokenBucket]
    ) -> None:
        app, limits = self._apps[AppKey(host=key.host, app=key.app)]
        where = {"app": app, "installation": key.installation or _THE_APP}
        bucket = _name(key)
        async with self._database.transaction(begin=UNFLUSHED) as connection:
            row = await connection.fetchrow(*_SQL["read"](**where, bucket=bucket))
            if row is None:
                now = self._clock.now()
                if key.bucket is Bucket.MINT:
                    await connection.execute(*_SQL["make_for_mints"](**where, now=now))
                else:
                    new = limits.bucket(key.bucket, now)
                    await connection.execute(
                        *_SQL["make"](
                            **where,
                            bucket=bucket,
                            capacity=new.capacity,
                            refill_per_s=new.refill_per_s,
                            now=now,
                        )
                    )
                row = await connection.fetchrow(*_SQL["read"](**where, bucket=bucket))
            if row is None:
                return  # mints are not limited for this App
            # The matcher's claims may overdraw the mint bucket by one or two take-overs.
            kept = TokenBucket(**{**row, "tokens": max(0.0, row["tokens"])})
            # Read once, under the row's lock: another replica may have held the row for seconds.
            now = self._clock.now()
            changed = change(kept.at(now), now)
            await connection.execute(
                *_SQL["write"](**where, bucket=bucket, tokens=changed.tokens, as_of=changed.as_of)
            )

    async def quotas_left(self, app: AppKey) -> Mapping[InstallationId | None, float]:
        rows = await self._database.rows(
            *_SQL["left"](app=self._apps[app][0], now=self._clock.now())
        )
        return {_whose(row["installation_id"]): row["tokens"] / row["capacity"] for row in rows}


def _name(key: BudgetKey) -> str:
    return f"points/{key.operation}" if key.bucket is Bucket.POINTS else key.bucket


def _whose(installation: int) -> InstallationId | None:
    return None if installation == _THE_APP else InstallationId(installation)
