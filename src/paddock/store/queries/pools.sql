-- Pools and demand keys.

-- name: apply
-- Make a pool, or change the one of that name.
INSERT INTO pools AS p (name, labels, shape, vcpu_milli, memory_mib, max_runners, spec, spec_hash,
                        runner_group_id, created_at, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)
ON CONFLICT (name) WHERE state <> 'deleted' DO UPDATE
   SET labels = excluded.labels, shape = excluded.shape, vcpu_milli = excluded.vcpu_milli,
       memory_mib = excluded.memory_mib, max_runners = excluded.max_runners, spec = excluded.spec,
       spec_hash = excluded.spec_hash, runner_group_id = excluded.runner_group_id,
       changed_at = excluded.changed_at, state = 'active'
RETURNING id

-- name: key
-- The demand key of a job: the pool's runner group unless the account has its own.
INSERT INTO demand_keys (account_id, repository_id, runner_group_id, pool_id)
SELECT $1, $2, coalesce(g.runner_group_id, p.runner_group_id), p.id
  FROM pools p LEFT JOIN pool_groups g ON g.pool_id = p.id AND g.account_id = $1
 WHERE p.id = $3
ON CONFLICT (account_id, repository_id, runner_group_id, pool_id) DO UPDATE SET pool_id = excluded.pool_id
RETURNING id

-- name: pause
-- No new claims from a pool; what runs goes on.
UPDATE pools SET paused_at = $2, paused_by = $3 WHERE id = $1 AND paused_at IS NULL RETURNING id

-- name: resume
-- Claims again.
UPDATE pools SET paused_at = NULL, paused_by = NULL WHERE id = $1 AND paused_at IS NOT NULL RETURNING id

-- name: note
-- A change to a pool.
INSERT INTO events (at, actor, pool_id, after, why) VALUES ($1, $2, $3, $4, $5)
