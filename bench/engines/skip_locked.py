"""Queues as many applications build them: one table, `FOR UPDATE SKIP LOCKED`.

One claim per transaction without limits; the same in batches, for orientation; and one claim per
transaction within limits, as done without a matcher: lock the account's row, sum its use, claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import asyncpg

from bench.engines.base import BATCH, Ask, Claimed, Engine, Section, race

_SCHEMA = """
CREATE TABLE accounts (
    id              integer PRIMARY KEY,
    max_runners     integer,
    max_vcpu_milli  bigint,
    max_memory_mib  bigint
);
CREATE TABLE jobs (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id  integer NOT NULL REFERENCES accounts,
    name        text NOT NULL,
    labels      text[] NOT NULL,
    state       text NOT NULL,
    queued_at   timestamptz NOT NULL,
    vcpu_milli  integer NOT NULL,
    memory_mib  integer NOT NULL,
    pod         text,
    claimed_at  timestamptz
);
"""
_OLDEST_FIRST = "CREATE INDEX ON jobs (queued_at, id) WHERE state = 'queued'"

_QUEUE = """
INSERT INTO jobs (account_id, name, labels, state, queued_at, vcpu_milli, memory_mib, pod, claimed_at)
SELECT account_id, 'build (' || position || ')', '{self-hosted,linux}', $2,
       clock_timestamp() + position * interval '1 microsecond', 2000, 8192,
       CASE WHEN $2 = 'claimed' THEN 'pod-' || position END,
       CASE WHEN $2 = 'claimed' THEN now() END
  FROM unnest($1::int[]) WITH ORDINALITY AS new (account_id, position)
RETURNING id, pod, account_id
"""
_END = "UPDATE jobs SET state = 'ended' WHERE id = ANY ($1)"
_DEPTH = "SELECT count(*) FROM jobs WHERE state = 'queued'"
_USED = "SELECT account_id, count(*) FROM jobs WHERE state = 'claimed' GROUP BY account_id"
_MARKED = """
SELECT count(*)
  FROM unnest($1::bigint[], $2::text[]) AS claim (id, pod)
  JOIN jobs USING (id, pod)
 WHERE state = 'claimed'
