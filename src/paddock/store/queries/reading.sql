-- Lists and details for the dashboard, the API and the command line. A filter that is NULL does not apply. These
-- statements are planned each time (see paddock.store.reading.reader), so such a filter costs nothing and the others
-- find their index.

-- name: jobs[]
-- Jobs, newest first within a host, after the cursor (:after_host, :after_job); :refused: only those; :numbers: only
-- those, of every host; :runner: only those that it executed.
SELECT h.name AS host, j.host_id, j.id, j.name, j.workflow, rep.full_name AS repository, a.login AS account, j.labels,
       j.state AS status, j.conclusion, p.name AS pool, j.refusal, j.refusal_detail, j.run_id, j.run_attempt,
       j.created_at, j.queued_at, j.seen_at, j.started_at, j.completed_at, j.since, j.why, j.executor_name AS executor,
       r.pod_name AS pod, c.checked_at, c.answer, c.times, c.waits_because AS not_assigned_because, j.trusted, j.trust_why,
       j.key_id, j.demotions,
       CASE WHEN NOT rep.limited THEN NULL
            WHEN j.executor_id IS NOT NULL AND j.runner_id IS NULL THEN 'foreign'
            WHEN rk.id IS NOT NULL AND rk.repository_id IS NULL THEN 'organisation'
            WHEN j.state = 'queued' AND k.repository_id IS NULL AND p.runner_group IS NOT NULL THEN 'runner group'
       END AS beside_limits
  FROM jobs j
  JOIN hosts h ON h.id = j.host_id
  JOIN accounts a ON a.id = j.account_id
  JOIN repositories rep ON rep.id = j.repository_id
  LEFT JOIN demand_keys k ON k.id = j.key_id
  LEFT JOIN pools p ON p.id = k.pool_id
  LEFT JOIN runners r ON r.id = j.runner_id
  LEFT JOIN demand_keys rk ON rk.id = r.key_id
  LEFT JOIN job_checks c ON c.host_id = j.host_id AND c.job_id = j.id
 WHERE (:status::job_state IS NULL OR j.state = :status)
   AND (:account::text IS NULL OR lower(a.login) = lower(:account))
   AND (:repository::text IS NULL OR lower(rep.full_name) = lower(:repository))
   AND (:pool::text IS NULL OR p.name = :pool)
   AND (:conclusion::text IS NULL OR j.conclusion = :conclusion)
   AND (:host::text IS NULL OR h.name = lower(:host))
   AND (:refused::boolean IS NOT TRUE OR (j.refusal IS NOT NULL AND j.state = 'queued'))
   AND (:after_host::smallint IS NULL OR (j.host_id, j.id) < (:after_host, :after_job::bigint))
   AND (:numbers::bigint[] IS NULL
        OR (j.id = ANY (:numbers) AND j.host_id = ANY (ARRAY (SELECT hosts.id FROM hosts))))
   AND (:runner::uuid IS NULL OR j.runner_id = :runner)
 ORDER BY j.host_id DESC, j.id DESC
 LIMIT :limit

-- name: runners[]
-- Runners, newest first, after the cursor :after; :live: only those that have ended, or only the others; :ids: only
-- those; :name: the one of that Pod, or once registered under that name.
SELECT r.id, r.pod_name AS pod, p.name AS pool, r.state, r.since, r.why, r.created_at, r.heard_at, r.gone_at,
       r.generation, r.shape, r.node, i.image, a.login AS account, h.name AS host, r.name, r.job_id AS job,
       r.hint_job_id AS hint, r.suspect_at AS suspect_since, r.spec_hash <> p.spec_hash AS stale, v.ending,
       r.claimed_at, r.armed_at, r.acknowledged_at, r.job_marked_at, r.busy_at, r.done_at, r.retiring_at,
       r.deregistered_at, r.proved_at, r.deletion_asked_at, r.retire_reason, r.delivery_id IS NOT NULL AS was_registered
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
  LEFT JOIN hosts h ON h.id = a.host_id
  LEFT JOIN pool_images i ON i.spec_hash = r.spec_hash
  LEFT JOIN verdicts v ON v.runner_id = r.id
 WHERE (:state::runner_state IS NULL OR r.state = :state)
   AND (:pool::text IS NULL OR p.name = :pool)
   AND (:account::text IS NULL OR lower(a.login) = lower(:account))
   AND (:node::text IS NULL OR r.node = :node)
   AND (:live::boolean IS NULL OR (r.gone_at IS NULL) = :live)
   AND (NOT coalesce(:live, false) OR r.gone_at IS NULL)
   AND (:after::uuid IS NULL OR r.id < :after)
   AND (:ids::uuid[] IS NULL OR r.id = ANY (:ids))
   AND (:name::text IS NULL OR r.id = ANY (ARRAY (SELECT o.id FROM runners o WHERE o.pod_name = :name
                                                  UNION SELECT m.runner_id FROM mints m WHERE m.name = :name)))
 ORDER BY r.id DESC
 LIMIT :limit

