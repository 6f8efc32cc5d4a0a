-- The present state in numbers, and the last hour's trends. Read once for all readers.

-- name: cells[]
-- The runners that are not gone, $1 at most.
SELECT r.pod_name AS pod, p.name AS pool, r.state, r.since, a.login AS account, r.job_id AS job, r.node,
       r.suspect_at IS NOT NULL AS suspect
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
 WHERE r.gone_at IS NULL
 ORDER BY p.name, r.created_at, r.id
 LIMIT $1

-- name: runners[]
-- Runners that are not gone, by state.
SELECT state, count(*)::int AS runners FROM runners WHERE gone_at IS NULL GROUP BY state ORDER BY state

-- name: jobs[]
-- Jobs that are not over, by status.
SELECT state, count(*)::int AS jobs FROM jobs WHERE state <> 'completed' GROUP BY state ORDER BY state

-- name: completed[]
-- Jobs completed since $1, by conclusion.
SELECT conclusion, count(*)::int AS jobs FROM jobs
 WHERE state = 'completed' AND completed_at > $1 GROUP BY conclusion ORDER BY conclusion

-- name: queues[]
-- Jobs that wait, by pool and account.
SELECT p.name AS pool, a.login AS account, sum(w.jobs)::int AS jobs, min(w.oldest_at) AS oldest_at
  FROM (SELECT key_id, count(*) AS jobs, min(queued_at) AS oldest_at
          FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL GROUP BY key_id) w
  JOIN demand_keys k ON k.id = w.key_id
  JOIN pools p ON p.id = k.pool_id
  JOIN accounts a ON a.id = k.account_id
 GROUP BY p.name, a.login
 ORDER BY p.name, a.login

-- name: oldest[]
-- The $1 jobs that have waited longest, whether a pool takes them or not.
SELECT h.name AS host, j.id, j.name, rep.full_name AS repository, p.name AS pool, j.queued_at, j.refusal,
       j.refusal_detail
  FROM (SELECT * FROM jobs WHERE state = 'queued' ORDER BY queued_at, host_id, id LIMIT $1) j
  JOIN hosts h ON h.id = j.host_id
  JOIN repositories rep ON rep.id = j.repository_id
  LEFT JOIN demand_keys k ON k.id = j.key_id
  LEFT JOIN pools p ON p.id = k.pool_id
 ORDER BY j.queued_at, j.host_id, j.id

-- name: to_jit
-- For runners armed since $1: seconds from the first delivery of the job they were claimed for until the JIT was
-- stored.
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY s.seconds) AS p50,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY s.seconds) AS p99, count(*)::int AS count
  FROM (SELECT greatest(0, extract(epoch FROM r.armed_at - greatest(j.seen_at, j.queued_at)))::float8 AS seconds
          FROM runners r
          JOIN accounts a ON a.id = r.account_id
          JOIN jobs j ON j.host_id = a.host_id AND j.id = r.hint_job_id
         WHERE r.armed_at > $1 AND (r.gone_at IS NULL OR r.gone_at > $1)) s

-- name: recovered[]
-- The last $2 actions of recovery since $1, newest first. Expected rules ($3) are left out, except the end of a Pod ($4)
-- with an abnormal verdict.
SELECT c.id, c.at, c.actor, c.rule, c.action, c.outcome, c.why, c.runner_id AS runner,
       coalesce(c.pod_name, r.pod_name) AS pod, h.name AS host, c.job_id AS job, c.evidence
  FROM actions c
  LEFT JOIN runners r ON r.id = c.runner_id
  LEFT JOIN hosts h ON h.id = c.host_id
  LEFT JOIN verdicts v ON v.runner_id = c.runner_id
 WHERE c.at > $1 AND (c.rule <> ALL ($3::text[]) OR c.rule = ANY ($4::text[]) AND v.abnormal)
 ORDER BY c.id DESC
 LIMIT $2

-- name: endings[]
-- Endings since $1, by class.
SELECT ending, count(*)::int AS runners FROM verdicts WHERE ended_at > $1 GROUP BY ending ORDER BY ending

