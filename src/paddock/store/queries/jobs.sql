-- Jobs: their repositories and keys, one merge, one demotion, and what the comparison with GitHub reads.

-- name: note_repositories
-- Repositories as the jobs name them. A row is written only if something changed, and once a minute to record that
-- the repository is active.
INSERT INTO repositories AS r (host_id, github_id, account_id, full_name, active_at)
SELECT t.host_id, t.github_id, t.account_id, t.full_name, :now
  FROM unnest(:hosts::smallint[], :github_ids::bigint[], :accounts::int[], :full_names::text[])
       AS t (host_id, github_id, account_id, full_name)
 ORDER BY t.host_id, t.github_id
ON CONFLICT (host_id, github_id) DO UPDATE
   SET account_id = excluded.account_id, full_name = excluded.full_name, active_at = excluded.active_at
 WHERE (r.account_id, r.full_name) IS DISTINCT FROM (excluded.account_id, excluded.full_name)
    OR r.active_at IS NULL OR r.active_at < excluded.active_at - interval '1 minute'

-- name: note_keys
-- Demand keys as the jobs need them. :repositories are GitHub's ids.
INSERT INTO demand_keys (account_id, repository_id, runner_group_id, pool_id)
SELECT DISTINCT t.account_id, s.repository_id, at.runner_group_id, t.pool_id
  FROM unnest(:accounts::int[], :hosts::smallint[], :repositories::bigint[], :pools::int[])
       AS t (account_id, host_id, github_id, pool_id)
  JOIN repositories r ON r.host_id = t.host_id AND r.github_id = t.github_id
 CROSS JOIN LATERAL registration(t.account_id, t.pool_id) at
 CROSS JOIN LATERAL (SELECT CASE WHEN at.at_repository THEN r.id END) AS s (repository_id)
 WHERE NOT EXISTS (SELECT FROM demand_keys k
                    WHERE k.account_id = t.account_id AND k.pool_id = t.pool_id
                      AND k.repository_id IS NOT DISTINCT FROM s.repository_id
                      AND k.runner_group_id = at.runner_group_id)
 ORDER BY 1, 2, 3, 4
ON CONFLICT (account_id, repository_id, runner_group_id, pool_id) DO NOTHING

-- name: places[]
-- Our ids of the repositories and keys of jobs, in the jobs' order; no key for a job without a pool. `noted`: the rows
-- already hold what the job says, and that its repository was active within a minute before :now.
SELECT r.id AS repository_id, k.id AS key_id,
       coalesce((r.account_id, r.full_name) = (t.account_id, t.full_name)
                AND r.active_at >= :now::timestamptz - interval '1 minute'
                AND (t.pool_id IS NULL OR k.id IS NOT NULL), false) AS noted
  FROM unnest(:accounts::int[], :hosts::smallint[], :repositories::bigint[], :pools::int[], :full_names::text[])
       WITH ORDINALITY AS t (account_id, host_id, github_id, pool_id, full_name, position)
  LEFT JOIN repositories r ON r.host_id = t.host_id AND r.github_id = t.github_id
  LEFT JOIN LATERAL registration(t.account_id, t.pool_id) at ON true
  LEFT JOIN demand_keys k ON k.account_id = t.account_id AND k.pool_id = t.pool_id
                         AND k.repository_id IS NOT DISTINCT FROM CASE WHEN at.at_repository THEN r.id END
                         AND k.runner_group_id = at.runner_group_id
 ORDER BY t.position

-- name: merge
-- Merge the reports into the rows by the rules of paddock.domain.jobs.facts.merge. Every replica locks rows in the same
-- order, so that two batches wait for each other instead of deadlocking.
INSERT INTO jobs AS j (host_id, id, account_id, repository_id, run_id, run_attempt, name, workflow, labels,
                       state, key_id, refusal, refusal_detail, created_at, waited, known_queued_at,
                       started_at, completed_at, conclusion, executor_id, executor_name, seen_at, since,
                       actor, why)
SELECT n.host_id, n.id, n.account_id, n.repository_id, n.run_id, n.run_attempt, n.name, n.workflow,
       string_to_array(n.labels, E'\n'), n.state, n.key_id, n.refusal, n.refusal_detail, n.created_at,
       n.waited, n.known_queued_at, n.started_at, n.completed_at, n.conclusion, n.executor_id,
       n.executor_name, :now, :now, :actor, :why
  FROM unnest(:hosts::smallint[], :ids::bigint[], :accounts::int[], :repositories::int[], :run_ids::bigint[],
              :run_attempts::int[], :names::text[], :workflows::text[], :labels::text[], :states::job_state[],
              :keys::int[], :refusals::text[], :refusal_details::text[],
              :created_at::timestamptz[], :waited::boolean[], :known_queued_at::timestamptz[], :started_at::timestamptz[],
              :completed_at::timestamptz[], :conclusions::text[], :executor_ids::bigint[], :executor_names::text[])
       AS n (host_id, id, account_id, repository_id, run_id, run_attempt, name, workflow, labels, state,
             key_id, refusal, refusal_detail, created_at, waited, known_queued_at, started_at,
             completed_at, conclusion, executor_id, executor_name)
 ORDER BY n.host_id, n.id
