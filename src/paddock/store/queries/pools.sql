-- Pools.

-- name: apply
-- Make a pool, or change the one of that name; no row if it is described as it was (I84).
INSERT INTO pools AS p (name, labels, shape, vcpu_milli, memory_mib, max_runners, spec, spec_hash,
                        runner_group, runner, created_at, changed_at)
VALUES (:name, :labels, :shape, :vcpu_milli, :memory_mib, :max_runners, :spec, :spec_hash, :runner_group, :runner,
        :now, :now)
ON CONFLICT (name) WHERE state <> 'deleted' DO UPDATE
   SET labels = excluded.labels, shape = excluded.shape, vcpu_milli = excluded.vcpu_milli,
       memory_mib = excluded.memory_mib, max_runners = excluded.max_runners, spec = excluded.spec,
       spec_hash = excluded.spec_hash, runner_group = excluded.runner_group, runner = excluded.runner,
       changed_at = excluded.changed_at, state = 'active'
 WHERE (p.labels, p.shape, p.vcpu_milli, p.memory_mib, p.max_runners, p.spec, p.spec_hash, p.runner_group,
        p.runner, p.state)
       IS DISTINCT FROM (excluded.labels, excluded.shape, excluded.vcpu_milli, excluded.memory_mib, excluded.max_runners,
                         excluded.spec, excluded.spec_hash, excluded.runner_group, excluded.runner, 'active')
RETURNING id

-- name: list[]
-- All that are not deleted, with the runners they have by state.
SELECT p.id, p.name, p.state, p.spec, p.labels, p.shape, p.vcpu_milli, p.memory_mib, p.max_runners, p.runner_group, p.runner,
       p.paused_at, p.paused_by, p.paused_why,
       (SELECT count(*) FROM runners r WHERE r.pool_id = p.id AND r.gone_at IS NULL) AS runners,
       (SELECT count(*) FROM runners r WHERE r.pool_id = p.id AND r.gone_at IS NULL AND r.state = 'idle') AS idle,
       (SELECT count(*) FROM jobs j JOIN demand_keys k ON k.id = j.key_id
         WHERE k.pool_id = p.id AND j.state = 'queued') AS queued
  FROM pools p
 WHERE p.state <> 'deleted'
 ORDER BY p.name

-- name: named
-- The pool of that name.
SELECT id FROM pools WHERE name = :name AND state <> 'deleted'

-- name: group_names[]
-- Runner groups that active pools name.
SELECT id, runner_group FROM pools WHERE state = 'active' AND runner_group IS NOT NULL ORDER BY id

-- name: groups[]
-- The ids that the pools' groups have in an account.
SELECT pool_id, runner_group_id FROM pool_groups WHERE account_id = :account ORDER BY pool_id

-- name: set_groups
-- The ids that the pools' groups have in an account, as listed; pools not among them have none.
INSERT INTO pool_groups AS g (account_id, pool_id, runner_group_id)
SELECT :account, t.pool_id, t.group_id FROM unnest(:pools::int[], :groups::bigint[]) AS t (pool_id, group_id)
 ORDER BY t.pool_id
ON CONFLICT (pool_id, account_id) DO UPDATE SET runner_group_id = excluded.runner_group_id
 WHERE g.runner_group_id <> excluded.runner_group_id

-- name: drop_groups
-- Groups of an account for other pools are gone.
DELETE FROM pool_groups WHERE account_id = :account AND pool_id <> ALL (:pools)

-- name: pause
-- No new claims from a pool; what runs goes on.
UPDATE pools SET paused_at = :now, paused_by = :actor, paused_why = :why WHERE id = :pool AND paused_at IS NULL RETURNING id

-- name: resume
-- Claims again.
UPDATE pools SET paused_at = NULL, paused_by = NULL, paused_why = NULL WHERE id = :pool AND paused_at IS NOT NULL RETURNING id

-- name: note
-- A change to a pool.
INSERT INTO events (at, actor, pool_id, after, why) VALUES (:now, :actor, :pool, :what, :why)
