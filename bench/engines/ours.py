"""paddock's matcher: `PgStore.match`, with 64 Pods waiting at a time.

This module writes in bulk what the store writes one Pod at a time when Pods are heard, armed, busy and
gone. The tables' own checks and events apply to all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from bench.engines.base import BATCH, SECTION, Claimed, Engine, Section, race
from paddock.domain.accounts import MintBudget
from paddock.domain.ids import PoolId, RunnerId
from paddock.domain.limits import Resources
from paddock.domain.names import PoolName, pod_name
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.runners.runner import Match, WaitingPod
from paddock.store.database import Database
from paddock.store.migrate import migrate
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds

#: The budget is read and spent as usual, and never binds; GitHub's would.
_MINTS = MintBudget(per_minute=10**9, per_hour=10**9)
_POOL = PoolName("linux")

_ACCOUNTS = """
WITH new AS (
    INSERT INTO accounts (host_id, github_id, login, kind, max_runners, created_at)
    SELECT $1, position, 'org-' || position, 'organization', max_runners, $4
      FROM unnest($3::int[]) WITH ORDINALITY AS a (max_runners, position)
     ORDER BY position
    RETURNING id, github_id
), installed AS (
    INSERT INTO installations (host_id, github_id, app_id, account_id, state, all_repositories, read_at)
    SELECT $1, github_id, $2, id, 'active', true, $4 FROM new
), repositories AS (
    INSERT INTO repositories (host_id, github_id, account_id, full_name)
    SELECT $1, github_id, id, 'org-' || id || '/repo' FROM new
)
INSERT INTO demand_keys (account_id, runner_group_id, pool_id) SELECT id, 1, $5 FROM new
"""
_QUEUE = """
INSERT INTO jobs (host_id, id, account_id, repository_id, run_id, run_attempt, name, workflow, labels,
                  state, key_id, created_at, started_at, seen_at, since, actor, why)
SELECT r.host_id, $1 + position, r.account_id, r.id, ($1 + position) / 8, 1,
       'build (' || position || ')', 'ci', '{self-hosted,linux}', $3::job_state, k.id,
       $4::timestamptz + ($1 + position) * interval '1 ms',
       CASE WHEN $3::job_state = 'in_progress' THEN $4::timestamptz END, $4, $4, 'bench', 'queued'
  FROM unnest($2::int[]) WITH ORDINALITY AS new (account_id, position)
  JOIN repositories r USING (account_id)
  JOIN demand_keys k USING (account_id)
RETURNING id, account_id
"""
_IDLE = """
INSERT INTO runners (id, pool_id, shape, vcpu_milli, memory_mib, spec_hash, pod_name, pod_uid,
                     created_at, heard_at, state, since, actor, why)
SELECT new.id, p.id, p.shape, p.vcpu_milli, p.memory_mib, p.spec_hash, new.pod_name, new.id::text,
       $4, $4, 'idle', $4, 'bench', 'heard'
  FROM pools p, unnest($2::uuid[], $3::text[]) AS new (id, pod_name)
 WHERE p.id = $1
"""
_CLAIM = """
UPDATE runners r
   SET state = 'claimed', generation = 1, version = version + 1, since = $4, why = 'seeded',
       key_id = k.id, account_id = k.account_id, name = r.pod_name || '-1', claimed_at = $4,
       mint_deadline = $4, hint_job_id = c.job_id
  FROM unnest($1::uuid[], $2::int[], $3::bigint[]) AS c (id, account_id, job_id)
  JOIN demand_keys k USING (account_id)
 WHERE r.id = c.id
"""
_ARM = """
UPDATE runners r
   SET state = 'armed', version = version + 1, since = $3, actor = 'bench', why = 'armed',
       github_id = c.job_id, delivery_id = c.id, jit = 'sealed', jit_key = 'k1', armed_at = $3,
       mint_deadline = NULL
  FROM unnest($1::uuid[], $2::bigint[]) AS c (id, job_id)
 WHERE r.id = c.id AND r.state = 'claimed'
"""
# The matcher counts the mints of the last minute, some 180 at most when GitHub's limit binds. Here they
# are made an hour old, or it would count as many as no App can make.
_SETTLE = """
UPDATE mints
   SET state = 'settled', outcome = 'bench', settled_at = $2::timestamptz - interval '59 minutes',
       chosen_at = chosen_at - interval '1 hour'
 WHERE runner_id = ANY ($1)
"""
_OCCUPY = """
UPDATE runners r
   SET state = 'busy', version = version + 1, since = $3, actor = 'bench', why = 'busy',
       busy_at = $3, job_id = c.job_id, acknowledged_at = $3, jit = NULL, jit_key = NULL
  FROM unnest($1::uuid[], $2::bigint[]) AS c (id, job_id)
 WHERE r.id = c.id AND r.state = 'armed'
"""
_START = """
UPDATE jobs SET state = 'in_progress', started_at = $3, since = $3, actor = 'bench', why = 'started'
 WHERE host_id = $1 AND id = ANY ($2)
"""
_JUDGE = """
INSERT INTO verdicts (runner_id, ending, abnormal, why, ended_at, evidence, written_at)
SELECT id, 'completed', false, 'bench', $2, '{}', $2 FROM unnest($1::uuid[]) AS id
"""
_CONCLUDE = """
UPDATE runners
   SET state = 'gone', version = version + 1, since = $2, actor = 'bench', why = 'gone', gone_at = $2
 WHERE id = ANY ($1) AND state = 'busy'
