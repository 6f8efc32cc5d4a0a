-- Dashboard sessions that were ended before they expired.

-- name: end
-- A session, which would have expired at :ends_at, was ended; rows of sessions that have expired are deleted.
WITH forgotten AS (
    DELETE FROM ended_sessions WHERE ends_at < :now
)
INSERT INTO ended_sessions (id, ends_at) VALUES (:session, :ends_at) ON CONFLICT DO NOTHING

-- name: ended
-- Whether a session has been ended.
SELECT EXISTS (SELECT FROM ended_sessions WHERE id = :session) AS ended
