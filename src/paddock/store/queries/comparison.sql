-- Comparing with GitHub: which repositories, and what is known of their jobs.

-- name: repositories[]
-- Repositories active after :since or with jobs that have not ended, which one of the :apps may read now. For an
-- account served through several Apps the first App asks.
SELECT r.id, r.host_id AS host, r.github_id, r.full_name, r.account_id AS account, i.app_id AS app,
       i.github_id AS installation, r.active_at, c.compared_at,
       EXISTS (SELECT FROM jobs j WHERE j.repository_id = r.id AND j.state <> 'completed') AS has_open_jobs
  FROM repositories r
  JOIN LATERAL (SELECT i.app_id, i.github_id FROM installations i
                 WHERE i.account_id = r.account_id AND i.state = 'active' AND i.app_id = ANY (:apps)
                 ORDER BY i.app_id LIMIT 1) i ON true
  LEFT JOIN comparisons c ON c.repository_id = r.id
 WHERE r.accessible
   AND r.id IN (SELECT a.id FROM repositories a WHERE a.active_at >= :since
                 UNION
                SELECT j.repository_id FROM jobs j WHERE j.state <> 'completed')
 ORDER BY r.id

-- name: open_jobs[]
-- The jobs of a repository that have not ended.
SELECT id, state, since FROM jobs WHERE repository_id = :repository AND state <> 'completed' ORDER BY id

-- name: states[]
-- What is known of these jobs of a host.
SELECT id, state FROM jobs WHERE host_id = :host AND id = ANY (:jobs) ORDER BY id

-- name: compared
-- A repository was compared.
INSERT INTO comparisons (repository_id, compared_at) VALUES (:repository, :now)
ON CONFLICT (repository_id) DO UPDATE SET compared_at = excluded.compared_at