"""
_COMPLETE = """
UPDATE jobs
   SET state = 'completed', completed_at = $3, conclusion = 'success', since = $3, actor = 'bench',
       why = 'completed'
 WHERE host_id = $1 AND id = ANY ($2)
"""
_DEPTH = "SELECT count(*) FROM jobs WHERE state = 'queued'"
_USED = """
SELECT account_id, count(*)
  FROM runners WHERE key_id IS NOT NULL AND state <> 'gone' GROUP BY account_id
"""
_MARKED = """
SELECT count(*)
  FROM unnest($1::bigint[], $2::uuid[]) AS claim (job_id, id)
  JOIN runners r ON r.id = claim.id AND r.hint_job_id = claim.job_id
  JOIN mints m ON m.runner_id = r.id AND m.generation = r.generation
  JOIN events e ON e.runner_id = r.id AND e.generation = r.generation
 WHERE r.state = 'claimed'
"""


def _claims(match: Match) -> list[Claimed]:
    return [Claimed(claim.hint or 0, str(claim.runner), claim.account) for claim in match.claims]


class Ours(Engine):
    name = "ours"
    title = f"paddock, {BATCH} Pods waiting"
    #: Replicas. One matches at a time; the other's claims are being synced to disk meanwhile.
    workers = (1, 2)

    async def fill(self) -> list[Claimed]:
        self._database = await Database.connect(self.url)
        await migrate(self._database)
        self._ids = SystemIds()
        self._store = PgStore(
            self._database, clock=SystemClock(), ids=self._ids, actor="bench/matcher"
        )
        self._begun = datetime.now(UTC)
        self._last_job = 0
        self._idle: list[WaitingPod] = []
        self._host = await self._store.ensure_host("github.com", api_url="https://api.github.com")
        app = await self._store.ensure_app(self._host, 1, mints=_MINTS)
        self._pool = await self._store.apply_pool(
            PoolFacts(
                name=_POOL,
                labels=("self-hosted", "linux"),
                shape="gated",
                cost=Resources(vcpu_milli=2000, memory_mib=8192),
                max_runners=None,
                spec="{}",
                spec_hash="v1",
            )
        )
        limits = [self.cell.limit_of(account) for account in range(1, self.cell.accounts + 1)]
        await self.admin.execute(_ACCOUNTS, self._host, app, limits, self._begun, self._pool)
        busy = await self._seed_busy()
        await self._queue(self.cell.queued(), "queued")
        await self._hear(SECTION)
        return busy

    async def _seed_busy(self) -> list[Claimed]:
        jobs = await self._queue(self.cell.busy(), "in_progress")
        pods = await self._hear(len(jobs))
        self._idle.clear()
        claims = [
            Claimed(job, str(pod.id), account)
            for (job, account), pod in zip(jobs, pods, strict=True)
        ]
        await self.admin.execute(
            _CLAIM,
            [pod.id for pod in pods],
            [claim.account for claim in claims],
            [claim.job for claim in claims],
            self._begun,
        )
        await self._occupy(claims, self._begun)
        return claims

    async def use(self, workers: int) -> None:
        self._replicas = workers

    async def leave(self) -> None:
        await self._database.close()

    async def section(self) -> Section:
        pods = deque(self._idle[n : n + BATCH] for n in range(0, SECTION, BATCH))
        self._idle = []
        return await race(
            [lambda: self._store.match(pods.popleft())] * self._replicas, size=BATCH, read=_claims
        )

    async def recycle(self, *, started: Sequence[Claimed], ended: Sequence[Claimed]) -> None:
        now = datetime.now(UTC)
        gone = [UUID(claim.pod) for claim in ended]
        async with self.admin.transaction():
            await self._occupy(started, now)
            await self.admin.execute(_SETTLE, [UUID(claim.pod) for claim in started], now)
            await self.admin.execute(_START, self._host, [claim.job for claim in started], now)
            await self.admin.execute(_JUDGE, gone, now)
            await self.admin.execute(_CONCLUDE, gone, now)
            await self.admin.execute(_COMPLETE, self._host, [claim.job for claim in ended], now)
            await self._queue([claim.account for claim in started], "queued")
            await self._hear(SECTION)

    async def _occupy(self, claims: Sequence[Claimed], now: datetime) -> None:
        pods, jobs = [UUID(claim.pod) for claim in claims], [claim.job for claim in claims]
        await self.admin.execute(_ARM, pods, jobs, now)
        await self.admin.execute(_OCCUPY, pods, jobs, now)

    async def _queue(self, accounts: Sequence[int], state: str) -> list[tuple[int, int]]:
        rows = await self.admin.fetch(_QUEUE, self._last_job, accounts, state, self._begun)
        self._last_job += len(accounts)
        return [(row["id"], row["account_id"]) for row in rows]

    async def _hear(self, count: int) -> list[WaitingPod]:
        pods = [
            WaitingPod(
                id=RunnerId(self._ids.uuid()),
                pool=PoolId(self._pool),
                pod_name=pod_name(_POOL, self._ids.suffix(10)),
                generation=0,
            )
            for _ in range(count)
        ]
        await self.admin.execute(
            _IDLE,
            self._pool,
            [pod.id for pod in pods],
            [pod.pod_name for pod in pods],
            datetime.now(UTC),
        )
        self._idle += pods
        return pods

    async def depth(self) -> int:
        return int(await self.admin.fetchval(_DEPTH))

    async def used(self) -> dict[int, int]:
        return dict(await self.admin.fetch(_USED))

    async def marked(self, claims: Sequence[Claimed]) -> int:
        return int(
            await self.admin.fetchval(
                _MARKED, [claim.job for claim in claims], [UUID(claim.pod) for claim in claims]
            )
        )