-- name: runners_of_job[]
-- The runners in the story of job :job of host :host: the one that executed it, those claimed for it, and, while it
-- waits, those on their way to its key. Of gone runners only those of the job's time are considered.
WITH story AS (
    SELECT * FROM jobs WHERE host_id = :host AND id = :job
), found AS (
    SELECT runner_id AS id FROM story WHERE runner_id IS NOT NULL
     UNION
    SELECT r.id FROM story j JOIN runners r ON j.id IN (r.hint_job_id, r.job_id) AND r.account_id = j.account_id
                                           AND r.gone_at IS NULL
     UNION
    SELECT r.id FROM story j JOIN runners r ON j.id IN (r.hint_job_id, r.job_id) AND r.account_id = j.account_id
                                           AND r.gone_at >= j.created_at
                                           AND r.gone_at <= coalesce(j.completed_at + interval '1 hour', 'infinity')
     UNION
    SELECT r.id FROM story j JOIN runners r ON r.key_id = j.key_id AND r.gone_at IS NULL AND j.state = 'queued'
                                           AND (r.state IN ('claimed', 'armed', 'running')
                                                OR r.state = 'busy' AND r.job_id IS NULL)
)
SELECT r.id, r.id IS NOT DISTINCT FROM j.runner_id AS executed,
       r.hint_job_id IS NOT DISTINCT FROM j.id AS hinted
  FROM found
  JOIN runners r USING (id)
 CROSS JOIN story j
 ORDER BY r.claimed_at, r.id

-- name: names[]
-- Every name that runner :runner was to be registered under.
SELECT name, chosen_at, state, github_id, outcome FROM mints WHERE runner_id = :runner ORDER BY generation, name

-- name: series
-- What runner :runner measured of itself.
SELECT series, recent FROM vitals WHERE runner_id = :runner

-- name: log_tail
-- The captured end of runner :runner's log.
SELECT log_tail FROM verdicts WHERE runner_id = :runner

-- name: why_idle
-- What keeps pool :pool from being claimed from, and how many jobs wait for it.
SELECT p.paused_at, p.paused_by, p.paused_why,
       d.paused_at AS all_paused_at, d.paused_by AS all_paused_by, d.why AS all_paused_why,
       (SELECT count(*) FROM demand_keys k JOIN jobs j ON j.key_id = k.id AND j.state = 'queued'
         WHERE k.pool_id = p.id) AS queued
  FROM pools p
  LEFT JOIN dispatch_pauses d ON true
 WHERE p.id = (SELECT pool_id FROM runners WHERE id = :runner)

-- name: verdicts[]
-- How runners ended, newest first, after the cursor (:after, :after_runner); :runners: only theirs.
SELECT v.runner_id AS runner, r.pod_name AS pod, p.name AS pool, a.login AS account, h.name AS host, r.job_id AS job,
       v.node, i.image, v.ending, v.abnormal, v.why, v.exit_code, v.signal, v.reason, v.ended_at, v.written_at,
       v.refined_at, v.evidence
  FROM verdicts v
  JOIN runners r ON r.id = v.runner_id
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
  LEFT JOIN hosts h ON h.id = a.host_id
  LEFT JOIN pool_images i ON i.spec_hash = r.spec_hash
 WHERE (:ending::text IS NULL OR v.ending = :ending)
   AND (:abnormal::boolean IS NULL OR v.abnormal = :abnormal)
   AND (:pool::text IS NULL OR p.name = :pool)
   AND (:node::text IS NULL OR v.node = :node)
   AND (:image::text IS NULL OR i.image = :image)
   AND (:since::timestamptz IS NULL OR v.ended_at > :since)
   AND (:after::timestamptz IS NULL OR (v.ended_at, v.runner_id) < (:after, :after_runner::uuid))
   AND (:runners::uuid[] IS NULL OR v.runner_id = ANY (:runners))
 ORDER BY v.ended_at DESC, v.runner_id DESC
 LIMIT :limit

