-- Queue lengths, runner counts and budgets, for the metrics.

-- name: queues[]
-- Waiting jobs by pool and account, and since when the oldest has waited.
SELECT p.name AS pool, a.login AS account, sum(w.jobs)::int AS jobs, min(w.oldest_at) AS oldest_at
  FROM (SELECT key_id, count(*) AS jobs, min(queued_at) AS oldest_at
          FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL GROUP BY key_id) w
  JOIN demand_keys k ON k.id = w.key_id
  JOIN pools p ON p.id = k.pool_id
  JOIN accounts a ON a.id = k.account_id
 GROUP BY p.name, a.login
 ORDER BY p.name, a.login

-- name: crews[]
-- Runners that are not gone, by pool and state; a pool without runners has a row too.
SELECT p.name AS pool, s.state, count(r.id) AS runners
  FROM pools p
 CROSS JOIN unnest(enum_range(NULL::runner_state)) AS s (state)
  LEFT JOIN runners r ON r.pool_id = p.id AND r.state = s.state AND r.gone_at IS NULL
 WHERE p.state <> 'deleted' AND s.state <> 'gone'
 GROUP BY p.name, s.state
 ORDER BY p.name, s.state

-- name: pools[]
-- The target and the maximum of each pool, and how many of its runners GitHub does not see.
SELECT p.name AS pool, p.max_runners,
       (SELECT d.target FROM pool_decisions d WHERE d.pool_id = p.id ORDER BY d.id DESC LIMIT 1) AS target,
       (SELECT count(*) FROM runners r
         WHERE r.pool_id = p.id AND r.gone_at IS NULL AND r.suspect_at IS NOT NULL)::int AS suspects
  FROM pools p
 WHERE p.state <> 'deleted'
 ORDER BY p.name

-- name: budgets[]
-- For each budget of each App at $1: the installation with the least left, and how much; NULL is the App's own budget.
SELECT DISTINCT ON (l.app, l.bucket) l.app, l.bucket, l.account, l.tokens, l.capacity
  FROM (SELECT ap.github_id AS app, b.bucket, a.login AS account, greatest(0, tokens_at(b, $1))::float8 AS tokens,
               b.capacity::float8 AS capacity, tokens_at(b, $1) / b.capacity AS share, b.app_id, b.installation_id
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

-- name: owed
-- Names owed at GitHub; deliveries set aside, and since when one has waited to be applied.
SELECT (SELECT count(*) FROM mints m JOIN runners r ON r.id = m.runner_id
         WHERE m.state <> 'settled' AND (r.state = 'gone' OR r.name IS DISTINCT FROM m.name)) AS debts,
       (SELECT count(*) FROM deliveries WHERE state = 'dead') AS dead_deliveries,
       -- Uses the index of pending deliveries: the index of all deliveries would be read through its whole history.
       (SELECT min(received_at)
          FROM (SELECT received_at FROM deliveries WHERE state = 'pending' ORDER BY not_before, id LIMIT 1000) p)
           AS oldest_pending_at

-- name: steps[]
-- The durations of runners that got their job after $1 and until $2. GitHub gives a job's time in whole seconds; our
-- own time is when the job's first delivery arrived.
SELECT p.name AS pool,
       extract(epoch FROM r.claimed_at - greatest(j.seen_at, j.queued_at))::float8 AS claimed,
       extract(epoch FROM r.armed_at - r.claimed_at)::float8 AS armed,
       extract(epoch FROM r.acknowledged_at - r.armed_at)::float8 AS acknowledged,
       extract(epoch FROM r.busy_at - r.acknowledged_at)::float8 AS in_progress
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  JOIN accounts a ON a.id = r.account_id
  LEFT JOIN jobs j ON j.host_id = a.host_id AND j.id = r.hint_job_id
 WHERE r.busy_at > $1 AND r.busy_at <= $2 AND (r.gone_at IS NULL OR r.gone_at > $1)
 ORDER BY r.busy_at, r.id
