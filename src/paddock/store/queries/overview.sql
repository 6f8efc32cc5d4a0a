-- The present state in numbers, and the last hour's trends. The overview is read once for all readers; the metrics read
-- some of the same statements.

-- name: cells[]
-- The runners that are not gone, :limit at most.
SELECT r.pod_name AS pod, p.name AS pool, r.state, r.since, a.login AS account, r.job_id AS job, r.node,
       r.suspect_at IS NOT NULL AS suspect
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
 WHERE r.gone_at IS NULL
 ORDER BY p.name, r.created_at, r.id
 LIMIT :limit

-- name: runners[]
-- Runners that are not gone, by state.
SELECT state, count(*)::int AS runners FROM runners WHERE gone_at IS NULL GROUP BY state ORDER BY state

-- name: jobs[]
-- Jobs that are not over, by status.
SELECT state, count(*)::int AS jobs FROM jobs WHERE state <> 'completed' GROUP BY state ORDER BY state

-- name: completed[]
-- Jobs completed since :since, by conclusion.
SELECT conclusion, count(*)::int AS jobs FROM jobs
 WHERE state = 'completed' AND completed_at > :since GROUP BY conclusion ORDER BY conclusion

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
-- The :limit jobs that have waited longest, whether a pool takes them or not.
SELECT h.name AS host, j.id, j.name, rep.full_name AS repository, p.name AS pool, j.queued_at, j.refusal,
       j.refusal_detail
  FROM (SELECT * FROM jobs WHERE state = 'queued' ORDER BY queued_at, host_id, id LIMIT :limit) j
  JOIN hosts h ON h.id = j.host_id
  JOIN repositories rep ON rep.id = j.repository_id
  LEFT JOIN demand_keys k ON k.id = j.key_id
  LEFT JOIN pools p ON p.id = k.pool_id
 ORDER BY j.queued_at, j.host_id, j.id

-- name: to_jit
-- For runners armed since :since: seconds from the first delivery of the job they were claimed for until the JIT was
-- stored.
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY s.seconds) AS p50,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY s.seconds) AS p99, count(*)::int AS count
  FROM (SELECT greatest(0, extract(epoch FROM r.armed_at - greatest(j.seen_at, j.queued_at)))::float8 AS seconds
          FROM runners r
          JOIN accounts a ON a.id = r.account_id
          JOIN jobs j ON j.host_id = a.host_id AND j.id = r.hint_job_id
         WHERE r.armed_at > :since AND (r.gone_at IS NULL OR r.gone_at > :since)) s

-- name: recovered[]
-- The last :limit actions of recovery since :since, newest first. Rules that are :expected are left out, except the end of
-- a Pod (:seen_to_end) with an abnormal verdict.
SELECT c.id, c.at, c.actor, c.rule, c.action, c.outcome, c.why, c.runner_id AS runner,
       coalesce(c.pod_name, r.pod_name) AS pod, h.name AS host, c.job_id AS job, c.evidence
  FROM actions c
  LEFT JOIN runners r ON r.id = c.runner_id
  LEFT JOIN hosts h ON h.id = c.host_id
  LEFT JOIN verdicts v ON v.runner_id = c.runner_id
 WHERE c.at > :since AND (c.rule <> ALL (:expected::text[]) OR c.rule = ANY (:seen_to_end::text[]) AND v.abnormal)
 ORDER BY c.id DESC
 LIMIT :limit

-- name: endings[]
-- Endings since :since, by class.
SELECT ending, count(*)::int AS runners FROM verdicts WHERE ended_at > :since GROUP BY ending ORDER BY ending

-- name: counts
-- The other counts.
SELECT (SELECT count(*) FROM jobs WHERE state = 'queued' AND refusal IS NOT NULL)::int AS refused,
       (SELECT count(*) FROM deliveries WHERE state = 'pending')::int AS pending_deliveries,
       (SELECT count(*) FROM deliveries WHERE state = 'dead')::int AS dead_deliveries,
       (SELECT received_at FROM deliveries ORDER BY id DESC LIMIT 1) AS last_delivery_at,
       -- Uses the index of pending deliveries: the index of all deliveries would be read through its whole history.
       (SELECT min(received_at)
          FROM (SELECT received_at FROM deliveries WHERE state = 'pending' ORDER BY not_before, id LIMIT 1000) p)
           AS oldest_pending_at,
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
-- Back-offs that last beyond :now, and their subjects.
SELECT b.scope, b.until, b.failures, b.reason,
       CASE b.scope
            WHEN 'repository' THEN (SELECT full_name FROM repositories WHERE id = b.subject)
            WHEN 'account' THEN (SELECT login FROM accounts WHERE id = b.subject)
            WHEN 'app' THEN (SELECT coalesce(slug, github_id::text) FROM apps WHERE id = b.subject)
            ELSE (SELECT a.login || ' in pool ' || p.name FROM demand_keys k JOIN accounts a ON a.id = k.account_id
                    JOIN pools p ON p.id = k.pool_id WHERE k.id = b.subject)
       END AS name
  FROM backoffs b
 WHERE b.until > :now
 ORDER BY b.until DESC, b.scope, b.subject
 LIMIT 20

