-- What incoming jobs are judged by: accounts, pools, and whether they run trusted code.

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

-- name: trust_questions[]
-- Waiting jobs, of pools that require trust, whose runs were not looked up, with which of the :apps can ask. Every
-- account has one place before any has a second (I26), for its oldest. A refused job has no pool, so it is found by
-- its reason. Jobs of :unreadable repositories are left out.
SELECT j.host_id AS host, j.id AS job, j.run_id AS run, j.repository_id AS repository, r.full_name, i.app_id AS app,
       i.github_id AS installation,
       row_number() OVER (PARTITION BY j.account_id ORDER BY j.queued_at, j.host_id, j.id) AS place
  FROM jobs j
  JOIN repositories r ON r.id = j.repository_id
  JOIN LATERAL (SELECT i.app_id, i.github_id FROM installations i
                 WHERE i.account_id = j.account_id AND i.state = 'active' AND i.app_id = ANY (:apps)
                 ORDER BY i.app_id LIMIT 1) i ON true
  LEFT JOIN demand_keys k ON k.id = j.key_id
  LEFT JOIN pools p ON p.id = k.pool_id
 WHERE j.state = 'queued' AND j.trusted IS NULL
   AND (j.refusal = 'untrusted' OR p.spec ->> 'forks' IN ('mark', 'refuse'))
   AND EXISTS (SELECT FROM pools asking WHERE asking.state = 'active' AND asking.spec ->> 'forks' IN ('mark', 'refuse'))
   AND j.repository_id <> ALL (:unreadable::int[])
 ORDER BY place, j.queued_at, j.host_id, j.id
 LIMIT :limit

-- name: note_trust
-- The runs of jobs were looked up: which are trusted, and why. An untrusted job is refused if its pool has begun to
-- refuse untrusted code meanwhile.
UPDATE jobs j
   SET trusted = n.trusted, trust_why = n.why,
       key_id = CASE WHEN n.turned_away THEN NULL ELSE j.key_id END,
       refusal = CASE WHEN n.turned_away THEN 'untrusted' ELSE j.refusal END,
       refusal_detail = CASE WHEN n.turned_away OR j.refusal = 'untrusted' THEN n.why ELSE j.refusal_detail END
  FROM (SELECT a.*, NOT a.trusted AND EXISTS (
                 SELECT FROM jobs w
                   JOIN demand_keys k ON k.id = w.key_id
                   JOIN pools p ON p.id = k.pool_id
                  WHERE w.host_id = a.host_id AND w.id = a.id AND w.state = 'queued'
                    AND p.spec ->> 'forks' = 'refuse') AS turned_away
          FROM unnest(:hosts::smallint[], :jobs::bigint[], :trusted::boolean[], :whys::text[])
               AS a (host_id, id, trusted, why)) n
 WHERE j.host_id = n.host_id AND j.id = n.id

-- name: review_refused
-- Refused jobs that are trusted now are judged again.
SELECT pg_notify('paddock', 'pools')
