-- What recovery reads and writes.

-- name: present
-- Pods seen in a complete read, and whether the runner container of each ever started. A row is written only if
-- something is new. A seen Pod is not absent; once started, a container stays `started`.
UPDATE runners r
   SET absent_reads = 0, absent_since = NULL, pod_uid = coalesce(r.pod_uid, s.uid),
       node = coalesce(s.node, r.node),
       started = CASE WHEN r.started THEN true ELSE coalesce(s.started, r.started) END
  FROM unnest(:pods::text[], :uids::text[], :nodes::text[], :started::boolean[]) AS s (name, uid, node, started)
 WHERE r.pod_name = s.name AND r.gone_at IS NULL AND (r.pod_uid IS NULL OR r.pod_uid = s.uid)
   AND (r.absent_reads > 0 OR r.pod_uid IS NULL OR r.node IS DISTINCT FROM coalesce(s.node, r.node)
        OR (r.started IS NOT TRUE AND s.started IS NOT NULL AND r.started IS DISTINCT FROM s.started))

-- name: absent
-- Count one more absence for runners whose Pod was not in a complete read begun at :read_at (I29). A runner created
-- after the read began is left out: its absence proves nothing.
UPDATE runners r
   SET absent_reads = r.absent_reads + 1, absent_since = coalesce(r.absent_since, :now)
 WHERE r.gone_at IS NULL AND r.created_at < :read_at
   AND NOT EXISTS (SELECT FROM unnest(:pods::text[], :uids::text[]) AS s (name, uid)
                    WHERE s.name = r.pod_name AND (r.pod_uid IS NULL OR r.pod_uid = s.uid))

-- name: expected
-- How many live runners have had a Pod.
SELECT count(*) FROM runners WHERE gone_at IS NULL AND pod_uid IS NOT NULL

-- name: deregistered
-- A retiring runner has no record at GitHub any more; its name is settled with the outcome, or stays a debt (NULL).
WITH noted AS (
    UPDATE runners SET deregistered_at = :now
     WHERE id = :runner AND generation = :generation AND state = 'retiring' AND deregistered_at IS NULL
    RETURNING *
), settled AS (
    UPDATE mints m SET state = 'settled', outcome = :outcome, settled_at = :now
      FROM noted n WHERE m.name = n.name AND m.state <> 'settled' AND :outcome::text IS NOT NULL
)
SELECT * FROM noted

-- name: proved
-- A retiring runner showed no job after its deregistration.
UPDATE runners SET proved_at = :now
 WHERE id = :runner AND generation = :generation AND state = 'retiring' AND proved_at IS NULL
   AND deregistered_at IS NOT NULL
RETURNING *

-- name: deletion_asked
-- Recovery is about to ask the fleet to delete the Pod of a retiring runner. Also stores whether its runner container
-- was seen started.
UPDATE runners SET deletion_asked_at = coalesce(deletion_asked_at, :now),
       started = CASE WHEN started THEN true ELSE coalesce(:started, started) END
 WHERE id = :runner AND generation = :generation AND state = 'retiring'
RETURNING *

-- name: suspect
-- A runner no longer counts as supply: one replacement is given out.
WITH noted AS (
    UPDATE runners SET suspect_at = :now
     WHERE id = :runner AND generation = :generation AND state IN ('armed', 'running') AND suspect_at IS NULL
    RETURNING *
), told AS MATERIALIZED (
    SELECT pg_notify('paddock', 'demand') FROM noted
)
SELECT n.* FROM noted n LEFT JOIN told ON true

-- name: unsuspect
-- GitHub sees the runner online after all: it is supply again.
UPDATE runners SET suspect_at = NULL WHERE id = :runner AND generation = :generation AND suspect_at IS NOT NULL
RETURNING *

