-- Hosts (Kubernetes nodes) that are not fit for runners.

-- name: forget
-- Delete the faults of all hosts except $1.
DELETE FROM host_faults WHERE host <> ALL ($1::text[])

-- name: note
-- Hosts $1 have faults $2. A new fault is dated $3; if only its text changes, the date stays.
INSERT INTO host_faults (host, why, since)
SELECT host, why, $3 FROM unnest($1::text[], $2::text[]) AS f (host, why)
    ON CONFLICT (host) DO UPDATE SET why = excluded.why WHERE host_faults.why <> excluded.why

-- name: current[]
-- All hosts with a fault.
SELECT host, why, since FROM host_faults ORDER BY host
