-- The pause of all dispatch, and sessions of the dashboard that were ended before they expired.

-- name: pause_dispatch
-- Pause all claims; no row changes if they are paused already.
WITH paused AS (
    INSERT INTO dispatch_pauses (paused_at, paused_by, why) VALUES (:now, :actor, :why) ON CONFLICT DO NOTHING
    RETURNING paused_at
)
INSERT INTO events (at, actor, after, why) SELECT :now, :actor, 'dispatch paused', :why FROM paused RETURNING id

-- name: resume_dispatch
-- Resume all claims.
WITH resumed AS (
    DELETE FROM dispatch_pauses RETURNING paused_at
)
INSERT INTO events (at, actor, after, why) SELECT :now, :actor, 'dispatch resumed', :why FROM resumed RETURNING id

-- name: dispatch_pause
-- The pause, if there is one.
SELECT paused_at, paused_by, why AS paused_why FROM dispatch_pauses

-- name: end_session
-- A session, which would have expired at :ends_at, was ended; rows of sessions that have expired are deleted.
WITH forgotten AS (
    DELETE FROM ended_sessions WHERE ends_at < :now
)
INSERT INTO ended_sessions (id, ends_at) VALUES (:session, :ends_at) ON CONFLICT DO NOTHING

-- name: is_session_ended
-- Whether a session has been ended.
SELECT EXISTS (SELECT FROM ended_sessions WHERE id = :session) AS ended