-- name: balances[]
-- Per key with runners: its supply at :now, its queued jobs (counted up to one more than the supply), its recent runners
-- (acknowledged since :recent), and how many of those are suspect.
SELECT r.key_id, coalesce(s.total, 0) AS supply, r.recent, r.suspects,
       (SELECT count(*) FROM (SELECT FROM jobs j WHERE j.state = 'queued' AND j.key_id = r.key_id
                               ORDER BY j.queued_at, j.id LIMIT coalesce(s.total, 0) + 1) q) AS queued
  FROM (SELECT key_id,
               count(*) FILTER (WHERE acknowledged_at > :recent) AS recent,
               count(*) FILTER (WHERE acknowledged_at > :recent AND suspect_at IS NOT NULL
                                  AND state IN ('armed', 'running')) AS suspects
          FROM runners WHERE gone_at IS NULL AND account_id IS NOT NULL GROUP BY key_id) r
  LEFT JOIN supply(:now) s ON s.key_id = r.key_id
 ORDER BY r.key_id

-- name: places[]
-- Where and through which installation the runners of these keys are registered; no row for a key whose account has
-- no active installation of one of the :apps (of any, if that is empty).
SELECT k.id AS key, h.id AS host_id, h.name AS host, ap.github_id AS app, i.github_id AS installation, a.login,
       rep.full_name AS repository, k.pool_id AS pool, k.account_id AS account
  FROM demand_keys k
  JOIN accounts a ON a.id = k.account_id
  JOIN LATERAL (SELECT i.app_id, i.github_id FROM installations i
                 WHERE i.account_id = a.id AND i.state = 'active'
                   AND (cardinality(:apps::int[]) = 0 OR i.app_id = ANY (:apps))
                 ORDER BY i.app_id LIMIT 1) i ON true
  JOIN apps ap ON ap.id = i.app_id
  JOIN hosts h ON h.id = ap.host_id
  LEFT JOIN repositories rep ON rep.id = k.repository_id
 WHERE k.id = ANY (:keys)
 ORDER BY k.id

-- name: removed_accounts[]
-- Accounts whose installations are all removed, and the confirmations of the one confirmed least. (An installation that
-- a newer one of its App has replaced was not confirmed and need not be.)
SELECT i.account_id, coalesce(min(r.confirmations), 0) AS confirmations
  FROM installations i
  LEFT JOIN removals r ON r.host_id = i.host_id AND r.github_id = i.github_id
 GROUP BY i.account_id
HAVING bool_and(i.state = 'removed')
 ORDER BY i.account_id

-- name: runner_scopes[]
-- Every scope where paddock's runners may be registered: each organisation, and each repository that has a key. Each
-- with the installation through which its account is or was served, and the keys of the scope by pool. An
-- installation of one of the :apps comes first.
SELECT h.name AS host, ap.github_id AS app, i.github_id AS installation, i.state, a.login, s.repository, s.pools, s.keys
  FROM accounts a
  JOIN hosts h ON h.id = a.host_id
  JOIN LATERAL (SELECT i.app_id, i.github_id, i.state FROM installations i
                 WHERE i.account_id = a.id
                 ORDER BY i.state, i.app_id <> ALL (:apps), i.app_id, i.github_id DESC LIMIT 1) i ON true
  JOIN apps ap ON ap.id = i.app_id
  JOIN LATERAL (
        SELECT rep.full_name AS repository, array_agg(p.name ORDER BY k.id) AS pools, array_agg(k.id ORDER BY k.id) AS keys
          FROM demand_keys k
          JOIN pools p ON p.id = k.pool_id
          LEFT JOIN repositories rep ON rep.id = k.repository_id
         WHERE k.account_id = a.id
         GROUP BY rep.full_name
         UNION ALL
        SELECT NULL, '{}', '{}'
         WHERE a.kind = 'organization'
           AND NOT EXISTS (SELECT FROM demand_keys k WHERE k.account_id = a.id AND k.repository_id IS NULL)) s ON true
 ORDER BY h.name, a.login, a.id, s.repository NULLS FIRST

