-- Versions of the runner program: which Pods have which, and until when GitHub accepts each.

-- name: note
-- Pods reported versions. A runner whose row is being written is left out: the next complete read notes it.
WITH told AS (
    SELECT r.id, r.spec_hash, s.version
      FROM unnest(:pods::text[], :uids::text[], :versions::text[]) AS s (name, uid, version)
      JOIN runners r ON r.pod_name = s.name AND (r.pod_uid IS NULL OR r.pod_uid = s.uid)
     WHERE r.gone_at IS NULL AND r.runner_version IS DISTINCT FROM s.version
     ORDER BY r.id
       FOR UPDATE OF r SKIP LOCKED
), noted AS (
    UPDATE runners r SET runner_version = t.version FROM told t WHERE r.id = t.id
    RETURNING r.spec_hash, r.runner_version AS version, r.created_at, r.id
)
INSERT INTO pod_versions AS p (spec_hash, version)
SELECT DISTINCT ON (spec_hash) spec_hash, version FROM noted ORDER BY spec_hash, created_at DESC, id DESC
    ON CONFLICT (spec_hash) DO UPDATE SET version = excluded.version WHERE p.version <> excluded.version

-- name: questions[]
-- Versions of pools and of live runners, with each account that has a use for the pool and is served: those of which
-- GitHub is to be asked at :now, those that have waited longest first. A user has no scope but repositories: the one
-- that was used last is asked.
WITH used AS (
    SELECT p.id AS pool_id, v.version
      FROM pools p JOIN pod_versions v ON v.spec_hash = p.spec_hash WHERE p.state <> 'deleted'
     UNION
    SELECT pool_id, runner_version FROM runners WHERE gone_at IS NULL AND runner_version IS NOT NULL
)
SELECT w.account_id AS account, w.version, h.name AS host, ap.github_id AS app, i.github_id AS installation, a.login,
       r.full_name AS repository
  FROM (SELECT DISTINCT k.account_id, u.version FROM used u JOIN demand_keys k ON k.pool_id = u.pool_id) w
  JOIN accounts a ON a.id = w.account_id
  JOIN hosts h ON h.id = a.host_id
  JOIN LATERAL (SELECT app_id, github_id FROM installations
                 WHERE account_id = a.id AND state = 'active' ORDER BY app_id LIMIT 1) i ON true
  JOIN apps ap ON ap.id = i.app_id
  LEFT JOIN LATERAL (SELECT full_name FROM repositories
                      WHERE account_id = a.id AND accessible AND a.kind = 'user'
                      ORDER BY active_at DESC NULLS LAST, id LIMIT 1) r ON true
  LEFT JOIN version_schedules s ON s.account_id = w.account_id AND s.version = w.version
 WHERE (s.ask_at IS NULL OR s.ask_at <= :now) AND (a.kind = 'organization' OR r.full_name IS NOT NULL)
 ORDER BY s.ask_at NULLS FIRST, w.account_id, w.version
 LIMIT :limit

-- name: answer
-- GitHub's dates for a version in an account; it is to be asked again at :ask_at.
INSERT INTO version_schedules AS s (account_id, version, registration_ends_at, runtime_ends_at, answered_at, ask_at)
VALUES (:account, :version, :registration_ends_at, :runtime_ends_at, :now, :ask_at)
    ON CONFLICT (account_id, version) DO UPDATE
   SET registration_ends_at = excluded.registration_ends_at, runtime_ends_at = excluded.runtime_ends_at,
       answered_at = excluded.answered_at, ask_at = excluded.ask_at

-- name: postpone
-- GitHub did not answer about a version in an account, or does not know it: ask again at :ask_at.
INSERT INTO version_schedules AS s (account_id, version, ask_at)
VALUES (:account, :version, :ask_at)
    ON CONFLICT (account_id, version) DO UPDATE SET ask_at = excluded.ask_at

