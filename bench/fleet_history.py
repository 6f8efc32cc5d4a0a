"""A fleet's history: finished jobs, each with its runner, name, verdict, events and delivery; and
runners that are busy. It is written in bulk, with the same rows that the store writes one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Organisations that paddock knows, by their names.
_REPOSITORIES = """
INSERT INTO repositories (host_id, github_id, account_id, full_name)
SELECT a.host_id, r.github_id, a.id, r.full_name
  FROM unnest($1::bigint[], $2::text[]) AS r (github_id, full_name)
  JOIN accounts a ON a.login = split_part(r.full_name, '/', 1)
 ORDER BY a.id
"""
#: Every account has jobs in every pool.
_KEYS = """
INSERT INTO demand_keys (account_id, runner_group_id, pool_id)
SELECT a.id, 1, p.id FROM accounts a CROSS JOIN pools p ORDER BY a.id, p.id
ON CONFLICT DO NOTHING
"""
_PLACES = """
CREATE TEMP TABLE places AS
SELECT row_number() OVER (ORDER BY k.id) - 1 AS place, k.id AS key_id, k.account_id, k.pool_id,
       p.name AS pool, r.host_id, r.id AS repository_id, i.app_id, i.github_id AS installation_id
  FROM demand_keys k
  JOIN pools p ON p.id = k.pool_id
  JOIN repositories r ON r.account_id = k.account_id
  JOIN installations i ON i.account_id = k.account_id
"""
#: As many lives as `count`, numbered from `first` on; the first was `age` ago, all within `span`. Their
#: ids at GitHub are far from those that the played GitHub gives out.
_LIVES = """
CREATE TEMP TABLE lives AS
SELECT n, ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id, p.*,
       1000000000000 + n AS job_id, p.pool || '-past' || n AS pod_name, t.at AS began,
       t.at + interval '2 minutes' AS ended
  FROM generate_series({first}::bigint, {first} + {count} - 1) AS n
 CROSS JOIN LATERAL (
    SELECT now() - interval '{age}' + (n - {first}) * (interval '{span}' / {count})) AS t (at)
  JOIN places p ON p.place = n * 7919 % (SELECT count(*) FROM places)
"""
_RUNNERS = """
INSERT INTO runners (id, pool_id, shape, vcpu_milli, memory_mib, spec_hash, pod_name, pod_uid,
                     created_at, heard_at, state, generation, version, since, actor, why, key_id,
                     account_id, hint_job_id, name, claimed_at, github_id, delivery_id, armed_at,
                     acknowledged_at, busy_at, job_id, done_at, gone_at, started)
SELECT id, pool_id, 'gated', 0, 0, 'v1', pod_name, pod_name,
       began, began, CASE WHEN {ended} THEN 'gone' ELSE 'busy' END::runner_state, 1, 7,
       CASE WHEN {ended} THEN ended ELSE began END, 'bench', 'bench', key_id,
       account_id, job_id, pod_name || '-1', began, job_id, id, began,
       began, began, job_id, CASE WHEN {ended} THEN ended END, CASE WHEN {ended} THEN ended END, true
  FROM lives ORDER BY n
"""
_MINTS = """
INSERT INTO mints (name, runner_id, generation, key_id, app_id, installation_id, chosen_at, state,
                   github_id, outcome, settled_at)
SELECT pod_name || '-1', id, 1, key_id, app_id, installation_id, began,
       CASE WHEN {ended} THEN 'settled' ELSE 'minted' END::mint_state,
       job_id, CASE WHEN {ended} THEN 'was gone' END, CASE WHEN {ended} THEN ended END
  FROM lives ORDER BY n
"""
_JOBS = """
INSERT INTO jobs (host_id, id, account_id, repository_id, run_id, run_attempt, name, workflow, labels,
                  state, key_id, created_at, started_at, completed_at, conclusion, executor_id,
                  executor_name, runner_id, seen_at, since, actor, why)
SELECT host_id, job_id, account_id, repository_id, job_id / 8, 1, 'build', 'CI',
       ARRAY['self-hosted', pool],
       CASE WHEN {ended} THEN 'completed' ELSE 'in_progress' END::job_state, key_id, began, began,
       CASE WHEN {ended} THEN ended END, CASE WHEN {ended} THEN 'success' END, job_id,
       pod_name || '-1', id, began, began, 'bench', 'bench'
  FROM lives ORDER BY n
"""
_VERDICTS = """
INSERT INTO verdicts (runner_id, ending, abnormal, why, exit_code, ended_at, evidence, written_at)
SELECT id, 'completed', false, 'bench', 0, ended, '{{"job": "yes", "lost_communication": "no"}}', ended
  FROM lives ORDER BY n
"""
_EVENTS = """
INSERT INTO events (at, actor, runner_id, host_id, job_id, before, after, generation, why)
SELECT ended, 'bench', id, NULL, NULL, 'done', 'gone', 1, 'bench' FROM lives
 UNION ALL
SELECT ended, 'bench', NULL, host_id, job_id, 'in_progress', 'completed', NULL, 'bench' FROM lives
 ORDER BY 1
"""
_DELIVERIES = """
INSERT INTO deliveries (guid, host_id, app_id, event, action, installation_id, received_at, state,
                        not_before, settled_at)
SELECT 'past-' || n, host_id, app_id, 'workflow_job', 'completed', installation_id, ended, 'applied',
       ended, ended
  FROM lives ORDER BY n
"""
_BUSY = """
SELECT r.pod_name, p.name AS pool
  FROM runners r JOIN pools p ON p.id = r.pool_id WHERE r.gone_at IS NULL ORDER BY r.id
"""


async def write_history(
    connection: Any, repositories: Sequence[tuple[int, str]], *, jobs: int, busy: int
) -> list[tuple[str, str]]:
    """So many finished jobs, young enough to be kept, and so many runners that have been busy for five
    minutes, of `repositories` (GitHub's id, full name). Answers the busy Pods, each with its pool."""
    await connection.execute(_REPOSITORIES, *map(list, zip(*repositories, strict=True)))
    await connection.execute(_KEYS)
    await connection.execute(_PLACES)
    # Triggers check steps, write events and wake loops: that is for single steps.
    await connection.execute("SET session_replication_role = replica")
    if jobs:
        await _live(connection, count=jobs, first=1, age="13 days", span="12 days")
        for statement in (_RUNNERS, _MINTS, _JOBS, _VERDICTS, _EVENTS, _DELIVERIES):
            await connection.execute(statement.format(ended="true"))
    if busy:
        await _live(connection, count=busy, first=jobs + 1, age="5 minutes", span="1 second")
        for statement in (_RUNNERS, _MINTS, _JOBS):
            await connection.execute(statement.format(ended="false"))
    await connection.execute("VACUUM (ANALYZE)")
    return [(row["pod_name"], row["pool"]) for row in await connection.fetch(_BUSY)]


async def _live(connection: Any, **of: object) -> None:
    await connection.execute("DROP TABLE IF EXISTS lives")
    await connection.execute(_LIVES.format_map(of))