-- name: of_pods[]
-- What is known of these Pods, also of those that have ended.
SELECT * FROM runners WHERE pod_name = ANY (:pods) ORDER BY pod_name

-- name: adopt
-- A Pod without a row gets one, in the pool of that name, and retires at once: the matcher claims nothing for a Pod
-- of unknown history. :key, :name, :github_id and :delivery are given if GitHub has a record of it.
INSERT INTO runners (id, pool_id, shape, vcpu_milli, memory_mib, spec_hash, pod_name, pod_uid, node, created_at,
                     state, since, actor, why, retiring_at, retire_reason, retired, started, generation,
                     key_id, account_id, name, github_id, delivery_id, claimed_at, armed_at, acknowledged_at)
SELECT :runner, p.id, p.shape, p.vcpu_milli, p.memory_mib, 'adopted', :pod, :uid, :node, :created_at,
       'retiring', :now, :actor, :why, :now, :why, 'given-up', :started, :generation,
       k.id, k.account_id, CASE WHEN k.id IS NOT NULL THEN :name END,
       CASE WHEN k.id IS NOT NULL THEN :github_id::bigint END,
       CASE WHEN k.id IS NOT NULL THEN :delivery::uuid END, CASE WHEN k.id IS NOT NULL THEN :now::timestamptz END,
       CASE WHEN k.id IS NOT NULL THEN :now::timestamptz END, CASE WHEN k.id IS NOT NULL THEN :now::timestamptz END
  FROM (SELECT * FROM pools WHERE name = :pool ORDER BY (state = 'deleted'), id DESC LIMIT 1) p
  LEFT JOIN demand_keys k ON k.id = :key
ON CONFLICT (pod_name) DO NOTHING
RETURNING *

-- name: identify
-- A retiring runner has a record at GitHub that its row did not know (a restored backup).
UPDATE runners r
   SET key_id = k.id, account_id = k.account_id, name = :name, github_id = :github_id, delivery_id = :delivery,
       claimed_at = :now, armed_at = :now, acknowledged_at = :now
  FROM demand_keys k
 WHERE k.id = :key AND r.id = :runner AND r.generation = :generation AND r.state = 'retiring' AND r.name IS NULL
RETURNING r.*

-- name: adopted_mint
-- The name under which GitHub knows an adopted runner, so that GitHub's events find the runner.
INSERT INTO mints (name, runner_id, generation, key_id, app_id, installation_id, chosen_at, state, github_id)
SELECT :name, :runner, :generation, :key, i.app_id, i.github_id, :now, 'minted', :github_id
  FROM demand_keys k
  JOIN LATERAL (SELECT app_id, github_id FROM installations i WHERE i.account_id = k.account_id
                 ORDER BY i.state, i.app_id LIMIT 1) i ON true
 WHERE k.id = :key
ON CONFLICT DO NOTHING

-- name: supply_graces[]
-- Runners that ended without a reported job and still count as supply at :now, with the job each was claimed for.
SELECT e.runner_id AS runner, e.key_id AS key, e.until, a.host_id AS host, r.hint_job_id AS hint
  FROM supply_graces e
  JOIN runners r ON r.id = e.runner_id
  JOIN demand_keys k ON k.id = e.key_id
  JOIN accounts a ON a.id = k.account_id
 WHERE e.until > :now
 ORDER BY e.until, e.runner_id

-- name: end_supply_grace
-- The job's outcome is known: the runner no longer counts as supply.
DELETE FROM supply_graces WHERE runner_id = :runner

-- name: expired_grace
-- One grace that ended before :now, if there is any. It is read before `end_old_supply_graces`, because a DELETE wakes the
-- matchers even if it deletes no row.
SELECT runner_id FROM supply_graces WHERE until <= :now ORDER BY until, runner_id LIMIT 1

-- name: end_old_supply_graces
-- Delete the graces that ended before :now: the outcome of their jobs stayed unknown for too long.
DELETE FROM supply_graces WHERE until <= :now

