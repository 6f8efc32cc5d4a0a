-- Dashboard sessions that were ended before they expired.

-- name: end
-- Session $1, which would have expired at $2, was ended; rows of sessions that have expired by $3 are deleted.
WITH forgotten AS (
    DELETE FROM ended_sessions WHERE ends_at < $3
)
INSERT INTO ended_sessions (id, ends_at) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: ended
-- Whether the session $1 has been ended.
SELECT EXISTS (SELECT FROM ended_sessions WHERE id = $1) AS ended
