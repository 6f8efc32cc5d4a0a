-- What Pods ask for and are given.

-- name: hear
-- The poller of a Pod asks. Its first request makes the runner idle and fixes the Pod's UID; a Pod of another UID
-- under the same name is not this runner. A Pod that asks exists, so absences that were counted before the Pod was
-- created are reset (I29).
UPDATE runners
   SET heard_at = :now, pod_uid = :uid, absent_reads = 0, absent_since = NULL,
       state = CASE WHEN state = 'booting' THEN 'idle' ELSE state END,
       version = version + (state = 'booting')::int,
       since = CASE WHEN state = 'booting' THEN :now ELSE since END,
       actor = CASE WHEN state = 'booting' THEN :actor ELSE actor END,
       why = CASE WHEN state = 'booting' THEN 'its poller was heard' ELSE why END
 WHERE pod_name = :pod AND (pod_uid IS NULL OR pod_uid = :uid) AND state <> 'gone'
RETURNING *

-- name: hear_again[]
-- The pollers of idle runners asked again, each at its time: those that are still idle.
WITH heard AS (
    UPDATE runners r
       SET heard_at = greatest(r.heard_at, a.at), absent_reads = 0, absent_since = NULL
      FROM unnest(:runners::uuid[], :times::timestamptz[]) AS a (id, at)
     WHERE r.id = a.id AND r.state = 'idle'
    RETURNING r.id
)
SELECT id FROM heard ORDER BY id

-- name: demand
-- One queued job that has a key, if there is any.
SELECT key_id FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL ORDER BY key_id LIMIT 1

-- name: gone
-- A runner that has ended, by its Pod.
SELECT * FROM runners WHERE pod_name = :pod AND pod_uid = :uid AND state = 'gone'

-- name: acknowledge
-- armed → running, by the Pod itself and the delivery it was handed.
UPDATE runners
   SET state = 'running', version = version + 1, since = :now, actor = :actor, why = 'the JIT was acknowledged',
       evidence = NULL, acknowledged_at = :now, jit = NULL, jit_key = NULL
 WHERE pod_name = :pod AND pod_uid = :uid AND state = 'armed' AND delivery_id = :delivery
RETURNING *, (SELECT login FROM accounts a WHERE a.id = account_id) AS login,
          (SELECT name FROM pools p WHERE p.id = pool_id) AS pool_name

-- name: delivered
-- The runner's state, if this delivery was ever handed to this Pod.
SELECT state FROM runners WHERE pod_name = :pod AND pod_uid = :uid AND delivery_id = :delivery

-- name: back_off
-- The matcher claims nothing for this subject of the scope for a while. The n-th failure in a row waits :seconds
-- times 2^(n-1), :ceiling at most, from :now on; the first :forgiven failures in a row cause no wait. A request that
-- fails during a back-off was begun before it, so it does not count as a further failure; otherwise a burst of
-- failures would reach the longest wait at once. A wait is at most twice the time since the first failure of the row,
-- because earlier failures may be of another kind, whose first waits are seconds where this one's are minutes.
INSERT INTO backoffs AS b (scope, subject, until, failures, cause, reason, since)
VALUES (:scope, :subject,
        CASE WHEN :forgiven::int > 0 THEN :now::timestamptz
             ELSE :now + least(:seconds::float8, :ceiling::float8) * interval '1 second' END,
        1, :cause, :reason, :now)
ON CONFLICT (scope, subject) DO UPDATE
   SET failures = b.failures + (b.until <= :now)::int, cause = excluded.cause, reason = excluded.reason,
       until = CASE WHEN b.failures + (b.until <= :now)::int <= :forgiven::int THEN greatest(b.until, :now)
                    ELSE greatest(b.until,
                                  :now + least(:seconds::float8
                                                 * 2.0 ^ least(b.failures + (b.until <= :now)::int - 1 - :forgiven::int, 16),
                                               :ceiling::float8,
                                               greatest(:seconds::float8, 2 * extract(epoch FROM :now - b.since)::float8))
                                         * interval '1 second') END
RETURNING until, failures

-- name: recover
-- A request of each of these scopes succeeded: end their back-offs.
DELETE FROM backoffs b USING unnest(:scopes::backoff_scope[], :subjects::int[]) AS s (scope, subject)
 WHERE b.scope = s.scope AND b.subject = s.subject

-- name: debts[]
-- Names that may be registered at GitHub but belong to no runner any more: chosen before that time, unsettled, their
-- claim given up or their runner gone. Every account has one place before any has a second (I26), for its oldest. If
-- a runner exited cleanly without a reported job, only its record at GitHub shows that it never had one (I39).
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
 WHERE m.state <> 'settled' AND m.chosen_at < :before AND (r.state = 'gone' OR r.name IS DISTINCT FROM m.name)
   AND m.not_before <= :now
   AND NOT EXISTS (SELECT FROM verdicts v WHERE v.runner_id = r.id AND r.name = m.name AND v.exit_code = 0
                      AND v.evidence ->> 'job' = 'unknown' AND r.gone_at > :now - interval '10 minutes')
 ORDER BY place, m.chosen_at, m.name
 LIMIT :limit

-- name: settle
-- Settle a name: its outcome at GitHub is known.
UPDATE mints SET state = 'settled', outcome = :outcome, settled_at = :now WHERE name = :name AND state <> 'settled'

-- name: postpone_debt
-- GitHub did not say; look again at :until.
UPDATE mints SET not_before = :until WHERE name = :name

-- name: steps[]
-- The durations of runners that got their job between two times. GitHub gives a job's time in whole
-- seconds; our own time is when the job's first delivery arrived. Live runners and those that ended since are read by an
-- index each: with OR between them, all runners of the history would be read.
SELECT p.name AS pool,
       extract(epoch FROM r.claimed_at - greatest(j.seen_at, j.queued_at))::float8 AS claimed,
       extract(epoch FROM r.armed_at - r.claimed_at)::float8 AS armed,
       extract(epoch FROM r.acknowledged_at - r.armed_at)::float8 AS acknowledged,
       extract(epoch FROM r.busy_at - r.acknowledged_at)::float8 AS in_progress
  FROM (SELECT * FROM runners WHERE account_id IS NOT NULL AND gone_at IS NULL
         UNION ALL
        SELECT * FROM runners WHERE gone_at > :after) r
  JOIN pools p ON p.id = r.pool_id
  JOIN accounts a ON a.id = r.account_id
  LEFT JOIN jobs j ON j.host_id = a.host_id AND j.id = r.hint_job_id
 WHERE r.busy_at > :after AND r.busy_at <= :until
 ORDER BY r.busy_at, r.id
