-- Comparing with GitHub: which repositories, and what is known of their jobs.

-- name: repositories[]
-- Repositories active since $1 or with jobs that have not ended, which one of the Apps $2 may read now. For an account
-- served through several Apps the first App asks.
SELECT r.id, r.host_id, r.github_id, r.full_name, r.account_id, i.app_id, i.github_id AS installation_id,
       r.active_at, c.compared_at,
       EXISTS (SELECT FROM jobs j WHERE j.repository_id = r.id AND j.state <> 'completed') AS has_open_jobs
  FROM repositories r
  JOIN LATERAL (SELECT i.app_id, i.github_id FROM installations i
                 WHERE i.account_id = r.account_id AND i.state = 'active' AND i.app_id = ANY ($2)
                 ORDER BY i.app_id LIMIT 1) i ON true
  LEFT JOIN comparisons c ON c.repository_id = r.id
 WHERE r.accessible
   AND r.id IN (SELECT a.id FROM repositories a WHERE a.active_at >= $1
                 UNION
                SELECT j.repository_id FROM jobs j WHERE j.state <> 'completed')
 ORDER BY r.id

-- name: open_jobs[]
-- The jobs of repository $1 that have not ended.
SELECT id, state, since FROM jobs WHERE repository_id = $1 AND state <> 'completed' ORDER BY id

-- name: states[]
-- What is known of the jobs $2 of host $1.
SELECT id, state FROM jobs WHERE host_id = $1 AND id = ANY ($2) ORDER BY id

-- name: compared
-- Repository $1 was compared at $2.
INSERT INTO comparisons (repository_id, compared_at) VALUES ($1, $2)
ON CONFLICT (repository_id) DO UPDATE SET compared_at = excluded.compared_at
