-- Counts of jobs, runners and verdicts.

-- name: jobs[]
-- Jobs by state.
SELECT state, count(*) AS jobs FROM jobs GROUP BY state ORDER BY state

-- name: runners[]
-- Runners that are not gone, by state.
SELECT state, count(*) AS runners FROM runners WHERE state <> 'gone' GROUP BY state ORDER BY state

-- name: oldest
-- Since when the oldest job has waited that a pool takes.
SELECT min(queued_at) FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL

-- name: to_jit
-- For runners armed since $1: from the first delivery of the job they were claimed for until the JIT was stored. Not
-- from GitHub's own time of the job, which is in whole seconds.
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM r.armed_at - greatest(j.seen_at, j.queued_at))) AS median
  FROM runners r
  JOIN accounts a ON a.id = r.account_id
  JOIN jobs j ON j.host_id = a.host_id AND j.id = r.hint_job_id
 WHERE r.armed_at > $1

-- name: endings[]
-- Endings since $1, by class.
SELECT ending, count(*) AS runners FROM verdicts WHERE ended_at > $1 GROUP BY ending ORDER BY ending
