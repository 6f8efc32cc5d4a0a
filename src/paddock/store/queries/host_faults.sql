-- Hosts that are not fit for runners.

-- name: forget
-- All but those of $1.
DELETE FROM host_faults WHERE host <> ALL ($1::text[])

-- name: note
-- The hosts of $1 have the faults of $2, those that are new since $3.
INSERT INTO host_faults (host, why, since)
SELECT host, why, $3 FROM unnest($1::text[], $2::text[]) AS f (host, why)
    ON CONFLICT (host) DO UPDATE SET why = excluded.why WHERE host_faults.why <> excluded.why

-- name: current[]
-- Those there are.
SELECT host, why, since FROM host_faults ORDER BY host
