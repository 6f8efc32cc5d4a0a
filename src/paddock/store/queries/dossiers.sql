-- Everything recorded about one job or one runner.

-- name: jobs_numbered[]
-- The jobs with number $1, one per host at most.
SELECT host_id, id FROM jobs WHERE id = $1 ORDER BY host_id

-- name: runner_named
-- The runner whose Pod is named $1, or that was ever to be registered under that name.
SELECT id FROM runners
 WHERE pod_name = $1 OR id = (SELECT runner_id FROM mints WHERE name = $1)

-- name: jobs[]
-- Jobs $2 of hosts $1 with their account, their pool, and GitHub's last answer about them.
SELECT j.*, h.name AS host, a.login, r.full_name, p.name AS pool, c.checked_at, c.answer, c.times, c.waits_because,
       CASE WHEN NOT r.limited THEN NULL
            WHEN j.executor_id IS NOT NULL AND j.runner_id IS NULL THEN 'foreign'
            WHEN xk.id IS NOT NULL AND xk.repository_id IS NULL THEN 'organisation'
            WHEN j.state = 'queued' AND k.repository_id IS NULL AND p.runner_group IS NOT NULL THEN 'runner group'
       END AS beside_limits
  FROM unnest($1::smallint[], $2::bigint[]) AS t (host_id, id)
  -- One index probe per job: for small tables the planner would otherwise read all jobs of the host for each of them.
 CROSS JOIN LATERAL (SELECT * FROM jobs o WHERE o.host_id = t.host_id AND o.id = t.id LIMIT 1) j
  JOIN hosts h ON h.id = j.host_id
  JOIN accounts a ON a.id = j.account_id
  JOIN repositories r ON r.id = j.repository_id
  LEFT JOIN job_checks c ON c.host_id = j.host_id AND c.job_id = j.id
  LEFT JOIN demand_keys k ON k.id = j.key_id
  LEFT JOIN pools p ON p.id = k.pool_id
  LEFT JOIN runners x ON x.id = j.runner_id
  LEFT JOIN demand_keys xk ON xk.id = x.key_id
 ORDER BY j.host_id, j.id

-- name: hosts[]
-- The hosts there are.
SELECT id, name FROM hosts ORDER BY id

-- name: related[]
-- The runners in the story of job $2 of host $1: the one that executed it, those claimed for it, and, while it
-- waits, those on their way to its key. Of gone runners only those of the job's time are considered.
WITH story AS (
    SELECT * FROM jobs WHERE host_id = $1 AND id = $2
), found AS (
    SELECT runner_id AS id FROM story WHERE runner_id IS NOT NULL
     UNION
    SELECT r.id FROM story j JOIN runners r ON r.hint_job_id = j.id AND r.account_id = j.account_id AND r.gone_at IS NULL
     UNION
    SELECT r.id FROM story j JOIN runners r ON r.hint_job_id = j.id AND r.account_id = j.account_id
                                           AND r.gone_at >= j.created_at
                                           AND r.gone_at <= coalesce(j.completed_at + interval '1 hour', 'infinity')
     UNION
    SELECT r.id FROM story j JOIN runners r ON r.key_id = j.key_id AND r.gone_at IS NULL AND j.state = 'queued'
                                           AND (r.state IN ('claimed', 'armed', 'running')
                                                OR r.state = 'busy' AND r.job_id IS NULL)
)
SELECT r.*, r.id IS NOT DISTINCT FROM j.runner_id AS executed, r.hint_job_id IS NOT DISTINCT FROM j.id AS hinted,
       v.runner_id AS verdict, v.ending, v.abnormal, v.why AS verdict_why, v.exit_code, v.signal, v.reason,
       v.node AS verdict_node, v.ended_at, v.log_tail, v.evidence AS verdict_evidence, v.written_at, v.refined_at
  FROM found
  JOIN runners r USING (id)
 CROSS JOIN story j
  LEFT JOIN verdicts v ON v.runner_id = r.id
 ORDER BY r.claimed_at, r.id

-- name: job_events[]
-- The steps of job $2 of host $1, and of runners $3 since they were last claimed.
SELECT e.*, NULL AS pod_name FROM events e WHERE e.host_id = $1 AND e.job_id = $2
 UNION ALL
SELECT e.*, r.pod_name
  FROM unnest($3::uuid[]) AS own (id)
  JOIN runners r ON r.id = own.id
 CROSS JOIN LATERAL (SELECT max(c.id) AS id FROM events c WHERE c.runner_id = own.id AND c.after = 'claimed') claimed
  JOIN events e ON e.runner_id = own.id AND e.id >= claimed.id
 ORDER BY at, id

