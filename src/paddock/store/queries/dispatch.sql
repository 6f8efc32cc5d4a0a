-- What Pods ask for and are given.

-- name: hear
-- The poller of Pod $1 (UID $2) asks, at $3. Its first request makes the runner idle and fixes the Pod's UID; a Pod of
-- another UID under the same name is not this runner. A Pod that asks exists, so absences that were counted before
-- the Pod was created are reset (I29).
UPDATE runners
   SET heard_at = $3, pod_uid = $2, absent_reads = 0, absent_since = NULL,
       state = CASE WHEN state = 'booting' THEN 'idle' ELSE state END,
       version = version + (state = 'booting')::int,
       since = CASE WHEN state = 'booting' THEN $3 ELSE since END,
       actor = CASE WHEN state = 'booting' THEN $4 ELSE actor END,
       why = CASE WHEN state = 'booting' THEN 'its poller was heard' ELSE why END
 WHERE pod_name = $1 AND (pod_uid IS NULL OR pod_uid = $2) AND state <> 'gone'
RETURNING *

-- name: hear_again[]
-- The pollers of idle runners $1 asked again, at $2 each: those that are still idle.
WITH heard AS (
    UPDATE runners r
       SET heard_at = greatest(r.heard_at, a.at), absent_reads = 0, absent_since = NULL
      FROM unnest($1::uuid[], $2::timestamptz[]) AS a (id, at)
     WHERE r.id = a.id AND r.state = 'idle'
    RETURNING r.id
)
SELECT id FROM heard ORDER BY id

-- name: demand
-- One queued job that has a key, if there is any.
SELECT key_id FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL ORDER BY key_id LIMIT 1

-- name: gone
-- A runner that has ended, by its Pod.
SELECT * FROM runners WHERE pod_name = $1 AND pod_uid = $2 AND state = 'gone'

-- name: acknowledge
-- armed → running, by the Pod itself ($1, $2) and the delivery it was handed ($5).
UPDATE runners
   SET state = 'running', version = version + 1, since = $3, actor = $4, why = 'the JIT was acknowledged',
       evidence = NULL, acknowledged_at = $3, jit = NULL, jit_key = NULL
 WHERE pod_name = $1 AND pod_uid = $2 AND state = 'armed' AND delivery_id = $5
RETURNING *, (SELECT login FROM accounts a WHERE a.id = account_id) AS login,
          (SELECT name FROM pools p WHERE p.id = pool_id) AS pool_name

-- name: delivered
-- The runner's state, if delivery $3 was ever handed to this Pod ($1, $2).
SELECT state FROM runners WHERE pod_name = $1 AND pod_uid = $2 AND delivery_id = $3

-- name: back_off
-- The matcher claims nothing for subject $2 of scope $1 for a while; $8 is the cause, $4 its text. The n-th failure in
-- a row waits $5 seconds times 2^(n-1), $6 at most, from $3 on; the first $7 failures in a row cause no wait. A request
-- that fails during a back-off was begun before it, so it does not count as a further failure; otherwise a burst of
-- failures would reach the longest wait at once. A wait is at most twice the time since the first failure of the row,
-- because earlier failures may be of another kind, whose first waits are seconds where this one's are minutes.
INSERT INTO backoffs AS b (scope, subject, until, failures, cause, reason, since)
VALUES ($1, $2, CASE WHEN $7::int > 0 THEN $3::timestamptz ELSE $3 + least($5::float8, $6::float8) * interval '1 second' END,
        1, $8, $4, $3)
ON CONFLICT (scope, subject) DO UPDATE
   SET failures = b.failures + (b.until <= $3)::int, cause = excluded.cause, reason = excluded.reason,
       until = CASE WHEN b.failures + (b.until <= $3)::int <= $7::int THEN greatest(b.until, $3)
                    ELSE greatest(b.until, $3 + least($5::float8 * 2.0 ^ least(b.failures + (b.until <= $3)::int - 1 - $7::int, 16), $6::float8,
                                                      greatest($5::float8, 2 * extract(epoch FROM $3 - b.since)::float8))
                                                * interval '1 second') END
RETURNING until, failures

-- name: recover
-- A request of these scopes ($1, $2) succeeded: end their back-offs.
DELETE FROM backoffs b USING unnest($1::backoff_scope[], $2::int[]) AS s (scope, subject)
 WHERE b.scope = s.scope AND b.subject = s.subject

-- name: debts[]
-- Names that may be registered at GitHub but belong to no runner any more: chosen before $1, unsettled, their claim
-- given up or their runner gone. At most $2: every account has one place before any has a second (I26), for its oldest.
-- If a runner exited cleanly without a reported job, only its record at GitHub shows that it never had one (I39).
-- Recovery reads that record first, within ten minutes.
SELECT m.name, m.github_id, m.chosen_at, r.state AS runner_state, h.name AS host, ap.github_id AS app,
       i.github_id AS installation, a.login, rep.full_name AS repository,
       row_number() OVER (PARTITION BY k.account_id ORDER BY m.chosen_at, m.name) AS place
  FROM mints m
  JOIN runners r ON r.id = m.runner_id
  JOIN demand_keys k ON k.id = m.key_id
  JOIN accounts a ON a.id = k.account_id
  JOIN apps ap ON ap.id = m.app_id
  JOIN hosts h ON h.id = ap.host_id
  LEFT JOIN repositories rep ON rep.id = k.repository_id
  JOIN installations i ON i.account_id = a.id AND i.app_id = m.app_id AND i.state = 'active'
 WHERE m.state <> 'settled' AND m.chosen_at < $1 AND (r.state = 'gone' OR r.name IS DISTINCT FROM m.name)
   AND m.not_before <= $3
   AND NOT EXISTS (SELECT FROM verdicts v WHERE v.runner_id = r.id AND r.name = m.name AND v.exit_code = 0
                      AND v.evidence ->> 'job' = 'unknown' AND r.gone_at > $3 - interval '10 minutes')
 ORDER BY place, m.chosen_at, m.name
 LIMIT $2

-- name: settle
-- Settle name $1: its outcome at GitHub is known.
UPDATE mints SET state = 'settled', outcome = $2, settled_at = $3 WHERE name = $1 AND state <> 'settled'

-- name: postpone_debt
-- GitHub did not say; look again at $2.
UPDATE mints SET not_before = $2 WHERE name = $1

-- name: steps[]
-- The durations of runners that got their job after $1 and until $2. GitHub gives a job's time in whole seconds; our
-- own time is when the job's first delivery arrived.
SELECT p.name AS pool,
       extract(epoch FROM r.claimed_at - greatest(j.seen_at, j.queued_at))::float8 AS claimed,
       extract(epoch FROM r.armed_at - r.claimed_at)::float8 AS armed,
       extract(epoch FROM r.acknowledged_at - r.armed_at)::float8 AS acknowledged,
       extract(epoch FROM r.busy_at - r.acknowledged_at)::float8 AS in_progress
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  JOIN accounts a ON a.id = r.account_id
  LEFT JOIN jobs j ON j.host_id = a.host_id AND j.id = r.hint_job_id
 WHERE r.busy_at > $1 AND r.busy_at <= $2 AND (r.gone_at IS NULL OR r.gone_at > $1)
 ORDER BY r.busy_at, r.id