-- name: counts
-- The other counts.
SELECT (SELECT count(*) FROM jobs WHERE state = 'queued' AND refusal IS NOT NULL)::int AS refused,
       (SELECT count(*) FROM deliveries WHERE state = 'pending')::int AS pending_deliveries,
       (SELECT count(*) FROM deliveries WHERE state = 'dead')::int AS dead_deliveries,
       (SELECT received_at FROM deliveries ORDER BY id DESC LIMIT 1) AS last_delivery_at,
       (SELECT count(*) FROM mints m JOIN runners r ON r.id = m.runner_id
         WHERE m.state <> 'settled' AND (r.state = 'gone' OR r.name IS DISTINCT FROM m.name))::int AS debts,
       (SELECT count(*) FROM pools WHERE state <> 'deleted')::int AS pools,
       (SELECT count(*) FROM accounts)::int AS accounts,
       (SELECT coalesce(max(id), 0) FROM events) AS last_event

-- name: pauses[]
-- What is paused.
SELECT 'dispatch' AS what, NULL AS name, paused_at AS at, paused_by AS by, why FROM dispatch_pauses
 UNION ALL
SELECT 'pool', name, paused_at, paused_by, paused_why FROM pools WHERE paused_at IS NOT NULL AND state <> 'deleted'
 UNION ALL
SELECT 'account', login, paused_at, paused_by, paused_why FROM accounts WHERE paused_at IS NOT NULL
 ORDER BY at, what, name

-- name: backoffs[]
-- Back-offs that last beyond $1, and their subjects.
SELECT b.scope, b.until, b.failures, b.reason,
       CASE b.scope
            WHEN 'repository' THEN (SELECT full_name FROM repositories WHERE id = b.subject)
            WHEN 'account' THEN (SELECT login FROM accounts WHERE id = b.subject)
            WHEN 'app' THEN (SELECT coalesce(slug, github_id::text) FROM apps WHERE id = b.subject)
            ELSE (SELECT a.login || ' in pool ' || p.name FROM demand_keys k JOIN accounts a ON a.id = k.account_id
                    JOIN pools p ON p.id = k.pool_id WHERE k.id = b.subject)
       END AS name
  FROM backoffs b
 WHERE b.until > $1
 ORDER BY b.until DESC, b.scope, b.subject
 LIMIT 20

-- name: flow[]
-- Jobs that began and that ended their wait, in steps of $2 since $1.
SELECT f.at, sum(f.came)::int AS came, sum(f.went)::int AS went
  FROM (SELECT queued_at, coalesce(started_at, completed_at) AS went_at FROM jobs
         WHERE state IN ('queued', 'in_progress') AND key_id IS NOT NULL
         UNION ALL
        SELECT queued_at, coalesce(started_at, completed_at) FROM jobs
         WHERE state = 'completed' AND completed_at >= $1 AND key_id IS NOT NULL) j
 CROSS JOIN LATERAL (
    SELECT date_bin($2::interval, j.queued_at, $1::timestamptz) AS at, 1 AS came, 0 AS went WHERE j.queued_at >= $1
     UNION ALL
    SELECT date_bin($2::interval, j.went_at, $1::timestamptz), 0, 1 WHERE j.went_at >= $1) f
 GROUP BY f.at
 ORDER BY f.at

-- name: waiting_now
-- How many jobs wait that a pool takes.
SELECT count(*)::int FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL

-- name: to_jit_steps[]
-- As `to_jit`, in steps of $2 since $1.
SELECT date_bin($2::interval, s.armed_at, $1::timestamptz) AS at,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY s.seconds) AS p50,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY s.seconds) AS p99, count(*)::int AS count
  FROM (SELECT r.armed_at, greatest(0, extract(epoch FROM r.armed_at - greatest(j.seen_at, j.queued_at)))::float8 AS seconds
          FROM runners r
          JOIN accounts a ON a.id = r.account_id
          JOIN jobs j ON j.host_id = a.host_id AND j.id = r.hint_job_id
         WHERE r.armed_at >= $1 AND (r.gone_at IS NULL OR r.gone_at > $1)) s
 GROUP BY 1
 ORDER BY at

-- name: ends[]
-- Jobs completed since $1 in steps of $2, by conclusion.
SELECT date_bin($2::interval, completed_at, $1::timestamptz) AS at, conclusion, count(*)::int AS jobs
  FROM jobs WHERE state = 'completed' AND completed_at >= $1
 GROUP BY 1, conclusion
 ORDER BY at, conclusion
