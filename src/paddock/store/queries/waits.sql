-- Why jobs wait, and what comes before them.

-- name: ahead
-- How many jobs of its key are served before job :job of host :host.
SELECT count(*)
  FROM jobs j
  JOIN jobs o ON o.state = 'queued' AND o.key_id = j.key_id AND (o.queued_at, o.id) < (j.queued_at, j.id)
 WHERE j.host_id = :host AND j.id = :job

-- name: first_in_line[]
-- For each of the keys :keys the first :jobs jobs in the order of service, with how many are served before each.
SELECT j.host_id, j.id, j.ahead
  FROM unnest(:keys::int[], :jobs::int[]) AS k (id, jobs)
 CROSS JOIN LATERAL (SELECT q.host_id, q.id, row_number() OVER (ORDER BY q.queued_at, q.id) - 1 AS ahead
                       FROM (SELECT host_id, id, queued_at FROM jobs WHERE state = 'queued' AND key_id = k.id
                              ORDER BY queued_at, id LIMIT k.jobs) q) j
 ORDER BY k.id, j.ahead

-- name: on_their_way[]
-- Runners on their way to jobs of keys :keys.
SELECT r.id, r.key_id
  FROM demand_keys k
  JOIN runners r ON r.account_id = k.account_id AND r.pool_id = k.pool_id AND r.key_id = k.id
 WHERE k.id = ANY (:keys) AND r.gone_at IS NULL
   AND (r.state IN ('claimed', 'armed', 'running') OR r.state = 'busy' AND r.job_id IS NULL)
 ORDER BY r.claimed_at, r.id

-- name: waits[]
-- What binds keys :keys, at :now. The use of accounts, repositories and pools is added up once for all of their keys.
WITH wanted AS MATERIALIZED (
    SELECT * FROM demand_keys WHERE id = ANY (:keys)
), used AS MATERIALIZED (
    SELECT w.account_id, count(r.id) AS runners, coalesce(sum(r.vcpu_milli), 0) AS vcpu_milli,
           coalesce(sum(r.memory_mib), 0) AS memory_mib
      FROM (SELECT DISTINCT account_id FROM wanted) w
      LEFT JOIN runners r ON r.account_id = w.account_id AND r.gone_at IS NULL
     GROUP BY w.account_id
), used_by_repository AS MATERIALIZED (
    SELECT w.repository_id, count(r.id) AS runners, coalesce(sum(r.vcpu_milli), 0) AS vcpu_milli,
           coalesce(sum(r.memory_mib), 0) AS memory_mib
      FROM (SELECT DISTINCT repository_id, account_id FROM wanted WHERE repository_id IS NOT NULL) w
      JOIN demand_keys o ON o.account_id = w.account_id AND o.repository_id = w.repository_id
      LEFT JOIN runners r ON r.account_id = o.account_id AND r.pool_id = o.pool_id AND r.key_id = o.id
                         AND r.gone_at IS NULL
     GROUP BY w.repository_id
), runners_of_pools AS MATERIALIZED (
    SELECT w.pool_id, count(r.id) FILTER (WHERE r.state = 'idle') AS idle, count(r.id) FILTER (WHERE r.state = 'booting') AS booting
      FROM (SELECT DISTINCT pool_id FROM wanted) w
      LEFT JOIN runners r ON r.pool_id = w.pool_id AND r.gone_at IS NULL
     GROUP BY w.pool_id
)
SELECT k.id, coalesce(s.runners, 0) AS supply, coalesce(s.ended, 0) AS supply_graces,
       (SELECT max(e.until) FROM supply_graces e WHERE e.key_id = k.id AND is_supply(e, :now)) AS supply_grace_until,
       d.paused_at AS all_paused_at, d.paused_by AS all_paused_by, d.why AS all_paused_why,
       a.paused_at AS account_paused_at, a.paused_by AS account_paused_by, a.paused_why AS account_paused_why,
       p.paused_at AS pool_paused_at, p.paused_by AS pool_paused_by, p.paused_why AS pool_paused_why,
       p.state AS pool_state,
       (SELECT i.state FROM installations i WHERE i.account_id = a.id ORDER BY i.state, i.app_id LIMIT 1) AS installation,
       b.scope, b.until, b.failures, b.cause, b.reason,
       a.max_runners, a.max_vcpu_milli, a.max_memory_mib,
       u.runners, u.vcpu_milli, u.memory_mib,
       rep.max_runners AS repository_max_runners, rep.max_vcpu_milli AS repository_max_vcpu_milli,
       rep.max_memory_mib AS repository_max_memory_mib,
       coalesce(ru.runners, 0) + coalesce(w.runners, 0) AS repository_runners,
       coalesce(ru.vcpu_milli, 0) + coalesce(w.vcpu_milli, 0) AS repository_vcpu_milli,
       coalesce(ru.memory_mib, 0) + coalesce(w.memory_mib, 0) AS repository_memory_mib,
       coalesce(w.runners, 0) AS repository_wider,
       p.max_runners AS pool_maximum, c.idle, c.booting, t.target AS pool_target, t.why AS pool_because,
       o.version, o.runtime_ends_at AS ended_at, o.refused_at, o.refused_until
  FROM wanted k
  JOIN accounts a ON a.id = k.account_id
  JOIN pools p ON p.id = k.pool_id
  JOIN used u ON u.account_id = k.account_id
  JOIN runners_of_pools c ON c.pool_id = k.pool_id
  LEFT JOIN used_by_repository ru ON ru.repository_id = k.repository_id
  LEFT JOIN supply(:now) s ON s.key_id = k.id
  LEFT JOIN dispatch_pauses d ON true
  LEFT JOIN repositories rep ON rep.id = k.repository_id
  LEFT JOIN wider_use w ON w.repository_id = rep.id
  LEFT JOIN LATERAL (SELECT f.scope, f.until, f.failures, f.cause, f.reason FROM backoffs f
                      WHERE f.until > :now
                        AND (f.scope, f.subject) IN (('key', k.id), ('repository', k.repository_id), ('account', a.id),
                                                     ('app', (SELECT i.app_id FROM installations i
                                                               WHERE i.account_id = a.id AND i.state = 'active'
                                                               ORDER BY i.app_id LIMIT 1)))
                      ORDER BY f.until DESC, f.scope, f.subject LIMIT 1) b ON true
  LEFT JOIN LATERAL refused_version(p.id, a.id, :now) o ON true
  LEFT JOIN LATERAL (SELECT q.target, q.why FROM pool_decisions q WHERE q.pool_id = p.id ORDER BY q.id DESC LIMIT 1) t ON true
 ORDER BY k.id

-- name: waiting_pods[]
-- Idle runners that ask for work, as the matcher would see them.
SELECT id, pool_id, pod_name, generation FROM runners WHERE gone_at IS NULL AND state = 'idle'
 ORDER BY created_at, id
