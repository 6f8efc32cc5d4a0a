-- Webhook deliveries, in the order of their arrival.

-- name: store[]
-- Stored durably before the receiver answers GitHub (I1). Deliveries that arrived together share the commit. Returns
-- the new ones: a GUID known from any earlier attempt is not new (I6).
WITH stored AS (
    INSERT INTO deliveries (host_id, app_id, guid, event, action, installation_id, payload, received_at, not_before)
    SELECT n.host_id, n.app_id, n.guid, n.event, n.action, n.installation_id, n.payload, :now, :now
      FROM unnest(:hosts::smallint[], :apps::int[], :guids::text[], :events::text[], :actions::text[],
                  :installations::bigint[], :payloads::bytea[])
           WITH ORDINALITY AS n (host_id, app_id, guid, event, action, installation_id, payload, position)
     ORDER BY n.position
    ON CONFLICT (host_id, guid) DO NOTHING
    RETURNING id, host_id, guid
)
SELECT host_id, guid FROM stored ORDER BY id

-- name: take[]
-- The oldest pending deliveries that are due, reserved for the asking replica until :taken_until: if it dies, another
-- replica takes them after that. Deliveries that were put off do not block later ones (I13). The commit waits for no
-- disk: if a crash loses the reservation, the deliveries are applied twice, which is harmless.
WITH unflushed AS (
    SELECT set_config('synchronous_commit', 'off', true) AS setting
), taken AS (
    UPDATE deliveries SET not_before = :taken_until
     WHERE id IN (SELECT id FROM deliveries WHERE state = 'pending' AND not_before <= :now
                   ORDER BY not_before, id LIMIT :limit FOR UPDATE SKIP LOCKED)
       AND (SELECT setting FROM unflushed) = 'off'
    RETURNING id, host_id, app_id, guid, event, action, installation_id, received_at, attempts, payload
)
SELECT id AS number, host_id AS host, app_id AS app, guid, event, action, installation_id AS installation, received_at,
       attempts, payload
  FROM taken ORDER BY id

-- name: settle
-- Deliveries ended in these states, with these notes.
UPDATE deliveries d
   SET state = s.state, note = s.note, settled_at = :now, attempts = d.attempts + 1
  FROM unnest(:numbers::bigint[], :states::delivery_state[], :notes::text[]) AS s (id, state, note)
 WHERE d.id = s.id AND d.state = 'pending'

-- name: postpone
-- Deliveries are due again from :untils on; the notes say why.
UPDATE deliveries d
   SET not_before = p.until, note = p.note, attempts = d.attempts + 1
  FROM unnest(:numbers::bigint[], :untils::timestamptz[], :notes::text[]) AS p (id, until, note)
 WHERE d.id = p.id AND d.state = 'pending'

-- name: expedite
-- An installation has been read: the deliveries that wait for it, and the deliveries :also, are due now.
WITH expedited AS (
    UPDATE deliveries SET not_before = :now
     WHERE (host_id = :host AND installation_id = :installation OR id = ANY (:also))
       AND state = 'pending' AND not_before > :now
    RETURNING id
)
SELECT pg_notify('paddock', 'deliveries') FROM expedited LIMIT 1

-- name: retry
-- Make dead deliveries pending again: all of them, or those with these :numbers.
UPDATE deliveries SET state = 'pending', settled_at = NULL, not_before = :now
 WHERE state = 'dead' AND (:numbers::bigint[] IS NULL OR id = ANY (:numbers))

-- name: known[]
-- Which of the GUIDs have arrived.
SELECT guid FROM deliveries WHERE host_id = :host AND guid = ANY (:guids) ORDER BY guid

-- name: cursor
-- The time up to which all of an App's deliveries are known to have arrived; set to :now if there is none yet.
INSERT INTO hook_cursors (app_id, complete_until) VALUES (:app, :now)
ON CONFLICT (app_id) DO UPDATE SET app_id = excluded.app_id
RETURNING complete_until

-- name: move_cursor
-- Move the cursor, forwards only.
UPDATE hook_cursors SET complete_until = :until WHERE app_id = :app AND complete_until < :until
