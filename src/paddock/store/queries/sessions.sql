-- Sessions of the dashboard that were ended before their time.

-- name: end
-- The session $1, which would have lasted until $2, has ended; at $3 those that would have ended by then are forgotten.
WITH forgotten AS (
    DELETE FROM ended_sessions WHERE ends_at < $3
)
INSERT INTO ended_sessions (id, ends_at) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: ended
-- Whether the session $1 has been ended.
SELECT EXISTS (SELECT FROM ended_sessions WHERE id = $1) AS ended