-- name: endings[]
-- Endings since :since, in steps of :step, by class.
SELECT date_bin(:step::interval, v.ended_at, :since::timestamptz) AS at, v.ending, count(*)::int AS runners
  FROM verdicts v
  JOIN runners r ON r.id = v.runner_id
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN pool_images i ON i.spec_hash = r.spec_hash
 WHERE v.ended_at >= :since
   AND (:pool::text IS NULL OR p.name = :pool)
   AND (:node::text IS NULL OR v.node = :node)
   AND (:image::text IS NULL OR i.image = :image)
 GROUP BY 1, v.ending
 ORDER BY at, ending

-- name: events[]
-- Events, newest first, after the cursor :after; :ids: only those.
SELECT e.id, e.at, e.actor, e.before, e.after, e.why, e.generation, e.runner_id AS runner, r.pod_name AS pod,
       h.name AS host, e.job_id AS job, a.login AS account, p.name AS pool, e.evidence
  FROM events e
  LEFT JOIN runners r ON r.id = e.runner_id
  LEFT JOIN hosts h ON h.id = e.host_id
  LEFT JOIN accounts a ON a.id = e.account_id
  LEFT JOIN pools p ON p.id = e.pool_id
 WHERE (:runner::uuid IS NULL OR e.runner_id = :runner)
   AND (:job::bigint IS NULL OR (e.job_id = :job AND e.host_id = ANY (ARRAY (SELECT hosts.id FROM hosts))))
   AND (:account::text IS NULL
        OR e.account_id = ANY (ARRAY (SELECT o.id FROM accounts o WHERE lower(o.login) = lower(:account))))
   AND (:pool::text IS NULL OR e.pool_id = ANY (ARRAY (SELECT o.id FROM pools o WHERE o.name = :pool)))
   AND (:after::bigint IS NULL OR e.id < :after)
   AND (:ids::bigint[] IS NULL OR e.id = ANY (:ids))
 ORDER BY e.id DESC
 LIMIT :limit

-- name: events_of_job[]
-- The steps of job :job of host :host, those of its runners :runners since they were last claimed, and the last
-- :failed_mints failed claims for its key :key between :since and :until.
SELECT e.id FROM events e WHERE e.host_id = :host AND e.job_id = :job
 UNION
SELECT e.id
  FROM unnest(:runners::uuid[]) AS own (id)
 CROSS JOIN LATERAL (SELECT max(c.id) AS id FROM events c WHERE c.runner_id = own.id AND c.after = 'claimed') claimed
  JOIN events e ON e.runner_id = own.id AND e.id >= claimed.id
 UNION
SELECT f.id
  FROM (SELECT e.id
          FROM apps a
         CROSS JOIN LATERAL (
            SELECT * FROM mints u WHERE u.app_id = a.id AND u.state <> 'settled' AND u.chosen_at >= :since
             UNION ALL
            SELECT * FROM mints s WHERE s.app_id = a.id AND s.state = 'settled' AND s.settled_at >= :since) m
          JOIN events e ON e.runner_id = m.runner_id AND e.generation = m.generation
                       AND e.before = 'claimed' AND e.after = 'idle'
         WHERE m.key_id = :key::int AND m.chosen_at >= :since AND m.chosen_at <= :until
         ORDER BY e.id DESC LIMIT :failed_mints) f
 ORDER BY id

-- name: actions[]
-- What recovery did, newest first, after the cursor :after; :rules: only by those; :ids: only those.
SELECT c.id, c.at, c.actor, c.rule, c.action, c.outcome, c.why, c.runner_id AS runner,
       coalesce(c.pod_name, r.pod_name) AS pod, h.name AS host, c.job_id AS job, c.evidence
  FROM actions c
  LEFT JOIN runners r ON r.id = c.runner_id
  LEFT JOIN hosts h ON h.id = c.host_id
 WHERE (:rules::text[] IS NULL OR c.rule = ANY (:rules))
   AND (:outcome::text IS NULL OR c.outcome = :outcome)
   AND (:runner::uuid IS NULL OR c.runner_id = :runner)
   AND (:job::bigint IS NULL OR (c.job_id = :job AND c.host_id = ANY (ARRAY (SELECT hosts.id FROM hosts))))
   AND (:after::bigint IS NULL OR c.id < :after)
   AND (:ids::bigint[] IS NULL OR c.id = ANY (:ids))
 ORDER BY c.id DESC
 LIMIT :limit

-- name: actions_of_job[]
-- What recovery did about job :job of host :host, and about runners :runners.
SELECT c.id FROM actions c WHERE c.host_id = :host AND c.job_id = :job
 UNION ALL
