-- Whether jobs run trusted code, for pools that require it.

-- name: questions[]
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

-- name: note
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

-- name: review
-- Refused jobs that are trusted now are judged again.
SELECT pg_notify('paddock', 'pools')
