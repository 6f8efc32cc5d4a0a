-- The runners that are not gone.

-- name: marks[]
-- The marks that show whether a runner has changed, oldest first.
SELECT id, xmin, version FROM runners WHERE gone_at IS NULL ORDER BY created_at, id

-- name: these[]
-- Those of the :runners that are not gone, with their marks and the names that logs need.
SELECT r.xmin, r.*, a.login, p.name AS pool_name,
       CASE WHEN p.spec_hash = r.spec_hash THEN p.runner END AS program
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
 WHERE r.id = ANY (:runners) AND r.gone_at IS NULL
 ORDER BY r.id

-- name: of_pods[]
-- The runners of the Pods of these names that are not gone, oldest first, with the names that logs need.
SELECT r.*, a.login, p.name AS pool_name,
       CASE WHEN p.spec_hash = r.spec_hash THEN p.runner END AS program
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
 WHERE r.pod_name = ANY (:pods) AND r.gone_at IS NULL
 ORDER BY r.created_at, r.id
