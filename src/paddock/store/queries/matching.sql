-- The matcher's reads and its one write, under its lock.

-- name: demand
-- What changes from match to match, in one row of lists: what each key holds; per key with demand its oldest jobs
-- that no supply is on its way to; back-offs; the mints each App has left; and which terms hold. $1: how many
-- Pods ask; $2: how many jobs to read per key (NULL: as many as a fair share needs); $3: now.
-- The walk over the keys is a loose index scan: it costs one probe per key, whatever the queue's depth.
WITH RECURSIVE demanded (key_id) AS (
    (SELECT key_id FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL ORDER BY key_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.key_id FROM jobs j
             WHERE j.state = 'queued' AND j.key_id > d.key_id ORDER BY j.key_id LIMIT 1)
      FROM demanded d WHERE d.key_id IS NOT NULL
), held AS MATERIALIZED (
    SELECT key_id, count(*)::int AS runners, sum(vcpu_milli) AS vcpu_milli, sum(memory_mib) AS memory_mib,
           count(*) FILTER (WHERE state IN ('claimed', 'armed', 'running') AND suspect_at IS NULL
                               -- Busy by its own word: which of the queued jobs it has is told any moment (I73).
                               OR state = 'busy' AND job_id IS NULL AND busy_at > $3::timestamptz - interval '2 minutes') AS supply
      FROM runners
     WHERE key_id IS NOT NULL AND gone_at IS NULL
     GROUP BY key_id
), echoing AS (
    -- Runners that ended and whose job may have been done: served again only when that is known (I68).
    SELECT key_id, count(*) AS supply FROM echoes WHERE until > $3 GROUP BY key_id
), depth (jobs) AS (
    SELECT coalesce($2, greatest(1, 2 * $1 / greatest(1, (SELECT count(*) FROM demanded WHERE key_id IS NOT NULL))))::int
), unserved AS (
    SELECT d.key_id, j.queued_at, j.id
      FROM demanded d
      LEFT JOIN held h ON h.key_id = d.key_id
      LEFT JOIN echoing e ON e.key_id = d.key_id
     CROSS JOIN LATERAL (
        SELECT queued_at, id FROM jobs
         WHERE state = 'queued' AND jobs.key_id = d.key_id
         ORDER BY queued_at, id OFFSET coalesce(h.supply, 0) + coalesce(e.supply, 0) LIMIT (SELECT jobs FROM depth)) j
     WHERE d.key_id IS NOT NULL
), tokens AS (
    SELECT ap.id AS app_id,
           least(floor(tokens_at(b, $3))::int,
                 ap.mints_per_minute - (SELECT count(*) FROM mints m
                                         WHERE ap.mints_per_minute IS NOT NULL AND m.app_id = ap.id
                                           AND m.chosen_at > $3 - interval '60 seconds')::int) AS mints
      FROM apps ap LEFT JOIN budgets b ON b.app_id = ap.id AND b.bucket = 'mint'
)
SELECT (SELECT version FROM terms) AS terms, (SELECT jobs FROM depth) AS depth, h.*, u.*, t.*, b.*
  FROM (SELECT array_agg(key_id) AS held_keys, array_agg(runners) AS runners,
               array_agg(vcpu_milli) AS vcpu_milli, array_agg(memory_mib) AS memory_mib FROM held) h,
       (SELECT array_agg(key_id) AS job_keys, array_agg(queued_at) AS queued_at, array_agg(id) AS job_ids
          FROM (SELECT * FROM unserved ORDER BY key_id, queued_at, id) ordered) u,
       (SELECT array_agg(app_id) AS apps, array_agg(mints) AS mints FROM tokens) t,
       (SELECT array_agg(scope::text) AS backoff_scopes, array_agg(subject) AS backoff_subjects
          FROM backoffs WHERE until > $3) b

