-- What runners measured of themselves.

-- name: series
-- The series of the runner of Pod $1 with UID $2, held until the end of the transaction.
SELECT r.id, v.series FROM runners r LEFT JOIN vitals v ON v.runner_id = r.id
 WHERE r.pod_name = $1 AND r.pod_uid = $2 AND r.state <> 'gone'
   FOR UPDATE OF r

-- name: keep
-- Its series now, with so many samples ($3), the last at $4.
INSERT INTO vitals (runner_id, series, samples, last_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (runner_id) DO UPDATE
   SET series = excluded.series, samples = excluded.samples, last_at = excluded.last_at

-- name: mark
-- By its own words runner $1 executes a job, since $2. A hint: nothing is decided by it alone.
UPDATE runners SET job_marked_at = coalesce(job_marked_at, $2) WHERE id = $1 AND job_marked_at IS NULL

-- name: read
-- A runner's series.
SELECT series FROM vitals WHERE runner_id = $1
