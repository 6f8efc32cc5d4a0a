"""What loops read every few seconds does not grow with the history (I77)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final

import msgspec
import pytest

from paddock.store.database import Database
from paddock.store.sql import named
from tests.support.world import World

HISTORY = 20_000
LIVE = 50

#: Runners with a completed job and a verdict, of which three never started, and runners that are busy.
_RUNNERS = """
INSERT INTO runners (id, pool_id, shape, vcpu_milli, memory_mib, spec_hash, pod_name, pod_uid,
                     created_at, state, since, actor, why, generation, key_id, account_id, name,
                     claimed_at, hint_job_id, github_id, delivery_id, armed_at, acknowledged_at,
                     busy_at, job_id, node, heard_at, gone_at)
SELECT gen_random_uuid(), $1, 'gated', 0, 0, '', 'linux-' || n, 'uid-' || n, t.at,
       CASE WHEN n > $5::int THEN 'busy' ELSE 'gone' END::runner_state, t.at, 'test', 'test', 1, $2, $3,
       'linux-' || n || '-1', t.at, n, n, gen_random_uuid(), t.at, t.at, t.at, n, 'node', t.at,
       CASE WHEN n <= $5::int THEN t.at + interval '1 minute' END
  FROM generate_series(1, $5::int + $6::int) AS n
 CROSS JOIN LATERAL (SELECT $4::timestamptz - interval '2 days' + n * interval '8 s' AS at) t
"""
_JOBS = """
INSERT INTO jobs (host_id, id, account_id, repository_id, run_id, run_attempt, name, workflow, labels,
                  state, key_id, created_at, started_at, completed_at, conclusion, runner_id, seen_at,
                  since, actor, why)
SELECT a.host_id, r.github_id, r.account_id, 1, 1, 1, 'build', 'ci', '{linux}',
       CASE WHEN r.gone_at IS NULL THEN 'in_progress' ELSE 'completed' END::job_state, r.key_id,
       r.since, r.since, r.gone_at, CASE WHEN r.gone_at IS NOT NULL THEN 'success' END, r.id, r.since,
       r.since, 'test', 'test'
  FROM runners r JOIN accounts a ON a.id = r.account_id
"""
_VERDICTS = """
INSERT INTO verdicts (runner_id, ending, abnormal, why, node, ended_at, evidence, written_at)
SELECT id, CASE WHEN rank() OVER (ORDER BY gone_at DESC) <= 3 THEN 'never-started' ELSE 'completed' END,
       false, 'test', node, gone_at, '{"job": "yes", "lost_communication": "no"}', gone_at
  FROM runners WHERE gone_at IS NOT NULL
"""


@pytest.fixture
async def world(database: Database) -> World:
    world = World(database)
    await world.begin()
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    async with database.acquire() as connection:
        # Triggers check and announce single steps.
        await connection.execute("SET session_replication_role = replica")
        await connection.execute(_RUNNERS, pool, key, account, world.clock.now(), HISTORY, LIVE)
        await connection.execute(_JOBS)
        await connection.execute(_VERDICTS)
        await connection.execute("ANALYZE")
        await connection.execute("RESET session_replication_role")
    return world


def _literal(value: object) -> str:
    if isinstance(value, list):
        return f"'{{{','.join(value)}}}'::text[]"
    return f"'{value.isoformat()}'::timestamptz" if isinstance(value, datetime) else str(value)


def _visited(node: dict[str, Any]) -> Iterator[float]:
    """Rows of tables that a plan visited, whether or not they were of any use. A scan of a kind that
    paddock's sessions avoid means that no index serves: with more rows it would read them all."""
    if node.get("Disabled") and node.get("Relation Name") in ("jobs", "runners", "verdicts"):
        yield inf
    if "Relation Name" in node:
        rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        yield rows * node["Actual Loops"]
    for below in node.get("Plans", ()):
        yield from _visited(below)


_READ: Final[Sequence[tuple[str, str, Mapping[str, object]]]] = (
    ("dispatch", "steps", {"after": timedelta(seconds=5), "until": timedelta()}),
    ("recovery", "late_news", {"since": timedelta(days=3), "limit": 100}),
    ("recovery", "job_words", {}),
    ("recovery", "balances", {"recent": timedelta(minutes=15), "now": timedelta()}),
    ("runners", "live_marks", {}),
    ("sizing", "failed_starts", {"since": timedelta(hours=3.6), "of_images": ["pulling"]}),
)


async def test_what_loops_read_all_the_time_reads_no_history(world: World) -> None:
    """By the plans that paddock's sessions make."""
    now, visited = world.clock.now(), {}
    for noun, name, how in _READ:
        values = {
            key: now - value if isinstance(value, timedelta) else value
            for key, value in how.items()
        }
        text, *given = named(noun)[name](**values)
        arguments = f"({', '.join(map(_literal, given))})" if given else ""
        async with world.database.transaction() as connection:
            await connection.execute(f"PREPARE {name} AS {text}")
            plan = await connection.fetchval(
                f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE {name}{arguments}"
            )
            await connection.execute(f"DEALLOCATE {name}")
        visited[name] = sum(_visited(msgspec.json.decode(plan)[0]["Plan"]))
    assert {name: rows for name, rows in visited.items() if rows > 10 * LIVE} == {}