-- name: repositories_of[]
-- The repositories of jobs, and which of the :apps can ask about each.
SELECT j.id AS job, j.state, r.id, r.host_id AS host, r.github_id, r.full_name, r.account_id AS account, i.app_id AS app,
       i.github_id AS installation, r.active_at
  FROM jobs j
  JOIN repositories r ON r.id = j.repository_id
  JOIN LATERAL (SELECT i.app_id, i.github_id FROM installations i
                 WHERE i.account_id = r.account_id AND i.state = 'active' AND i.app_id = ANY (:apps)
                 ORDER BY i.app_id LIMIT 1) i ON true
 WHERE j.host_id = :host AND j.id = ANY (:jobs)
 ORDER BY j.id

-- name: job_words[]
-- For live runners with a key: our state of the job that each executes, and of the job it was claimed for, unless
-- another runner is known to execute that one.
SELECT r.id, a.host_id AS host, j.state AS job, h.state AS hint
  FROM runners r
  JOIN accounts a ON a.id = r.account_id
  LEFT JOIN jobs j ON j.host_id = a.host_id AND j.id = r.job_id
  LEFT JOIN jobs h ON h.host_id = a.host_id AND h.id = r.hint_job_id
                  AND (h.executor_id IS NULL OR h.runner_id IS NOT DISTINCT FROM r.id)
 WHERE r.gone_at IS NULL AND r.account_id IS NOT NULL
 ORDER BY r.id

-- name: oldest_queued[]
-- The oldest queued jobs, :limit of each key.
SELECT k.key_id, q.host_id, q.id
  FROM unnest(:keys::int[]) AS k (key_id)
 CROSS JOIN LATERAL (SELECT j.host_id, j.id, j.queued_at FROM jobs j
                      WHERE j.state = 'queued' AND j.key_id = k.key_id ORDER BY j.queued_at, j.id LIMIT :limit) q
 ORDER BY k.key_id, q.queued_at, q.id

-- name: unreadable_repositories[]
-- The repositories that recovery does not ask GitHub about at present: those of the :paused_apps, of their
-- :installations (NULL: all) and of the :repositories named in those (NULL: all). For each account the first of the
-- :apps asks.
SELECT DISTINCT r.id
  FROM unnest(:paused_apps::int[], :installations::bigint[], :repositories::text[])
       AS p (app_id, installation_id, repository)
  JOIN installations i ON i.app_id = p.app_id AND i.state = 'active'
                      AND (p.installation_id IS NULL OR i.github_id = p.installation_id)
  JOIN repositories r ON r.account_id = i.account_id AND (p.repository IS NULL OR lower(r.full_name) = lower(p.repository))
 WHERE NOT EXISTS (SELECT FROM installations f WHERE f.account_id = i.account_id AND f.state = 'active'
                      AND f.app_id < i.app_id AND f.app_id = ANY (:apps))
 ORDER BY r.id

