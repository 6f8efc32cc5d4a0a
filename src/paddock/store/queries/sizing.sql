-- The inputs of decisions on pool sizes, the decisions, and hosts (Kubernetes nodes) that are not fit for runners.

-- name: pools[]
-- Every pool that is not deleted, or that still has runners, and how many; :ended names Pods that have ended.
SELECT p.id, p.name, p.state, p.paused_at IS NOT NULL AS paused, p.paused_at, p.paused_by, p.paused_why,
       p.spec, p.spec_hash, p.vcpu_milli, p.memory_mib,
       coalesce(r.live, 0) AS live, coalesce(r.present, 0) AS present, coalesce(r.occupied, 0) AS occupied,
       n.version
  FROM pools p
  LEFT JOIN pod_versions n ON n.spec_hash = p.spec_hash
  LEFT JOIN (SELECT pool_id, count(*) AS live,
                    count(*) FILTER (WHERE key_id IS NOT NULL) AS occupied,
                    count(*) FILTER (WHERE pod_name <> ALL (:ended::text[])) AS present
               FROM runners WHERE gone_at IS NULL GROUP BY pool_id) r ON r.pool_id = p.id
 WHERE p.state <> 'deleted' OR r.live > 0
 ORDER BY p.id

-- name: keys[]
-- Per key with queued jobs (of :pool, or of all): how many, how old, the supply on its way to them as the matcher
-- counts it, and whether dispatch would serve it at :now.
WITH RECURSIVE demanded (key_id) AS (
    (SELECT key_id FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL ORDER BY key_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.key_id FROM jobs j
             WHERE j.state = 'queued' AND j.key_id > d.key_id ORDER BY j.key_id LIMIT 1)
      FROM demanded d WHERE d.key_id IS NOT NULL
), served AS (
    SELECT DISTINCT ON (account_id) account_id, app_id FROM installations WHERE state = 'active'
     ORDER BY account_id, app_id
)
SELECT k.id AS key, k.pool_id AS pool, k.account_id AS account, k.repository_id AS repository, a.login, r.full_name, q.queued, q.oldest,
       coalesce(s.total, 0) AS supply,
       a.paused_at IS NOT NULL OR p.paused_at IS NOT NULL OR p.state <> 'active'
       OR EXISTS (SELECT FROM dispatch_pauses) AS paused,
       i.app_id IS NULL AS uninstalled, b.until AS blocked_until, b.reason AS blocked_because,
       EXISTS (SELECT FROM version_schedules v
                WHERE v.account_id = k.account_id AND is_refused(v, :now)
                  AND v.version = (SELECT n.version FROM pod_versions n WHERE n.spec_hash = p.spec_hash)) AS outdated
  FROM demanded d
  JOIN demand_keys k ON k.id = d.key_id
  JOIN pools p ON p.id = k.pool_id
  JOIN accounts a ON a.id = k.account_id
  LEFT JOIN repositories r ON r.id = k.repository_id
  LEFT JOIN served i ON i.account_id = k.account_id
  LEFT JOIN supply(:now) s ON s.key_id = k.id
  LEFT JOIN LATERAL (
    SELECT until, reason FROM backoffs
     WHERE until > :now AND (scope, subject) IN (('key', k.id), ('repository', k.repository_id),
                                               ('account', k.account_id), ('app', i.app_id))
     ORDER BY until DESC, scope, subject LIMIT 1) b ON true
 CROSS JOIN LATERAL (
    SELECT count(*) AS queued, min(queued_at) AS oldest FROM jobs
     WHERE state = 'queued' AND jobs.key_id = k.id) q
 WHERE k.pool_id = coalesce(:pool, k.pool_id)
 ORDER BY k.id

-- name: accounts[]
-- Accounts with limits, and what they use.
SELECT a.id, a.max_runners, a.max_vcpu_milli, a.max_memory_mib, coalesce(u.runners, 0)::int AS runners,
       coalesce(u.vcpu_milli, 0)::bigint AS vcpu_milli, coalesce(u.memory_mib, 0)::bigint AS memory_mib
  FROM accounts a
  LEFT JOIN (SELECT account_id, count(*) AS runners, sum(vcpu_milli) AS vcpu_milli, sum(memory_mib) AS memory_mib
               FROM runners WHERE key_id IS NOT NULL AND gone_at IS NULL GROUP BY account_id) u ON u.account_id = a.id
 WHERE num_nonnulls(a.max_runners, a.max_vcpu_milli, a.max_memory_mib) > 0
 ORDER BY a.id

-- name: repositories[]
-- Repositories with limits of their own, and what they use.
SELECT r.id, r.max_runners, r.max_vcpu_milli, r.max_memory_mib,
       (coalesce(u.runners, 0) + coalesce(w.runners, 0))::int AS runners,
       (coalesce(u.vcpu_milli, 0) + coalesce(w.vcpu_milli, 0))::bigint AS vcpu_milli,
       (coalesce(u.memory_mib, 0) + coalesce(w.memory_mib, 0))::bigint AS memory_mib
  FROM repositories r
  LEFT JOIN (SELECT k.repository_id, count(*) AS runners, sum(vcpu_milli) AS vcpu_milli, sum(memory_mib) AS memory_mib
               FROM runners JOIN demand_keys k ON k.id = runners.key_id
              WHERE gone_at IS NULL AND k.repository_id IS NOT NULL GROUP BY k.repository_id) u ON u.repository_id = r.id
  LEFT JOIN wider_use w ON w.repository_id = r.id
 WHERE r.limited
 ORDER BY r.id

