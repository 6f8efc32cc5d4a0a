-- What runners measured of themselves.

-- name: known[]
-- The living runners of Pods, with their newest samples. No row is locked.
SELECT r.id, r.pod_name, r.pod_uid, r.job_marked_at, coalesce(v.recent, '') AS recent
  FROM unnest(:pods::text[], :uids::text[]) AS p (pod_name, pod_uid)
  JOIN runners r ON r.pod_name = p.pod_name AND r.pod_uid = p.pod_uid AND r.state <> 'gone'
  LEFT JOIN vitals v ON v.runner_id = r.id
 ORDER BY r.id

-- name: series[]
-- All but the newest samples of runners.
SELECT runner_id, series FROM vitals WHERE runner_id = ANY (:runners) ORDER BY runner_id

-- name: keep
-- The newest samples of runners, and older samples in :series; an empty one leaves the older ones unchanged. A row
-- with newer samples, written by another replica, is not overwritten.
INSERT INTO vitals (runner_id, series, recent, last_at)
SELECT k.runner_id, k.series, k.recent, k.last_at
  FROM unnest(:runners::uuid[], :series::bytea[], :recent::bytea[], :last_at::timestamptz[])
       AS k (runner_id, series, recent, last_at)
 ORDER BY k.runner_id
ON CONFLICT (runner_id) DO UPDATE
   SET series = coalesce(nullif(excluded.series, ''), vitals.series), recent = excluded.recent,
       last_at = excluded.last_at
 WHERE vitals.last_at <= excluded.last_at

-- name: mark[]
-- Runners report that they execute a job, since these times. A hint: no decision is based on it alone. Written once,
-- and not while another transaction holds the row. Returns the runners marked now.
WITH free AS (
    SELECT id FROM runners WHERE id = ANY (:runners) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
), marked AS (
    UPDATE runners r SET job_marked_at = coalesce(r.job_marked_at, m.at)
      FROM unnest(:runners::uuid[], :times::timestamptz[]) AS m (id, at) JOIN free f ON f.id = m.id
     WHERE r.id = m.id
    RETURNING r.id
)
SELECT id FROM marked ORDER BY id

-- name: read
-- A runner's series.
SELECT series, recent FROM vitals WHERE runner_id = :runner
