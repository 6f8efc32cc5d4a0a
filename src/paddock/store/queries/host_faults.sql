-- Hosts (Kubernetes nodes) that are not fit for runners.

-- name: forget
-- Delete the faults of all hosts except :hosts.
DELETE FROM host_faults WHERE host <> ALL (:hosts::text[])

-- name: note
-- Hosts :hosts have faults :faults. A new fault is dated :now; if only its text changes, the date stays.
INSERT INTO host_faults (host, why, since)
SELECT host, why, :now FROM unnest(:hosts::text[], :faults::text[]) AS f (host, why)
    ON CONFLICT (host) DO UPDATE SET why = excluded.why WHERE host_faults.why <> excluded.why

-- name: current[]
-- All hosts with a fault.
SELECT host, why, since FROM host_faults ORDER BY host