-- name: terms[]
-- What binds keys $1 (account, repository, pool, installation, pauses) and what a claim of them needs to be minted.
SELECT k.id, k.account_id, k.pool_id, k.repository_id, k.runner_group_id,
       a.weight, a.max_runners, a.max_vcpu_milli, a.max_memory_mib, a.login, ho.name AS host,
       r.max_runners AS repository_max_runners, r.max_vcpu_milli AS repository_max_vcpu_milli,
       r.max_memory_mib AS repository_max_memory_mib, r.full_name AS repository,
       p.vcpu_milli, p.memory_mib, p.max_runners AS pool_max_runners, p.labels,
       s.app_id, s.installation_id, ap.github_id AS github_app,
       a.paused_at IS NOT NULL OR p.paused_at IS NOT NULL OR p.state <> 'active'
       OR EXISTS (SELECT FROM dispatch_pauses) AS paused
  FROM demand_keys k
  JOIN accounts a ON a.id = k.account_id
  JOIN hosts ho ON ho.id = a.host_id
  JOIN pools p ON p.id = k.pool_id
  LEFT JOIN repositories r ON r.id = k.repository_id
  LEFT JOIN LATERAL (SELECT app_id, github_id AS installation_id FROM installations i
                      WHERE i.account_id = a.id AND i.state = 'active' ORDER BY app_id LIMIT 1) s ON true
  LEFT JOIN apps ap ON ap.id = s.app_id
 WHERE k.id = ANY ($1)
 ORDER BY k.id

-- name: claim[]
-- Write all claims of a batch: the rows, the names, the tokens. A Pod that is no longer idle in the
-- generation it asked in is left out, and nothing is spent for it.
WITH wanted AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::int[], $6::text[], $7::bigint[])
        AS w (id, generation, key_id, account_id, app_id, name, hint_job_id)
), claimed AS (
    UPDATE runners r
       SET state = 'claimed', generation = r.generation + 1, version = r.version + 1,
           since = $8, actor = $9, why = 'matched with demand', evidence = NULL,
           key_id = w.key_id, account_id = w.account_id, name = w.name, hint_job_id = w.hint_job_id,
           claimed_at = $8, mint_deadline = $10
      FROM wanted w
     WHERE r.id = w.id AND r.state = 'idle' AND r.generation = w.generation
    RETURNING r.id, r.generation, r.name, r.key_id, w.app_id
), named AS (
    INSERT INTO mints (name, runner_id, generation, key_id, app_id, chosen_at)
    SELECT name, id, generation, key_id, app_id, $8 FROM claimed
), spent AS (
    UPDATE budgets b
       SET tokens = tokens_at(b, $8) - s.mints, as_of = greatest(b.as_of, $8)
      FROM (SELECT app_id, count(*) AS mints FROM claimed GROUP BY app_id) s
     WHERE b.app_id = s.app_id AND b.bucket = 'mint'
)
SELECT id FROM claimed ORDER BY id

-- name: claim_of
-- The claim of runner $1, as its mint needs it.
SELECT r.id, r.generation, r.name, r.key_id, r.account_id, r.hint_job_id, r.mint_deadline, k.runner_group_id,
       m.app_id, ap.github_id AS github_app, i.github_id AS installation_id, h.name AS host, a.login,
       rep.full_name AS repository, p.labels
  FROM runners r
  JOIN mints m ON m.name = r.name
  JOIN demand_keys k ON k.id = r.key_id
  JOIN pools p ON p.id = k.pool_id
  JOIN accounts a ON a.id = r.account_id
  JOIN hosts h ON h.id = a.host_id
  JOIN apps ap ON ap.id = m.app_id
  JOIN LATERAL (SELECT github_id FROM installations i WHERE i.account_id = a.id AND i.app_id = m.app_id
                 ORDER BY i.state, i.read_at DESC LIMIT 1) i ON true
  LEFT JOIN repositories rep ON rep.id = k.repository_id
 WHERE r.id = $1