-- name: decisions[]
-- Decisions after number :after.
SELECT * FROM pool_decisions WHERE id > :after ORDER BY id

-- name: decisions_since[]
-- Decisions after :since, with those that were in force then.
SELECT d.*
  FROM pools p
 CROSS JOIN LATERAL (SELECT coalesce(max(id), 0) AS id FROM pool_decisions
                      WHERE pool_id = p.id AND at <= :since) f
  JOIN pool_decisions d ON d.pool_id = p.id AND d.id >= f.id
 WHERE p.state <> 'deleted'
 ORDER BY d.id

-- name: decide
-- Decisions as they were made: one element of each array per pool.
INSERT INTO pool_decisions (pool_id, at, wanted, target, terms, why)
SELECT t.pool_id, :now, t.wanted, t.target, t.terms::jsonb, t.why
  FROM unnest(:pools::int[], :wanted::int[], :targets::int[], :terms::text[], :whys::text[]) WITH ORDINALITY
       AS t (pool_id, wanted, target, terms, why, position)
 ORDER BY t.position

-- name: failed_starts[]
-- Per host: starts that failed since :since, of Pods made after the last one that started there. That an older Pod still
-- polls does not show that the host starts new ones. An image that cannot be pulled is not the host's fault (I51):
-- recovery's evidence for giving the runner up says whether the Pod waited for one (:of_images).
WITH failed AS MATERIALIZED (
    SELECT v.node, r.created_at
      FROM verdicts v JOIN runners r ON r.id = v.runner_id
     WHERE v.ended_at > :since AND v.ending = 'never-started' AND v.node IS NOT NULL
       AND NOT EXISTS (SELECT FROM events e
                        WHERE e.runner_id = v.runner_id AND e.after = 'retiring'
                          AND (e.evidence #>> '{pod,poller}' = ANY (:of_images::text[])
                               OR e.evidence #>> '{pod,runner}' = ANY (:of_images)))
), started AS (
    SELECT r.node, max(r.created_at) AS last
      -- By an index each: with OR between them, all runners of the history would be read.
      FROM (SELECT id, node, created_at, heard_at FROM runners WHERE gone_at IS NULL
             UNION ALL
            SELECT id, node, created_at, heard_at FROM runners WHERE gone_at > :since) r
     WHERE r.node IN (SELECT node FROM failed) AND r.heard_at IS NOT NULL
       AND NOT EXISTS (SELECT FROM verdicts v WHERE v.runner_id = r.id AND v.ending = 'never-started')
     GROUP BY r.node
)
SELECT f.node AS host, count(*) AS count
  FROM failed f LEFT JOIN started s ON s.node = f.node
 WHERE s.last IS NULL OR f.created_at > s.last
 GROUP BY f.node
 ORDER BY f.node

-- name: latest
-- The decision in force for a pool.
SELECT * FROM pool_decisions WHERE pool_id = :pool ORDER BY id DESC LIMIT 1

-- name: runners_of[]
-- The live runners of a pool.
SELECT * FROM runners WHERE pool_id = :pool AND gone_at IS NULL ORDER BY created_at, id

-- name: drain
-- The pool takes no more jobs; it is deleted when its last runner is gone.
UPDATE pools SET state = 'draining', changed_at = :now WHERE id = :pool AND state = 'active' RETURNING name

-- name: refuse_jobs
-- How many jobs wait for deleted pools. Another pool may take them: if that pool was described before, its own
-- wake-up is used up, so the service that judges refused jobs is woken here.
WITH refused AS (
    UPDATE jobs j
       SET key_id = NULL, refusal = :refusal, refusal_detail = 'pool ' || p.name || ' was deleted'
      FROM demand_keys k JOIN pools p ON p.id = k.pool_id
     WHERE j.key_id = k.id AND p.id = ANY (:pools) AND p.state <> 'active' AND j.state IN ('waiting', 'queued')
    RETURNING j.id
)
SELECT count(*)::int, CASE WHEN count(*) > 0 THEN pg_notify('paddock', 'pools') END FROM refused

-- name: delete_drained[]
-- Draining pools whose last runner is gone are deleted.
WITH deleted AS (
    UPDATE pools p SET state = 'deleted', changed_at = :now
     WHERE p.state = 'draining' AND NOT EXISTS (SELECT FROM runners r WHERE r.pool_id = p.id AND r.gone_at IS NULL)
    RETURNING p.id, p.name
)
SELECT id, name FROM deleted ORDER BY id

-- name: forget_host_faults
-- Delete the faults of all hosts except :hosts.
DELETE FROM host_faults WHERE host <> ALL (:hosts::text[])

-- name: note_host_faults
-- Hosts :hosts have faults :faults. A new fault is dated :now; if only its text changes, the date stays.
INSERT INTO host_faults (host, why, since)
SELECT host, why, :now FROM unnest(:hosts::text[], :faults::text[]) AS f (host, why)
    ON CONFLICT (host) DO UPDATE SET why = excluded.why WHERE host_faults.why <> excluded.why

-- name: host_faults[]
-- All hosts with a fault.
SELECT host, why, since FROM host_faults ORDER BY host
