-- What is deleted: what ended before a time, oldest first, and only so many rows a call, because small transactions
-- delay no other session.

-- name: events
-- Events.
DELETE FROM events WHERE id IN (SELECT id FROM events WHERE at < :before ORDER BY id LIMIT :limit)

-- name: deliveries
-- Settled deliveries. Kept longer than GitHub offers redelivery (I6).
DELETE FROM deliveries WHERE id IN (
    SELECT id FROM deliveries WHERE received_at < :before AND state IN ('applied', 'ignored')
     ORDER BY received_at, id LIMIT :limit)

-- name: dead
-- Deliveries that were set aside.
DELETE FROM deliveries WHERE id IN (
    SELECT id FROM deliveries WHERE settled_at < :before AND state = 'dead' ORDER BY settled_at, id LIMIT :limit)

-- name: payloads
-- Bodies of applied deliveries; the row stays, to recognise a duplicate.
UPDATE deliveries SET payload = NULL WHERE id IN (
    SELECT id FROM deliveries WHERE received_at < :before AND state IN ('applied', 'ignored') AND payload IS NOT NULL
     ORDER BY received_at, id LIMIT :limit)

-- name: jobs
-- Completed jobs.
DELETE FROM jobs WHERE (host_id, id) IN (
    SELECT host_id, id FROM jobs WHERE state = 'completed' AND completed_at < :before
     ORDER BY completed_at, host_id, id LIMIT :limit)

-- name: runners
-- Runners that are gone, with their verdicts, vitals and names, once all their names are settled. The names of an
-- account that has removed the App can never be settled: GitHub answers nothing about it any more.
WITH old AS (
    SELECT r.id FROM runners r
     WHERE r.gone_at < :before
       AND NOT EXISTS (SELECT FROM mints m
                         JOIN demand_keys k ON k.id = m.key_id
                         JOIN installations i ON i.account_id = k.account_id AND i.state <> 'removed'
                        WHERE m.runner_id = r.id AND m.state <> 'settled')
     ORDER BY r.gone_at, r.id LIMIT :limit
), measured AS (
    DELETE FROM vitals WHERE runner_id IN (SELECT id FROM old)
)
DELETE FROM runners WHERE id IN (SELECT id FROM old)

-- name: backoffs
-- Back-offs that have ended.
DELETE FROM backoffs WHERE (scope, subject) IN (
    SELECT scope, subject FROM backoffs WHERE until < :before ORDER BY until, scope, subject LIMIT :limit)

-- name: budgets
-- Unused buckets that are full by now: a missing bucket counts as full. A match reads the buckets of all
-- installations, also of removed ones.
DELETE FROM budgets WHERE as_of < :before AND (app_id, installation_id, bucket) IN (
    SELECT app_id, installation_id, bucket FROM budgets b WHERE as_of < :before AND tokens_at(b, :before) >= capacity
     ORDER BY as_of, app_id, installation_id, bucket LIMIT :limit)

-- name: decisions
-- Decisions on pool sizes, except those in force.
DELETE FROM pool_decisions WHERE id IN (
    SELECT d.id FROM pool_decisions d
     WHERE d.at < :before AND EXISTS (SELECT FROM pool_decisions l WHERE l.pool_id = d.pool_id AND l.id > d.id AND l.at < :before)
     ORDER BY d.id LIMIT :limit)

-- name: actions
-- What recovery did.
DELETE FROM actions WHERE id IN (SELECT id FROM actions WHERE at < :before ORDER BY id LIMIT :limit)
