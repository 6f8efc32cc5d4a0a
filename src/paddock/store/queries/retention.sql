-- What is deleted, oldest first, at most $2 rows a call: small transactions delay no other session.

-- name: events
-- Events before $1.
DELETE FROM events WHERE id IN (SELECT id FROM events WHERE at < $1 ORDER BY id LIMIT $2)

-- name: deliveries
-- Settled deliveries before $1. Kept longer than GitHub offers redelivery (I6).
DELETE FROM deliveries WHERE id IN (
    SELECT id FROM deliveries WHERE received_at < $1 AND state IN ('applied', 'ignored') ORDER BY received_at, id LIMIT $2)

-- name: dead
-- Deliveries that were set aside before $1.
DELETE FROM deliveries WHERE id IN (
    SELECT id FROM deliveries WHERE settled_at < $1 AND state = 'dead' ORDER BY settled_at, id LIMIT $2)

-- name: payloads
-- Bodies of deliveries applied before $1; the row stays, to recognise a duplicate.
UPDATE deliveries SET payload = NULL WHERE id IN (
    SELECT id FROM deliveries WHERE received_at < $1 AND state IN ('applied', 'ignored') AND payload IS NOT NULL
     ORDER BY received_at, id LIMIT $2)

-- name: jobs
-- Jobs completed before $1.
DELETE FROM jobs WHERE (host_id, id) IN (
    SELECT host_id, id FROM jobs WHERE state = 'completed' AND completed_at < $1
     ORDER BY completed_at, host_id, id LIMIT $2)

-- name: runners
-- Runners gone before $1, with their verdicts, vitals and names, once all their names are settled. The names of an
-- account that has removed the App can never be settled: GitHub answers nothing about it any more.
WITH old AS (
    SELECT r.id FROM runners r
     WHERE r.gone_at < $1
       AND NOT EXISTS (SELECT FROM mints m
                         JOIN demand_keys k ON k.id = m.key_id
                         JOIN installations i ON i.account_id = k.account_id AND i.state <> 'removed'
                        WHERE m.runner_id = r.id AND m.state <> 'settled')
     ORDER BY r.gone_at, r.id LIMIT $2
), measured AS (
    DELETE FROM vitals WHERE runner_id IN (SELECT id FROM old)
)
DELETE FROM runners WHERE id IN (SELECT id FROM old)

-- name: backoffs
-- Back-offs that ended before $1.
DELETE FROM backoffs WHERE (scope, subject) IN (
    SELECT scope, subject FROM backoffs WHERE until < $1 ORDER BY until, scope, subject LIMIT $2)

-- name: budgets
-- Buckets unused since $1 that are full by now: a missing bucket counts as full. A match reads the buckets of all
-- installations, also of removed ones.
DELETE FROM budgets WHERE as_of < $1 AND (app_id, installation_id, bucket) IN (
    SELECT app_id, installation_id, bucket FROM budgets b WHERE as_of < $1 AND tokens_at(b, $1) >= capacity
     ORDER BY as_of, app_id, installation_id, bucket LIMIT $2)

-- name: decisions
-- Decisions on pool sizes before $1, except those in force.
DELETE FROM pool_decisions WHERE id IN (
    SELECT d.id FROM pool_decisions d
     WHERE d.at < $1 AND EXISTS (SELECT FROM pool_decisions l WHERE l.pool_id = d.pool_id AND l.id > d.id AND l.at < $1)
     ORDER BY d.id LIMIT $2)

-- name: actions
-- What recovery did before $1.
DELETE FROM actions WHERE id IN (SELECT id FROM actions WHERE at < $1 ORDER BY id LIMIT $2)
