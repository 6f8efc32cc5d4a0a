-- A pause of all dispatch.

-- name: pause
-- Actor $2 pauses all claims from $1 on, because of $3; no row changes if they are paused already.
WITH paused AS (
    INSERT INTO dispatch_pauses (paused_at, paused_by, why) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
    RETURNING paused_at
)
INSERT INTO events (at, actor, after, why) SELECT $1, $2, 'dispatch paused', $3 FROM paused RETURNING id

-- name: resume
-- Resume all claims, from $1 on.
WITH resumed AS (
    DELETE FROM dispatch_pauses RETURNING paused_at
)
INSERT INTO events (at, actor, after, why) SELECT $1, $2, 'dispatch resumed', $3 FROM resumed RETURNING id

-- name: current
-- The pause, if there is one.
SELECT paused_at, paused_by, why AS paused_why FROM dispatch_pauses
