-- Pools.

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

-- name: pause
-- No new claims from a pool; what runs goes on.
UPDATE pools SET paused_at = $2, paused_by = $3 WHERE id = $1 AND paused_at IS NULL RETURNING id

-- name: resume
-- Claims again.
UPDATE pools SET paused_at = NULL, paused_by = NULL WHERE id = $1 AND paused_at IS NOT NULL RETURNING id

-- name: note
-- A change to a pool.
INSERT INTO events (at, actor, pool_id, after, why) VALUES ($1, $2, $3, $4, $5)