SELECT c.id FROM actions c WHERE c.runner_id = ANY (:runners::uuid[]) AND c.job_id IS NULL
 ORDER BY id

-- name: rule_counts[]
-- What recovery did since :since, by rule and outcome.
SELECT rule, outcome, count(*)::int AS actions, max(at) AS last_at
  FROM actions WHERE at > :since GROUP BY rule, outcome ORDER BY rule, outcome

-- name: deliveries[]
-- Deliveries, newest first, after the cursor :after.
SELECT id AS number, guid, event, action, state, received_at, settled_at, attempts, note
  FROM deliveries
 WHERE (:state::delivery_state IS NULL OR state = :state)
   AND (:event::text IS NULL OR event = :event)
   AND (:after::bigint IS NULL OR id < :after)
 ORDER BY id DESC
 LIMIT :limit

-- name: pools[]
-- Pools that are not deleted, with the decision in force; or the one named :name alone.
SELECT p.id, p.name, p.state, p.labels, p.shape, p.runner_group, i.image, p.vcpu_milli, p.memory_mib, p.max_runners,
       p.paused_at, p.paused_by, p.paused_why, d.at AS decided_at, d.wanted, d.target, d.terms, d.why
  FROM pools p
  LEFT JOIN pool_images i ON i.spec_hash = p.spec_hash
  LEFT JOIN LATERAL (SELECT * FROM pool_decisions d WHERE d.pool_id = p.id ORDER BY d.id DESC LIMIT 1) d ON true
 WHERE p.state <> 'deleted' AND (:name::text IS NULL OR p.name = :name)
 ORDER BY p.name

-- name: runner_counts[]
-- Runners that are not gone, by pool and state, and how many of each are stale.
SELECT r.pool_id, r.state, count(*)::int AS runners, count(*) FILTER (WHERE r.spec_hash <> p.spec_hash)::int AS stale
  FROM runners r JOIN pools p ON p.id = r.pool_id
 WHERE r.gone_at IS NULL
 GROUP BY r.pool_id, r.state
 ORDER BY r.pool_id, r.state

-- name: queues[]
-- Jobs that wait, by pool and account.
SELECT k.pool_id, k.account_id, sum(w.jobs)::int AS jobs, min(w.oldest_at) AS oldest_at
  FROM (SELECT key_id, count(*) AS jobs, min(queued_at) AS oldest_at
          FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL GROUP BY key_id) w
  JOIN demand_keys k ON k.id = w.key_id
 GROUP BY k.pool_id, k.account_id
 ORDER BY k.pool_id, k.account_id

-- name: decisions[]
-- The last :limit decisions on the size of pool :pool, newest first.
SELECT at, wanted, target, terms, why FROM pool_decisions WHERE pool_id = :pool ORDER BY id DESC LIMIT :limit

-- name: accounts[]
-- Accounts and what they use.
SELECT a.id, h.name AS host, a.login, a.kind, a.weight, a.max_runners, a.max_vcpu_milli, a.max_memory_mib,
       a.paused_at, a.paused_by, a.paused_why, coalesce(i.state, 'removed') AS installation,
       coalesce(u.runners, 0)::int AS runners, coalesce(u.vcpu_milli, 0)::bigint AS vcpu_milli,
       coalesce(u.memory_mib, 0)::bigint AS memory_mib, coalesce(u.busy, 0)::int AS busy
  FROM accounts a
  JOIN hosts h ON h.id = a.host_id
  LEFT JOIN LATERAL (SELECT i.state FROM installations i WHERE i.account_id = a.id
                      ORDER BY i.state, i.read_at DESC LIMIT 1) i ON true
  LEFT JOIN (SELECT account_id, count(*) AS runners, sum(vcpu_milli) AS vcpu_milli, sum(memory_mib) AS memory_mib,
                    count(*) FILTER (WHERE state = 'busy') AS busy
               FROM runners WHERE gone_at IS NULL AND account_id IS NOT NULL GROUP BY account_id) u ON u.account_id = a.id
 ORDER BY h.name, a.login, a.id

-- name: webhooks_of_job[]
-- Of the last :searched deliveries that changed nothing, those that mention job :job, newest first, while their bodies are kept.
SELECT t.received_at, t.state, t.note, t.body
  FROM (SELECT id, received_at, state, note, payload AS body FROM deliveries
         WHERE event = 'workflow_job' AND state IN ('ignored', 'pending') AND payload IS NOT NULL
         ORDER BY id DESC LIMIT :searched) t
 WHERE position(convert_to(:job::bigint::text, 'UTF8') IN t.body) > 0
 ORDER BY t.id DESC
