-- The matcher's reads and its one write, under its lock.

-- name: demand[]
-- Per key with demand or with runners: what it holds, and its oldest jobs that no supply is on its way
-- to. $1: how many Pods ask; $2: how many jobs to read per key (NULL: as many as a fair share needs).
-- The walk over the keys is a loose index scan: it costs one probe per key, whatever the queue's depth.
WITH RECURSIVE demanded (key_id) AS (
    (SELECT key_id FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL ORDER BY key_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.key_id FROM jobs j
             WHERE j.state = 'queued' AND j.key_id > d.key_id ORDER BY j.key_id LIMIT 1)
      FROM demanded d WHERE d.key_id IS NOT NULL
), held AS (
    SELECT key_id, count(*) AS runners, sum(vcpu_milli) AS vcpu_milli, sum(memory_mib) AS memory_mib,
           count(*) FILTER (WHERE state IN ('claimed', 'armed', 'running')) AS supply
      FROM runners
     WHERE key_id IS NOT NULL AND state <> 'gone'
     GROUP BY key_id
), depth (jobs) AS (
    SELECT coalesce($2, greatest(1, 2 * $1 / greatest(1, (SELECT count(*) FROM demanded WHERE key_id IS NOT NULL))))::int
)
SELECT key_id, coalesce(h.runners, 0) AS runners, coalesce(h.vcpu_milli, 0)::bigint AS vcpu_milli,
       coalesce(h.memory_mib, 0)::bigint AS memory_mib, unserved.queued_at, unserved.ids,
       coalesce(cardinality(unserved.ids), 0) = depth.jobs AS truncated
  FROM (SELECT key_id FROM demanded WHERE key_id IS NOT NULL) d
  FULL JOIN held h USING (key_id)
 CROSS JOIN depth
 CROSS JOIN LATERAL (
    SELECT array_agg(j.queued_at ORDER BY j.queued_at, j.id) AS queued_at,
           array_agg(j.id ORDER BY j.queued_at, j.id) AS ids
      FROM (SELECT queued_at, id FROM jobs
             WHERE state = 'queued' AND jobs.key_id = d.key_id
             ORDER BY queued_at, id OFFSET coalesce(h.supply, 0) LIMIT depth.jobs) j
 ) unserved
 ORDER BY key_id

-- name: terms[]
-- What binds each of the keys $1 at $2: its account, repository, pool, App, pauses and back-offs.
SELECT k.id AS key_id, k.account_id, k.pool_id, k.repository_id,
       a.weight, a.max_runners, a.max_vcpu_milli, a.max_memory_mib,
       r.max_runners AS repository_max_runners, r.max_vcpu_milli AS repository_max_vcpu_milli,
       r.max_memory_mib AS repository_max_memory_mib,
       i.app_id,
       a.paused_at IS NOT NULL OR p.paused_at IS NOT NULL OR p.state <> 'active' AS paused,
       EXISTS (SELECT FROM backoffs b WHERE b.until > $2 AND (b.scope, b.subject) IN (
           ('key', k.id), ('repository', k.repository_id), ('account', k.account_id), ('app', i.app_id))
       ) AS backing_off
  FROM demand_keys k
  JOIN accounts a ON a.id = k.account_id
  JOIN pools p ON p.id = k.pool_id
  LEFT JOIN repositories r ON r.id = k.repository_id
  LEFT JOIN LATERAL (SELECT app_id FROM installations i
                      WHERE i.account_id = a.id AND i.state = 'active' ORDER BY app_id LIMIT 1) i ON true
 WHERE k.id = ANY ($1)
 ORDER BY k.id

-- name: pools[]
-- What one runner of each pool $1 costs, and how many it may have.
SELECT id, vcpu_milli, memory_mib, max_runners FROM pools WHERE id = ANY ($1) ORDER BY id