-- name: failed_mints[]
-- The last $4 failed claims for key $1, made between $2 and $3.
SELECT f.*
  FROM (SELECT e.*, r.pod_name
          FROM apps a
         CROSS JOIN LATERAL (
            SELECT * FROM mints u WHERE u.app_id = a.id AND u.state <> 'settled' AND u.chosen_at >= $2
             UNION ALL
            SELECT * FROM mints s WHERE s.app_id = a.id AND s.state = 'settled' AND s.settled_at >= $2) m
          JOIN events e ON e.runner_id = m.runner_id AND e.generation = m.generation
                       AND e.before = 'claimed' AND e.after = 'idle'
          JOIN runners r ON r.id = m.runner_id
         WHERE m.key_id = $1 AND m.chosen_at >= $2 AND m.chosen_at <= $3
         ORDER BY e.id DESC LIMIT $4) f
 ORDER BY f.id

-- name: job_actions[]
-- What recovery did about job $2 of host $1, and about runners $3.
SELECT c.*, c.pod_name AS pod FROM actions c WHERE c.host_id = $1 AND c.job_id = $2
 UNION ALL
SELECT c.*, coalesce(c.pod_name, r.pod_name)
  FROM unnest($3::uuid[]) AS own (id)
  JOIN runners r ON r.id = own.id
  JOIN actions c ON c.runner_id = own.id AND c.job_id IS NULL
 ORDER BY at, id

-- name: ahead
-- How many jobs of its key are served before job $2 of host $1.
SELECT count(*)
  FROM jobs j
  JOIN jobs o ON o.state = 'queued' AND o.key_id = j.key_id AND (o.queued_at, o.id) < (j.queued_at, j.id)
 WHERE j.host_id = $1 AND j.id = $2

-- name: first_in_line[]
-- For each of the keys $1 the first $2 jobs in the order of service, with how many are served before each.
SELECT j.host_id, j.id, j.ahead
  FROM unnest($1::int[], $2::int[]) AS k (id, jobs)
 CROSS JOIN LATERAL (SELECT q.host_id, q.id, row_number() OVER (ORDER BY q.queued_at, q.id) - 1 AS ahead
                       FROM (SELECT host_id, id, queued_at FROM jobs WHERE state = 'queued' AND key_id = k.id
                              ORDER BY queued_at, id LIMIT k.jobs) q) j
 ORDER BY k.id, j.ahead

-- name: on_their_way[]
-- Runners on their way to jobs of keys $1.
SELECT r.*
  FROM demand_keys k
  JOIN runners r ON r.account_id = k.account_id AND r.pool_id = k.pool_id AND r.key_id = k.id
 WHERE k.id = ANY ($1) AND r.gone_at IS NULL
   AND (r.state IN ('claimed', 'armed', 'running') OR r.state = 'busy' AND r.job_id IS NULL)
 ORDER BY r.claimed_at, r.id

-- name: waits[]
-- What binds keys $1, at $2. The use of accounts, repositories and pools is added up once for all of their keys.
WITH wanted AS MATERIALIZED (
    SELECT * FROM demand_keys WHERE id = ANY ($1)
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
), crews AS MATERIALIZED (
    SELECT w.pool_id, count(r.id) FILTER (WHERE r.key_id IS NOT NULL) AS occupied,
           count(r.id) FILTER (WHERE r.state = 'idle') AS idle, count(r.id) FILTER (WHERE r.state = 'booting') AS booting
      FROM (SELECT DISTINCT pool_id FROM wanted) w
      LEFT JOIN runners r ON r.pool_id = w.pool_id AND r.gone_at IS NULL
     GROUP BY w.pool_id
)
SELECT k.id, coalesce(s.runners, 0) AS supply, coalesce(s.ended, 0) AS supply_graces,
       (SELECT max(e.until) FROM supply_graces e WHERE e.key_id = k.id AND is_supply(e, $2)) AS supply_grace_until,
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
       p.max_runners AS pool_maximum, c.occupied, c.idle, c.booting, t.target, t.why AS because,
       o.version AS refused_version, o.runtime_ends_at AS version_ended_at, o.refused_at AS version_refused_at,
       o.refused_until AS version_refused_until
  FROM wanted k
  JOIN accounts a ON a.id = k.account_id
  JOIN pools p ON p.id = k.pool_id
  JOIN used u ON u.account_id = k.account_id
  JOIN crews c ON c.pool_id = k.pool_id
  LEFT JOIN used_by_repository ru ON ru.repository_id = k.repository_id
  LEFT JOIN supply($2) s ON s.key_id = k.id
  LEFT JOIN dispatch_pauses d ON true
  LEFT JOIN repositories rep ON rep.id = k.repository_id
  LEFT JOIN wider_use w ON w.repository_id = rep.id
  LEFT JOIN LATERAL (SELECT f.scope, f.until, f.failures, f.cause, f.reason FROM backoffs f
                      WHERE f.until > $2
                        AND (f.scope, f.subject) IN (('key', k.id), ('repository', k.repository_id), ('account', a.id),
                                                     ('app', (SELECT i.app_id FROM installations i
                                                               WHERE i.account_id = a.id AND i.state = 'active'
                                                               ORDER BY i.app_id LIMIT 1)))
                      ORDER BY f.until DESC, f.scope, f.subject LIMIT 1) b ON true
  LEFT JOIN LATERAL refused_version(p.id, a.id, $2) o ON true
  LEFT JOIN LATERAL (SELECT q.target, q.why FROM pool_decisions q WHERE q.pool_id = p.id ORDER BY q.id DESC LIMIT 1) t ON true
 ORDER BY k.id