"""

_CLAIM_ONE = """
UPDATE jobs SET state = 'claimed', pod = $1, claimed_at = now()
 WHERE id = (SELECT id FROM jobs WHERE state = 'queued'
              ORDER BY queued_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, pod, account_id
"""

_CLAIM_BATCH = """
WITH oldest AS (
    SELECT id FROM jobs WHERE state = 'queued'
     ORDER BY queued_at, id LIMIT cardinality($1::text[]) FOR UPDATE SKIP LOCKED
), given AS (
    SELECT id, ($1::text[])[row_number() OVER ()] AS pod FROM oldest
)
UPDATE jobs SET state = 'claimed', pod = given.pod, claimed_at = now()
  FROM given WHERE jobs.id = given.id
RETURNING jobs.id, jobs.pod, account_id
"""

# One round trip, though it is several statements: each sees what was committed before it began, so
# the sum is taken after the lock. Accounts are tried in turn from one the caller chooses; one that
# another worker holds, or that is full, is passed over.
_CLAIM_WITHIN_LIMITS = """
CREATE FUNCTION claim_within_limits(
    first integer, by text, OUT id bigint, OUT pod text, OUT account_id integer
) LANGUAGE plpgsql AS $$
DECLARE
    a accounts;
    u record;
BEGIN
    FOR turn IN 0 .. 2 * (SELECT count(*) FROM accounts) LOOP
        SELECT * INTO a FROM accounts WHERE accounts.id >= first ORDER BY accounts.id LIMIT 1
           FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            first := 0;
            CONTINUE;
        END IF;
        first := a.id + 1;
        SELECT count(*) AS runners, coalesce(sum(vcpu_milli), 0) AS vcpu_milli,
               coalesce(sum(memory_mib), 0) AS memory_mib
          INTO u FROM jobs j WHERE j.account_id = a.id AND j.state = 'claimed';
        IF u.runners + 1 > a.max_runners OR u.vcpu_milli + 2000 > a.max_vcpu_milli
           OR u.memory_mib + 8192 > a.max_memory_mib THEN
            CONTINUE;
        END IF;
        UPDATE jobs j SET state = 'claimed', pod = by, claimed_at = now()
         WHERE j.id = (SELECT q.id FROM jobs q WHERE q.account_id = a.id AND q.state = 'queued'
                        ORDER BY q.queued_at, q.id LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING j.id, j.pod, j.account_id INTO id, pod, account_id;
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END $$
"""


def _claims(rows: Sequence[Any]) -> list[Claimed]:
    return [Claimed(row["id"], row["pod"], row["account_id"]) for row in rows]


class SkipLocked(Engine):
    name = "skip_locked"
    title = "SKIP LOCKED, one by one"
    indexes: ClassVar[Sequence[str]] = (_OLDEST_FIRST,)

    async def fill(self) -> list[Claimed]:
        self._opened: list[Any] = []
        self._pods = (f"pod-{number}" for number in itertools.count(1_000_000))
        await self.admin.execute(_SCHEMA)
        await self.admin.executemany(
            "INSERT INTO accounts (id, max_runners) VALUES ($1, $2)",
            [
                (account, self.cell.limit_of(account))
                for account in range(1, self.cell.accounts + 1)
            ],
        )
        busy = await self.admin.fetch(_QUEUE, self.cell.busy(), "claimed")
        await self.admin.execute(_QUEUE, self.cell.queued(), "queued")
        for index in self.indexes:
            await self.admin.execute(index)
        return _claims(busy)

    async def use(self, workers: int) -> None:
        while len(self._opened) < workers:
            self._opened.append(await asyncpg.connect(self.url))
        self._sessions = self._opened[:workers]

    async def leave(self) -> None:
        for session in self._opened:
            await session.close()

    async def section(self) -> Section:
        return await race([self._worker(session) for session in self._sessions], read=_claims)

    def _worker(self, session: Any) -> Ask:
        return lambda: session.fetch(_CLAIM_ONE, next(self._pods))

    async def recycle(self, *, started: Sequence[Claimed], ended: Sequence[Claimed]) -> None:
        async with self.admin.transaction():
            await self.admin.execute(_END, [claim.job for claim in ended])
            await self.admin.execute(_QUEUE, [claim.account for claim in started], "queued")

    async def depth(self) -> int:
        return int(await self.admin.fetchval(_DEPTH))

    async def used(self) -> dict[int, int]:
        return dict(await self.admin.fetch(_USED))

    async def marked(self, claims: Sequence[Claimed]) -> int:
        return int(
            await self.admin.fetchval(
                _MARKED, [claim.job for claim in claims], [claim.pod for claim in claims]
            )
        )


class SkipLockedBatches(SkipLocked):
    name = "skip_locked_batches"
    title = f"SKIP LOCKED, {BATCH} at a time"

    async def section(self) -> Section:
        workers = [self._worker(session) for session in self._sessions]
        return await race(workers, size=BATCH, read=_claims)

    def _worker(self, session: Any) -> Ask:
        return lambda: session.fetch(_CLAIM_BATCH, list(itertools.islice(self._pods, BATCH)))


class AccountLock(SkipLocked):
    name = "account_lock"
    title = "lock the account, sum, claim"
    indexes = (
        "CREATE INDEX ON jobs (account_id, queued_at, id) WHERE state = 'queued'",
        "CREATE INDEX ON jobs (account_id) WHERE state = 'claimed'",
        _CLAIM_WITHIN_LIMITS,
    )

    async def fill(self) -> list[Claimed]:
        self._turns = itertools.count()
        return await super().fill()

    def _worker(self, session: Any) -> Ask:
        return lambda: session.fetch(
            "SELECT * FROM claim_within_limits($1, $2) WHERE id IS NOT NULL",
            next(self._turns) % self.cell.accounts + 1,
            next(self._pods),
        )