ON CONFLICT (host_id, id) DO UPDATE
   SET state = greatest(j.state, excluded.state),
       created_at = least(j.created_at, excluded.created_at),
       waited = j.waited OR excluded.waited,
       known_queued_at = least(j.known_queued_at, excluded.known_queued_at),
       started_at = least(j.started_at, excluded.started_at),
       completed_at = least(j.completed_at, excluded.completed_at),
       conclusion = CASE WHEN (excluded.completed_at, excluded.conclusion) < (j.completed_at, j.conclusion)
                         THEN excluded.conclusion ELSE coalesce(j.conclusion, excluded.conclusion) END,
       executor_id = greatest(j.executor_id, excluded.executor_id),
       executor_name = CASE WHEN (excluded.executor_id, excluded.executor_name) > (j.executor_id, j.executor_name)
                            THEN excluded.executor_name ELSE coalesce(j.executor_name, excluded.executor_name) END,
       since = CASE WHEN excluded.state > j.state THEN excluded.since ELSE j.since END,
       actor = CASE WHEN excluded.state > j.state THEN excluded.actor ELSE j.actor END,
       why = CASE WHEN excluded.state > j.state THEN excluded.why ELSE j.why END

-- name: executors[]
-- Our runners that events name as executors: by GitHub's id within the tenant, by name only while the id is unknown
-- (I5).
SELECT e.position, r.id, r.name, r.pod_name, r.state, r.generation, r.forced_by IS NOT NULL AS forced
  FROM unnest(:accounts::int[], :github_ids::bigint[], :names::text[]) WITH ORDINALITY
       AS e (account_id, github_id, name, position)
  JOIN mints m ON m.name = e.name
  JOIN runners r ON r.id = m.runner_id AND r.account_id = e.account_id AND r.name = e.name
                AND (r.github_id = e.github_id OR r.github_id IS NULL)
 ORDER BY e.position
   FOR UPDATE OF r

-- name: attribute
-- Jobs were executed by our runners.
UPDATE jobs j SET runner_id = e.runner_id
  FROM unnest(:hosts::smallint[], :jobs::bigint[], :runners::uuid[]) AS e (host_id, id, runner_id)
 WHERE j.host_id = e.host_id AND j.id = e.id AND j.runner_id IS DISTINCT FROM e.runner_id

-- name: heard_of
-- The outcome of these runners is known now: an ended one no longer counts as supply.
DELETE FROM supply_graces WHERE runner_id = ANY (:runners)

-- name: demote
-- in_progress → queued, because GitHub says so and the job's runner is gone or not one of paddock's. No other statement
-- lowers a job's state. If the job began on a runner of paddock since GitHub was asked, nothing changes.
UPDATE jobs
   SET state = 'queued', demotions = demotions + 1, requeued_at = :now, runner_id = NULL, executor_id = NULL,
       executor_name = NULL, started_at = NULL, since = :now, actor = :actor, why = :why
 WHERE host_id = :host AND id = :job AND state = 'in_progress'
   AND (runner_id IS NULL OR EXISTS (SELECT FROM runners r WHERE r.id = jobs.runner_id AND r.state = 'gone'))
RETURNING id, (SELECT k.pool_id FROM demand_keys k WHERE k.id = jobs.key_id) AS pool_id

-- name: abandon
-- A GitHub host has lost its jobs: complete those that have not ended here.
UPDATE jobs j
   SET state = 'completed', completed_at = :now, conclusion = 'stale', since = :now, actor = :actor, why = :why
  FROM hosts h
 WHERE h.name = :host AND j.host_id = h.id AND j.state <> 'completed'

-- name: read
-- One job.
SELECT * FROM jobs WHERE host_id = :host AND id = :job

-- name: repositories[]
-- Repositories active after :since or with jobs that have not ended, which one of the :apps may read now. For an
-- account served through several Apps the first App asks.
SELECT r.id, r.host_id AS host, r.github_id, r.full_name, r.account_id AS account, i.app_id AS app,
       i.github_id AS installation, r.active_at, c.compared_at,
       EXISTS (SELECT FROM jobs j WHERE j.repository_id = r.id AND j.state <> 'completed') AS has_open_jobs
  FROM repositories r
  JOIN LATERAL (SELECT i.app_id, i.github_id FROM installations i
                 WHERE i.account_id = r.account_id AND i.state = 'active' AND i.app_id = ANY (:apps)
                 ORDER BY i.app_id LIMIT 1) i ON true
  LEFT JOIN comparisons c ON c.repository_id = r.id
 WHERE r.accessible
   AND r.id IN (SELECT a.id FROM repositories a WHERE a.active_at >= :since
                 UNION
                SELECT j.repository_id FROM jobs j WHERE j.state <> 'completed')
 ORDER BY r.id

-- name: open_jobs[]
-- The jobs of a repository that have not ended.
SELECT id, state, since FROM jobs WHERE repository_id = :repository AND state <> 'completed' ORDER BY id

-- name: states[]
-- What is known of these jobs of a host.
SELECT id, state FROM jobs WHERE host_id = :host AND id = ANY (:jobs) ORDER BY id

-- name: compared
-- A repository was compared.
INSERT INTO comparisons (repository_id, compared_at) VALUES (:repository, :now)
ON CONFLICT (repository_id) DO UPDATE SET compared_at = excluded.compared_at
