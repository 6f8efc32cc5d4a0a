-- What incoming jobs are judged by.

-- name: accounts[]
-- The accounts of installations, which are named by GitHub's ids.
SELECT i.host_id, i.github_id, i.account_id, i.state
  FROM unnest(:hosts::smallint[], :installations::bigint[]) AS t (host_id, github_id)
  JOIN installations i ON i.host_id = t.host_id AND i.github_id = t.github_id
 ORDER BY i.host_id, i.github_id

-- name: pools[]
-- All pools that take jobs.
SELECT p.id, p.name, p.labels, p.runner_group, coalesce(p.spec ->> 'forks', 'ignore') AS forks,
       (SELECT coalesce(array_agg(g.account_id), '{}') FROM pool_groups g WHERE g.pool_id = p.id) AS in_accounts
  FROM pools p
 WHERE p.state = 'active'
 ORDER BY p.id

-- name: ours[]
-- Which of the named runners are or were runners of paddock.
SELECT r.account_id, r.name
  FROM unnest(:accounts::int[], :names::text[]) AS t (account_id, name)
  JOIN mints m ON m.name = t.name
  JOIN runners r ON r.id = m.runner_id AND r.account_id = t.account_id AND r.name = t.name
 ORDER BY r.account_id, r.name

-- name: refused[]
-- Waiting and queued jobs that were refused: another pool may take them. The next :limit after job :after_job of host
-- :after_host, by number. Jobs withheld beyond :now are left out.
SELECT j.host_id AS host, j.id, j.account_id AS account, j.labels, r.github_id, r.full_name, j.run_id, j.run_attempt, j.name,
       j.workflow, j.created_at, j.waited, j.known_queued_at, j.state, j.trusted
  FROM jobs j
  JOIN repositories r ON r.id = j.repository_id
  LEFT JOIN job_checks c ON c.host_id = j.host_id AND c.job_id = j.id
 WHERE j.refusal IS NOT NULL AND j.state IN ('waiting', 'queued')
   AND (c.withheld_until IS NULL OR c.withheld_until <= :now)
   AND (j.host_id, j.id) > (:after_host::smallint, :after_job::bigint)
 ORDER BY j.host_id, j.id
 LIMIT :limit

-- name: adopt
-- Jobs that were refused belong to these keys now.
UPDATE jobs j SET key_id = n.key_id, refusal = NULL, refusal_detail = NULL
  FROM unnest(:hosts::smallint[], :jobs::bigint[], :keys::int[]) AS n (host_id, id, key_id)
 WHERE j.host_id = n.host_id AND j.id = n.id AND j.refusal IS NOT NULL AND j.state IN ('waiting', 'queued')