-- name: waiting_pods[]
-- Idle runners that ask for work, as the matcher would see them.
SELECT id, pool_id, pod_name, generation FROM runners WHERE gone_at IS NULL AND state = 'idle'
 ORDER BY created_at, id

-- name: runner
-- Runner $1 with its account and its verdict.
SELECT r.*, p.name AS pool, p.paused_at, p.paused_by, p.paused_why, a.login,
       d.paused_at AS all_paused_at, d.paused_by AS all_paused_by, d.why AS all_paused_why,
       (SELECT count(*) FROM demand_keys k JOIN jobs j ON j.key_id = k.id AND j.state = 'queued'
         WHERE k.pool_id = p.id) AS queued,
       v.runner_id AS verdict, v.ending, v.abnormal,
       v.why AS verdict_why, v.exit_code, v.signal, v.reason, v.node AS verdict_node, v.ended_at, v.log_tail,
       v.evidence AS verdict_evidence, v.written_at, v.refined_at
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN dispatch_pauses d ON true
  LEFT JOIN accounts a ON a.id = r.account_id
  LEFT JOIN verdicts v ON v.runner_id = r.id
 WHERE r.id = $1

-- name: jobs_of_runner[]
-- What runner $1 executed, and the job it was claimed for.
WITH found AS (
    SELECT host_id, id FROM jobs WHERE runner_id = $1
     UNION
    SELECT j.host_id, j.id
      FROM runners r
      JOIN accounts a ON a.id = r.account_id
      JOIN jobs j ON j.host_id = a.host_id AND j.id IN (r.hint_job_id, r.job_id)
     WHERE r.id = $1
)
SELECT h.name AS host, j.id, j.name, r.full_name, j.state, j.conclusion, j.runner_id IS NOT DISTINCT FROM $1 AS executed
  FROM found
  JOIN jobs j USING (host_id, id)
  JOIN hosts h ON h.id = j.host_id
  JOIN repositories r ON r.id = j.repository_id
 ORDER BY j.queued_at, j.host_id, j.id

-- name: names[]
-- Names chosen for runner $1.
SELECT name, chosen_at, state, outcome FROM mints WHERE runner_id = $1 ORDER BY generation

-- name: runner_events[]
-- The steps of runner $1.
SELECT e.*, r.pod_name FROM events e LEFT JOIN runners r ON r.id = e.runner_id
 WHERE e.runner_id = $1 ORDER BY e.id

-- name: runner_actions[]
-- What recovery did about runner $1.
SELECT c.*, coalesce(c.pod_name, r.pod_name) AS pod FROM actions c LEFT JOIN runners r ON r.id = c.runner_id
 WHERE c.runner_id = $1 ORDER BY c.id

-- name: told[]
-- Of the last $2 deliveries that changed nothing, those that mention job $1, newest first, while their bodies are kept.
SELECT t.received_at, t.state, t.note, t.body
  FROM (SELECT id, received_at, state, note, payload AS body FROM deliveries
         WHERE event = 'workflow_job' AND state IN ('ignored', 'pending') AND payload IS NOT NULL
         ORDER BY id DESC LIMIT $2) t
 WHERE position(convert_to($1::bigint::text, 'UTF8') IN t.body) > 0
 ORDER BY t.id DESC