-- name: budgets[]
-- For each budget of each App at :now: the installation with the least left, and the share (of 1) that is
-- left; NULL is the App's own budget.
SELECT DISTINCT ON (l.app, l.bucket) l.app, l.bucket, l.account, greatest(0, l.share) AS left
  FROM (SELECT ap.github_id AS app, b.bucket, a.login AS account, tokens_at(b, :now) / b.capacity AS share, b.app_id,
               b.installation_id
          FROM budgets b
          JOIN apps ap ON ap.id = b.app_id
          LEFT JOIN installations i ON i.host_id = ap.host_id AND i.github_id = b.installation_id
          LEFT JOIN accounts a ON a.id = i.account_id) l
 ORDER BY l.app, l.bucket, l.share, l.app_id, l.installation_id

-- name: limit_bypasses[]
-- Jobs of limited repositories that execute on runners that their limits cannot refuse (I78).
SELECT a.login AS account, rep.full_name AS repository,
       CASE WHEN j.runner_id IS NULL THEN 'foreign' ELSE 'organisation' END AS runner, count(*)::int AS jobs
  FROM repositories rep
  JOIN accounts a ON a.id = rep.account_id
  JOIN jobs j ON j.repository_id = rep.id AND j.state = 'in_progress'
  LEFT JOIN runners r ON r.id = j.runner_id
  LEFT JOIN demand_keys k ON k.id = r.key_id
 WHERE rep.limited
   AND (j.runner_id IS NULL AND j.executor_id IS NOT NULL OR k.id IS NOT NULL AND k.repository_id IS NULL AND r.gone_at IS NULL)
 GROUP BY a.login, rep.full_name, 3
 ORDER BY a.login, rep.full_name, 3

-- name: suspects[]
-- Per pool, the runners whose container is up and that GitHub calls offline.
SELECT p.name AS pool, count(*)::int AS runners
  FROM runners r JOIN pools p ON p.id = r.pool_id
 WHERE r.gone_at IS NULL AND r.suspect_at IS NOT NULL
 GROUP BY p.name
 ORDER BY p.name

-- name: flow[]
-- Jobs that began and that ended their wait, in steps of :step since :since.
SELECT f.at, sum(f.came)::int AS came, sum(f.went)::int AS went
  FROM (SELECT queued_at, coalesce(started_at, completed_at) AS went_at FROM jobs
         WHERE state IN ('queued', 'in_progress') AND key_id IS NOT NULL
         UNION ALL
        SELECT queued_at, coalesce(started_at, completed_at) FROM jobs
         WHERE state = 'completed' AND completed_at >= :since AND key_id IS NOT NULL) j
 CROSS JOIN LATERAL (
    SELECT date_bin(:step::interval, j.queued_at, :since::timestamptz) AS at, 1 AS came, 0 AS went WHERE j.queued_at >= :since
     UNION ALL
    SELECT date_bin(:step::interval, j.went_at, :since::timestamptz), 0, 1 WHERE j.went_at >= :since) f
 GROUP BY f.at
 ORDER BY f.at

-- name: waiting_now
-- How many jobs wait that a pool takes.
SELECT count(*)::int FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL

-- name: to_jit_steps[]
-- As `to_jit`, in steps of :step since :since.
SELECT date_bin(:step::interval, s.armed_at, :since::timestamptz) AS at,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY s.seconds) AS p50,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY s.seconds) AS p99, count(*)::int AS count
  FROM (SELECT r.armed_at, greatest(0, extract(epoch FROM r.armed_at - greatest(j.seen_at, j.queued_at)))::float8 AS seconds
          FROM runners r
          JOIN accounts a ON a.id = r.account_id
          JOIN jobs j ON j.host_id = a.host_id AND j.id = r.hint_job_id
         WHERE r.armed_at >= :since AND (r.gone_at IS NULL OR r.gone_at > :since)) s
 GROUP BY 1
 ORDER BY at

-- name: ends[]
-- Jobs completed since :since in steps of :step, by conclusion.
SELECT date_bin(:step::interval, completed_at, :since::timestamptz) AS at, conclusion, count(*)::int AS jobs
  FROM jobs WHERE state = 'completed' AND completed_at >= :since
 GROUP BY 1, conclusion
 ORDER BY at, conclusion