-- name: jobs_in_doubt[]
-- Jobs that recovery should ask GitHub about:
-- in progress on a runner of paddock that was gone before :gone_before, or in progress before :running_before;
-- queued before :waiting_before while runners of their key run that should have got them, or before :expired_before;
-- waiting for an approval, or on a runner that is not paddock's, before :unheard_before;
-- not begun here, while GitHub did not know them or did not show them;
-- and in any case :also_jobs.
-- Left out are jobs asked about after :asked_before (in progress before :running_before: after that; waiting, or on a
-- foreign runner: after :unheard_before), and jobs of :unreadable repositories. Every account has one place before any
-- has a second (I26), for the job asked about least recently.
SELECT j.host_id AS host, j.id, j.state, j.queued_at, j.since, j.key_id AS key, j.runner_id, r.gone_at AS runner_gone_at,
       j.executor_id, coalesce(s.total, 0) AS supply, c.checked_at, c.answer, coalesce(c.times, 0) AS times, c.waits_because
  FROM (SELECT j.host_id, j.id,
               row_number() OVER (PARTITION BY j.account_id
                                  ORDER BY c.checked_at NULLS FIRST, j.queued_at, j.host_id, j.id) AS place
          FROM jobs j
          LEFT JOIN runners r ON r.id = j.runner_id
          LEFT JOIN job_checks c ON c.host_id = j.host_id AND c.job_id = j.id
         WHERE j.state <> 'completed' AND j.repository_id <> ALL (:unreadable::int[])
           AND ((j.host_id, j.id) IN (SELECT * FROM unnest(:also_hosts::smallint[], :also_jobs::bigint[]))
                OR (c.checked_at IS NULL OR c.checked_at < :asked_before)
                   AND CASE WHEN j.state <> 'in_progress' AND c.answer IN ('absent', 'repository gone', 'unreadable') THEN true
                            WHEN j.state = 'waiting'
                            THEN j.since < :unheard_before AND (c.checked_at IS NULL OR c.checked_at < :unheard_before)
                            WHEN j.state = 'queued'
                            THEN j.queued_at < :expired_before
                                 OR (j.host_id, j.id) IN (
                                    SELECT q.host_id, q.id
                                      FROM (SELECT DISTINCT key_id FROM runners
                                             WHERE gone_at IS NULL AND state = 'running' AND key_id IS NOT NULL) k
                                     CROSS JOIN LATERAL (SELECT w.host_id, w.id FROM jobs w
                                                          WHERE w.state = 'queued' AND w.key_id = k.key_id
                                                            AND w.since < :waiting_before
                                                          ORDER BY w.queued_at, w.id LIMIT :limit) q)
                            WHEN j.runner_id IS NULL
                            THEN j.since < :unheard_before
                                 AND (c.checked_at IS NULL OR c.checked_at < :unheard_before OR c.answer = 'queued')
                            ELSE r.gone_at < :gone_before
                                 OR j.since < :running_before AND (c.checked_at IS NULL OR c.checked_at < :running_before) END)
         ORDER BY place, c.checked_at NULLS FIRST, j.queued_at, j.host_id, j.id
         LIMIT :limit) d
  JOIN jobs j ON j.host_id = d.host_id AND j.id = d.id
  LEFT JOIN runners r ON r.id = j.runner_id
  LEFT JOIN supply(:now) s ON s.key_id = j.key_id
  LEFT JOIN job_checks c ON c.host_id = j.host_id AND c.job_id = j.id
 ORDER BY d.place, c.checked_at NULLS FIRST, j.queued_at, j.host_id, j.id

-- name: open_verdicts[]
-- Runners that ended between two times with a JIT and without a reported job, and the outcome of their
-- record at GitHub. Every account has one place before any has a second (I26), its oldest first. Those of :unreadable
-- repositories and the runners :but are left out.
SELECT o.*
  FROM (SELECT r.id AS runner, r.key_id AS key, r.github_id, r.name, a.host_id AS host, r.hint_job_id AS hint_job,
               v.ended_at, v.evidence, m.outcome, CASE WHEN h.executor_id IS NULL OR h.runner_id IS NOT DISTINCT FROM r.id THEN h.state END AS hint,
               row_number() OVER (PARTITION BY r.account_id ORDER BY v.ended_at, r.id) AS place
          FROM verdicts v
          JOIN runners r ON r.id = v.runner_id
          JOIN accounts a ON a.id = r.account_id
          JOIN demand_keys k ON k.id = r.key_id
          LEFT JOIN mints m ON m.name = r.name
          LEFT JOIN jobs h ON h.host_id = a.host_id AND h.id = r.hint_job_id
         WHERE v.ended_at > :after AND v.ended_at <= :until AND r.delivery_id IS NOT NULL AND r.job_id IS NULL
           AND v.evidence ->> 'job' = 'unknown'
           AND NOT EXISTS (SELECT FROM jobs j WHERE j.runner_id = r.id)
           AND (coalesce(k.repository_id, h.repository_id) = ANY (:unreadable::int[])) IS NOT TRUE
           AND r.id <> ALL (:but::uuid[])) o
 ORDER BY o.place, o.ended_at, o.runner
 LIMIT :limit

