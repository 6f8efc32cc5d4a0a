-- A pause of all dispatch.

-- name: pause
-- Pause all claims; no row changes if they are paused already.
WITH paused AS (
    INSERT INTO dispatch_pauses (paused_at, paused_by, why) VALUES (:now, :actor, :why) ON CONFLICT DO NOTHING
    RETURNING paused_at
)
INSERT INTO events (at, actor, after, why) SELECT :now, :actor, 'dispatch paused', :why FROM paused RETURNING id

-- name: resume
-- Resume all claims.
WITH resumed AS (
    DELETE FROM dispatch_pauses RETURNING paused_at
)
INSERT INTO events (at, actor, after, why) SELECT :now, :actor, 'dispatch resumed', :why FROM resumed RETURNING id

-- name: current
-- The pause, if there is one.
SELECT paused_at, paused_by, why AS paused_why FROM dispatch_pauses
