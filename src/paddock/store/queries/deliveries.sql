-- Webhook deliveries, in the order of their arrival.

-- name: store[]
-- Stored durably before the receiver answers GitHub (I1). Deliveries that arrived together share the commit. Returns
-- the new ones: a GUID known from any earlier attempt is not new (I6).
WITH stored AS (
    INSERT INTO deliveries (host_id, app_id, guid, event, action, installation_id, payload, received_at, not_before)
    SELECT n.host_id, n.app_id, n.guid, n.event, n.action, n.installation_id, n.payload, $8, $8
      FROM unnest($1::smallint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bytea[])
           WITH ORDINALITY AS n (host_id, app_id, guid, event, action, installation_id, payload, position)
     ORDER BY n.position
    ON CONFLICT (host_id, guid) DO NOTHING
    RETURNING id, host_id, guid
)
SELECT host_id, guid FROM stored ORDER BY id

-- name: take[]
-- The oldest pending deliveries that are due at $1, at most $2, reserved for the asking replica until $3: if it dies,
-- another replica takes them after that. Deliveries that were put off do not block later ones (I13). The commit waits
-- for no disk: if a crash loses the reservation, the deliveries are applied twice, which is harmless.
WITH unflushed AS (
    SELECT set_config('synchronous_commit', 'off', true) AS setting
), taken AS (
    UPDATE deliveries SET not_before = $3
     WHERE id IN (SELECT id FROM deliveries WHERE state = 'pending' AND not_before <= $1
                   ORDER BY not_before, id LIMIT $2 FOR UPDATE SKIP LOCKED)
       AND (SELECT setting FROM unflushed) = 'off'
    RETURNING id, host_id, app_id, guid, event, action, installation_id, received_at, attempts, payload
)
SELECT * FROM taken ORDER BY id

-- name: settle
-- Deliveries $1 ended in states $2 with notes $3.
UPDATE deliveries d
   SET state = s.state, note = s.note, settled_at = $4, attempts = d.attempts + 1
  FROM unnest($1::bigint[], $2::delivery_state[], $3::text[]) AS s (id, state, note)
 WHERE d.id = s.id AND d.state = 'pending'

-- name: postpone
-- Deliveries $1 are due again from $2 on, because of $3.
UPDATE deliveries d
   SET not_before = p.until, note = p.note, attempts = d.attempts + 1
  FROM unnest($1::bigint[], $2::timestamptz[], $3::text[]) AS p (id, until, note)
 WHERE d.id = p.id AND d.state = 'pending'

-- name: expedite
-- Installation $2 of host $1 has been read: the deliveries that wait for it, and deliveries $4, are due now.
WITH expedited AS (
    UPDATE deliveries SET not_before = $3
     WHERE (host_id = $1 AND installation_id = $2 OR id = ANY ($4)) AND state = 'pending' AND not_before > $3
    RETURNING id
)
SELECT pg_notify('paddock', 'deliveries') FROM expedited LIMIT 1

-- name: retry
-- Make dead deliveries pending again: all of them, or those with numbers $1.
UPDATE deliveries SET state = 'pending', settled_at = NULL, not_before = $2
 WHERE state = 'dead' AND ($1::bigint[] IS NULL OR id = ANY ($1))

-- name: known[]
-- Which of the GUIDs $2 of host $1 have arrived.
SELECT guid FROM deliveries WHERE host_id = $1 AND guid = ANY ($2) ORDER BY guid

-- name: cursor
-- The time up to which all of an App's deliveries are known to have arrived; set to $2 if there is none yet.
INSERT INTO hook_cursors (app_id, complete_until) VALUES ($1, $2)
ON CONFLICT (app_id) DO UPDATE SET app_id = excluded.app_id
RETURNING complete_until

-- name: move_cursor
-- Move the cursor, forwards only.
UPDATE hook_cursors SET complete_until = $2 WHERE app_id = $1 AND complete_until < $2