-- name: checked
-- GitHub's answer about a job, and why the job waits, if that is known. Counts equal answers in a row.
INSERT INTO job_checks AS c (host_id, job_id, checked_at, answer, times, waits_because)
SELECT j.host_id, j.id, :now, :answer, 1, :waits_because FROM jobs j WHERE j.host_id = :host AND j.id = :job
ON CONFLICT (host_id, job_id) DO UPDATE
   SET times = CASE WHEN c.answer = excluded.answer THEN c.times + 1 ELSE 1 END,
       answer = excluded.answer, checked_at = excluded.checked_at, waits_because = excluded.waits_because
RETURNING times

-- name: explain
-- Why a job waits, as far as is known.
UPDATE job_checks SET waits_because = :waits_because WHERE host_id = :host AND job_id = :job

-- name: withhold[]
-- The queued jobs of a key that GitHub was found not to assign are no demand for a while from :now on: :seconds times
-- 2^(n-1) the n-th time, :ceiling at most. Others of the key are served as before.
WITH unassigned AS (
    UPDATE job_checks c
       SET withheld = c.withheld + 1,
           withheld_until = :now::timestamptz + least(:seconds::float8 * 2.0 ^ least(c.withheld, 16), :ceiling::float8)
                                                * interval '1 second'
      FROM jobs j
     WHERE j.host_id = c.host_id AND j.id = c.job_id AND j.key_id = :key AND j.state = 'queued'
       AND c.waits_because IS NOT NULL
    RETURNING c.host_id, c.job_id, c.waits_because
), refused AS (
    UPDATE jobs j SET key_id = NULL, refusal = :refusal, refusal_detail = u.waits_because
      FROM unassigned u
     WHERE j.host_id = u.host_id AND j.id = u.job_id
    RETURNING j.host_id, j.id
)
SELECT host_id, id FROM refused ORDER BY host_id, id

-- name: expire
-- A job is over: it was queued for longer than GitHub keeps a job, or GitHub no longer knows the job or its
-- repository. A job on a live runner of paddock is left alone.
UPDATE jobs SET state = 'completed', completed_at = :now, conclusion = 'stale', since = :now, actor = :actor, why = :why
 WHERE host_id = :host AND id = :job AND state = :state AND state <> 'completed'
   AND NOT EXISTS (SELECT FROM runners r WHERE r.id = jobs.runner_id AND r.state <> 'gone')
RETURNING id

-- name: act
-- What recovery did, or would have done in a dry run, and its evidence: one element of each array per action.
INSERT INTO actions (at, actor, rule, action, outcome, runner_id, host_id, job_id, pod_name, why, evidence)
SELECT :now, :actor, t.rule, t.action, t.outcome, t.runner_id, t.host_id, t.job_id, t.pod_name, t.why, t.evidence::jsonb
  FROM unnest(:rules::text[], :actions::text[], :outcomes::text[], :runners::uuid[], :hosts::smallint[], :jobs::bigint[],
              :pods::text[], :whys::text[], :evidence::text[]) WITH ORDINALITY
       AS t (rule, action, outcome, runner_id, host_id, job_id, pod_name, why, evidence, number)
 ORDER BY t.number

-- name: actions[]
-- The last actions, newest first.
SELECT * FROM actions ORDER BY id DESC LIMIT :limit

