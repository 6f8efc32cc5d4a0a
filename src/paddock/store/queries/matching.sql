-- The matcher's statements under its lock. Its first and its last message are routines of the schema, `demand` and
-- `claim` (migrations/0001_schema.sql, Matching).

-- name: demand
-- The demand for $1 Pods, at $3; $2 jobs per key (NULL: as many as a fair share needs). Takes the matcher's lock; the
-- server ends a matcher's session that is silent for $4 (NULL: without the lock, for readers).
SELECT demand($1, $2, $3, $4)

-- name: terms[]
-- What binds keys $1 (account, repository, pool, installation, pauses) and what a claim of them needs to be minted.
-- Installations of the Apps $2 count, of all if that is empty.
SELECT k.id, k.account_id, k.pool_id, k.repository_id, k.runner_group_id,
       a.weight, a.max_runners, a.max_vcpu_milli, a.max_memory_mib, a.login, ho.name AS host,
       r.max_runners AS repository_max_runners, r.max_vcpu_milli AS repository_max_vcpu_milli,
       r.max_memory_mib AS repository_max_memory_mib, r.full_name AS repository,
       p.vcpu_milli, p.memory_mib, p.max_runners AS pool_max_runners, p.labels,
       p.name AS pool,
       s.app_id, s.installation_id, ap.github_id AS github_app,
       a.paused_at IS NOT NULL OR p.paused_at IS NOT NULL OR p.state <> 'active'
       OR EXISTS (SELECT FROM dispatch_pauses) AS paused,
       coalesce((k.repository_id IS NOT NULL) <> at.at_repository OR k.runner_group_id <> at.runner_group_id,
                false) AS misplaced,
       k.repository_id IS NULL
       AND EXISTS (SELECT FROM repositories l WHERE l.account_id = k.account_id AND l.limited) AS beside_limits,
       coalesce(r.limited AND r.transferred, false) AS transferred
  FROM demand_keys k
  JOIN accounts a ON a.id = k.account_id
  JOIN hosts ho ON ho.id = a.host_id
  JOIN pools p ON p.id = k.pool_id
  LEFT JOIN repositories r ON r.id = k.repository_id
  LEFT JOIN LATERAL (SELECT app_id, github_id AS installation_id FROM installations i
                      WHERE i.account_id = a.id AND i.state = 'active'
                        AND (cardinality($2::int[]) = 0 OR i.app_id = ANY ($2))
                      ORDER BY app_id LIMIT 1) s ON true
  LEFT JOIN apps ap ON ap.id = s.app_id
  LEFT JOIN LATERAL registration(k.account_id, k.pool_id) at ON true
 WHERE k.id = ANY ($1)
 ORDER BY k.id

-- name: wider_use[]
-- What limited repositories use of the runners that are registered at their organisations.
SELECT repository_id, runners, vcpu_milli, memory_mib FROM wider_use ORDER BY repository_id

-- name: use_before_transfer[]
-- What repositories $1 use of runners that register there for the account to which each belonged before. Runners of keys
-- $2 are left out.
SELECT k.repository_id, count(*)::int AS runners, sum(r.vcpu_milli)::bigint AS vcpu_milli,
       sum(r.memory_mib)::bigint AS memory_mib
  FROM demand_keys k
  JOIN runners r ON r.account_id = k.account_id AND r.key_id = k.id AND r.gone_at IS NULL
 WHERE k.repository_id = ANY ($1) AND k.id <> ALL ($2)
 GROUP BY k.repository_id
 ORDER BY k.repository_id

-- name: move_misplaced
-- Move waiting jobs of accounts $1 whose key does not match their runners' registration.
SELECT move_misplaced_jobs($1)

-- name: claim
-- Write the claims of runners $1 in generations $2 for keys $3 of accounts $4 by Apps $5 through installations $6 under
-- names $7, with jobs $8 as hints, at $9, by $10, to be minted by $11; commit; release the lock. Returns the runners
-- that were left out. Lists of numbers are passed as text, because the driver encodes number arrays more slowly.
CALL claim($1::text::uuid[], $2::text::int[], $3::text::int[], $4::text::int[], $5::text::int[], $6::text::bigint[], $7,
           $8::text::bigint[], $9, $10, $11, NULL)

-- name: claim_of
-- The claim of runner $1, as its mint needs it.
SELECT r.id, r.generation, r.name, r.key_id, r.account_id, r.hint_job_id, r.mint_deadline, k.runner_group_id,
       m.app_id, ap.github_id AS github_app, i.github_id AS installation_id, h.name AS host, a.login,
       rep.full_name AS repository, p.labels, p.name AS pool
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