-- name: refuse
-- GitHub refused a runner because of its version; a runner that had a job was not refused. (A job that became known
-- after its runner's end is in the job's row alone.) The n-th refusal in a row
-- stops the version for :seconds times 2^(n-1), :ceiling at most. A runner that is refused while its version is
-- stopped was claimed before: it does not count. If the version is not known, nothing is written. Returns the
-- runner's key.
WITH refused AS (
    SELECT key_id, account_id, runner_version FROM runners r
     WHERE id = :runner AND key_id IS NOT NULL AND job_id IS NULL AND job_marked_at IS NULL
       AND NOT EXISTS (SELECT FROM jobs j WHERE j.runner_id = r.id)
), stopped AS (
    INSERT INTO version_schedules AS s (account_id, version, ask_at, refusals, refused_at, refused_until)
    SELECT account_id, runner_version, :now, 1, :now, :now::timestamptz + :seconds::float8 * interval '1 second' FROM refused
     WHERE runner_version IS NOT NULL
        ON CONFLICT (account_id, version) DO UPDATE
       SET ask_at = least(s.ask_at, :now), refusals = s.refusals + 1, refused_at = :now,
           refused_until = :now + least(:seconds::float8 * 2.0 ^ least(s.refusals, 16), :ceiling::float8)
                                  * interval '1 second'
     WHERE s.refused_until IS NULL OR s.refused_until <= :now
)
SELECT key_id AS key, runner_version AS version FROM refused

-- name: accept
-- Runners of these versions, claimed at these times, got jobs: earlier refusals of these versions are over.
UPDATE version_schedules s SET refusals = 0, refused_at = NULL, refused_until = NULL
  FROM unnest(:accounts::int[], :versions::text[], :claimed_at::timestamptz[]) AS a (account_id, version, claimed_at)
 WHERE s.account_id = a.account_id AND s.version = a.version AND s.refused_at < a.claimed_at

-- name: forget
-- Schedules answered before a time, of versions that no pool and no live runner has. One without an answer counts from
-- when it was to be asked about.
DELETE FROM version_schedules s
 WHERE coalesce(s.answered_at, s.ask_at) < :before AND (s.refused_until IS NULL OR s.refused_until < :before)
   AND NOT EXISTS (SELECT FROM pod_versions v JOIN pools p ON p.spec_hash = v.spec_hash
                    WHERE v.version = s.version AND p.state <> 'deleted')
   AND NOT EXISTS (SELECT FROM runners r WHERE r.gone_at IS NULL AND r.runner_version = s.version)

-- name: refused[]
-- Versions that are refused at :now, by account.
SELECT v.account_id, array_agg(v.version ORDER BY v.version) AS versions
  FROM version_schedules v WHERE is_refused(v, :now) GROUP BY v.account_id ORDER BY v.account_id

-- name: pools[]
-- The version that each pool's newest Pods have, with the dates of the account in which it ends first, at :now. Of an
-- account that is not served GitHub is not asked, so its dates can be old ones.
SELECT p.name AS pool, v.version, e.login AS account, e.registration_ends_at, e.runtime_ends_at, e.refused_at,
       e.refused_until
  FROM pools p
  JOIN pod_versions v ON v.spec_hash = p.spec_hash
  LEFT JOIN LATERAL (
    SELECT a.login, s.registration_ends_at, s.runtime_ends_at,
           CASE WHEN s.refused_until > :now THEN s.refused_at END AS refused_at,
           CASE WHEN s.refused_until > :now THEN s.refused_until END AS refused_until
      FROM version_schedules s
      JOIN accounts a ON a.id = s.account_id
     WHERE s.version = v.version
       AND EXISTS (SELECT FROM demand_keys k WHERE k.pool_id = p.id AND k.account_id = s.account_id)
       AND EXISTS (SELECT FROM installations i WHERE i.account_id = s.account_id AND i.state = 'active')
     ORDER BY least(s.registration_ends_at, s.runtime_ends_at, CASE WHEN s.refused_until > :now THEN s.refused_at END)
              NULLS LAST, s.account_id
     LIMIT 1) e ON true
 WHERE p.state <> 'deleted'
 ORDER BY p.name