-- name: late_news[]
-- Verdicts of recent runners that a job's row can now complete: GitHub named the runner as the job's
-- executor, and the verdict lacks the job, or lacks that the job has completed.
SELECT v.runner_id AS runner, v.ending, v.ended_at, v.evidence, j.id AS job, j.state AS job_state, j.conclusion,
       j.completed_at, r.name, r.pod_name, p.name AS pool, a.login AS account
  FROM verdicts v
  JOIN jobs j ON j.runner_id = v.runner_id
  JOIN runners r ON r.id = v.runner_id
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
 WHERE v.ended_at > :since
   -- As in the index verdicts_open: the verdicts that are complete are history.
   AND v.evidence ? 'job' AND (v.evidence ->> 'job' <> 'yes' OR v.evidence ->> 'lost_communication' = 'unknown')
   AND (v.evidence ->> 'job' <> 'yes' OR j.state = 'completed')
 ORDER BY v.ended_at, v.runner_id, j.id
 LIMIT :limit

-- name: refine
-- Later evidence refines a runner's verdict. Circumstances noted since the evidence was read stay.
UPDATE verdicts
   SET ending = :ending, abnormal = :abnormal, why = :why, refined_at = :now,
       evidence = :evidence::jsonb || jsonb_build_object('circumstances', coalesce(evidence -> 'circumstances', '[]'))
 WHERE runner_id = :runner

-- name: accept_version
-- If a runner that has ended had a job, as is known only now, a refusal that was read from its own end was none.
WITH had AS (
    SELECT key_id, account_id, runner_version, claimed_at, gone_at FROM runners r
     WHERE id = :runner AND EXISTS (SELECT FROM jobs j WHERE j.runner_id = r.id)
), accepted AS (
    UPDATE version_schedules s SET refusals = 0, refused_at = NULL, refused_until = NULL
      FROM had h
     WHERE s.account_id = h.account_id AND s.version = h.runner_version
       AND s.refused_at BETWEEN h.claimed_at AND h.gone_at + interval '10 minutes'
)
DELETE FROM backoffs b USING had h
 WHERE b.scope = 'key' AND b.subject = h.key_id AND b.cause = 'runner version refused'

-- name: logs_wanted[]
-- Ended runners whose log or circumstances recovery still tries to read (I79), the most urgent first.
SELECT v.runner_id AS runner, r.name, r.pod_name, r.pod_uid, v.node, p.name AS pool, v.ended_at,
       v.log_wanted_until AS until, coalesce(r.job_id, r.hint_job_id) AS job, a.login AS account,
       v.log_tail IS NOT NULL AS has_log, coalesce((v.evidence ->> 'vanished')::boolean, false) AS vanished
  FROM verdicts v
  JOIN runners r ON r.id = v.runner_id
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
 WHERE v.log_wanted_until IS NOT NULL
 ORDER BY v.log_wanted_until, v.runner_id

-- name: keep_log
-- Store a runner's log once: a second writer changes nothing.
UPDATE verdicts SET log_tail = :log_tail
 WHERE runner_id = :runner AND log_tail IS NULL AND log_wanted_until IS NOT NULL
RETURNING runner_id

-- name: end_post_mortem
-- Recovery has finished reading about a runner's end.
UPDATE verdicts
   SET log_wanted_until = NULL, evidence = evidence || jsonb_build_object('circumstances', to_jsonb(:circumstances::text[]))
 WHERE runner_id = :runner AND log_wanted_until IS NOT NULL
RETURNING runner_id

-- name: list[]
-- Live runners, of :pool or of all pools, for the command line.
SELECT r.pod_name AS pod, p.name AS pool, r.state, r.since, r.why, a.login AS account, r.name, r.job_id AS job, r.node,
       r.suspect_at AS suspect_since
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
 WHERE r.gone_at IS NULL AND (:pool::text IS NULL OR p.name = :pool)
 ORDER BY p.name, r.created_at, r.id

-- name: named
-- The runner whose Pod is named :name, or that was ever registered under that name.
SELECT r.*, a.login, p.name AS pool_name
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
 WHERE r.pod_name = :name OR r.id = (SELECT m.runner_id FROM mints m WHERE m.name = :name)