-- name: mint_tokens[]
-- How many mints each App may make at $1: what its hour and its last sixty seconds leave; NULL is no limit.
SELECT a.id AS app_id,
       least(floor(tokens_at(b, $1))::int,
             a.mints_per_minute - (SELECT count(*) FROM mints m
                                    WHERE a.mints_per_minute IS NOT NULL AND m.app_id = a.id
                                      AND m.chosen_at > $1 - interval '60 seconds')::int) AS mints
  FROM apps a LEFT JOIN budgets b ON b.app_id = a.id AND b.bucket = 'mint'
 ORDER BY a.id

-- name: claim[]
-- Write all claims of a batch: the rows, the names, the tokens. A Pod that is no longer idle in the
-- generation it asked in is left out, and nothing is spent for it.
WITH wanted AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::int[], $4::text[], $5::bigint[])
        AS w (id, generation, key_id, name, hint_job_id)
), claimed AS (
    UPDATE runners r
       SET state = 'claimed', generation = r.generation + 1, version = r.version + 1,
           since = $6, actor = $7, why = 'matched with demand', evidence = NULL,
           key_id = w.key_id, account_id = k.account_id, name = w.name, hint_job_id = w.hint_job_id,
           claimed_at = $6, mint_deadline = $8
      FROM wanted w JOIN demand_keys k ON k.id = w.key_id
     WHERE r.id = w.id AND r.state = 'idle' AND r.generation = w.generation
    RETURNING r.id, r.generation, r.name, r.key_id, r.account_id, r.hint_job_id, r.mint_deadline
), served AS (
    SELECT c.*, k.runner_group_id, k.pool_id, i.app_id, i.github_app, i.github_id AS installation_id,
           h.name AS host, a.login, rep.full_name AS repository
      FROM claimed c
      JOIN demand_keys k ON k.id = c.key_id
      JOIN accounts a ON a.id = c.account_id
      JOIN hosts h ON h.id = a.host_id
      LEFT JOIN repositories rep ON rep.id = k.repository_id
      JOIN LATERAL (SELECT i.app_id, i.github_id, ap.github_id AS github_app
                      FROM installations i JOIN apps ap ON ap.id = i.app_id
                     WHERE i.account_id = a.id AND i.state = 'active' ORDER BY i.app_id LIMIT 1) i ON true
), named AS (
    INSERT INTO mints (name, runner_id, generation, key_id, app_id, chosen_at)
    SELECT name, id, generation, key_id, app_id, $6 FROM served
), spent AS (
    UPDATE budgets b
       SET tokens = tokens_at(b, $6) - s.mints, as_of = greatest(b.as_of, $6)
      FROM (SELECT app_id, count(*) AS mints FROM served GROUP BY app_id) s
     WHERE b.app_id = s.app_id AND b.bucket = 'mint'
)
SELECT s.*, p.labels FROM served s JOIN pools p ON p.id = s.pool_id ORDER BY s.id

-- name: claim_of
-- The claim of runner $1, as its mint needs it.
SELECT r.id, r.generation, r.name, r.key_id, r.account_id, r.hint_job_id, r.mint_deadline, k.runner_group_id,
       m.app_id, ap.github_id AS github_app, i.github_id AS installation_id, h.name AS host, a.login,
       rep.full_name AS repository, p.labels
  FROM runners r
  JOIN mints m ON m.name = r.name
  JOIN demand_keys k ON k.id = r.key_id
  JOIN pools p ON p.id = k.pool_id
  JOIN accounts a ON a.id = r.account_id
  JOIN hosts h ON h.id = a.host_id
  JOIN apps ap ON ap.id = m.app_id
  JOIN LATERAL (SELECT github_id FROM installations i WHERE i.account_id = a.id AND i.app_id = m.app_id
                 ORDER BY i.state, i.read_at DESC LIMIT 1) i ON true
  LEFT JOIN repositories rep ON rep.id = k.repository_id
 WHERE r.id = $1
