-- The runners that are not gone.

-- name: marks[]
-- What tells whether one has changed, the oldest first.
SELECT id, xmin, version FROM runners WHERE gone_at IS NULL ORDER BY created_at, id

-- name: these[]
-- Those of $1 that are still there, with their marks.
SELECT xmin, * FROM runners WHERE id = ANY ($1) AND gone_at IS NULL ORDER BY id
