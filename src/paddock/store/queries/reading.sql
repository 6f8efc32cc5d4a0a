-- Lists and details for the dashboard, the API and the command line. A filter that is NULL does not apply. These
-- statements are planned each time (see paddock.store.looking), so such a filter costs nothing and the others find
-- their index.

-- name: jobs[]
-- Jobs, newest first within a host: in state $1, of account $2, repository $3, pool $4, with conclusion $5, of host
-- $6, only refused ones ($7), after the cursor ($8, $9); job $11 alone; those that runner $12 executed. $10 at most.
SELECT h.name AS host, j.host_id, j.id, j.name, j.workflow, rep.full_name AS repository, a.login AS account, j.labels,
       j.state AS status, j.conclusion, p.name AS pool, j.refusal, j.refusal_detail, j.run_id, j.run_attempt,
       j.created_at, j.queued_at, j.seen_at, j.started_at, j.completed_at, j.since, j.why, j.executor_name AS executor,
       r.pod_name AS pod, c.checked_at, c.answer, c.times, j.trusted, j.trust_why
  FROM jobs j
  JOIN hosts h ON h.id = j.host_id
  JOIN accounts a ON a.id = j.account_id
  JOIN repositories rep ON rep.id = j.repository_id
  LEFT JOIN demand_keys k ON k.id = j.key_id
  LEFT JOIN pools p ON p.id = k.pool_id
  LEFT JOIN runners r ON r.id = j.runner_id
  LEFT JOIN job_checks c ON c.host_id = j.host_id AND c.job_id = j.id
 WHERE ($1::job_state IS NULL OR j.state = $1)
   AND ($2::text IS NULL OR lower(a.login) = lower($2))
   AND ($3::text IS NULL OR lower(rep.full_name) = lower($3))
   AND ($4::text IS NULL OR p.name = $4)
   AND ($5::text IS NULL OR j.conclusion = $5)
   AND ($6::text IS NULL OR h.name = lower($6))
   AND (NOT $7::boolean OR (j.refusal IS NOT NULL AND j.state = 'queued'))
   AND ($8::smallint IS NULL OR (j.host_id, j.id) < ($8, $9::bigint))
   AND ($11::bigint IS NULL OR (j.id = $11 AND j.host_id = ANY (ARRAY (SELECT hosts.id FROM hosts))))
   AND ($12::uuid IS NULL OR j.runner_id = $12)
 ORDER BY j.host_id DESC, j.id DESC
 LIMIT $10

-- name: runners[]
-- Runners, newest first: in state $1, of pool $2, of account $3, on node $4, living or not ($5), after the cursor $6;
-- those with ids $8 alone; the one of Pod $9 or once registered under that name. $7 at most.
SELECT r.id, r.pod_name AS pod, p.name AS pool, r.state, r.since, r.why, r.created_at, r.heard_at, r.gone_at,
       r.generation, r.shape, r.node, i.image, a.login AS account, h.name AS host, r.name, r.job_id AS job,
       r.hint_job_id AS hint, r.suspect_at AS suspect_since, r.spec_hash <> p.spec_hash AS stale, v.ending,
       r.claimed_at, r.armed_at, r.acknowledged_at, r.job_marked_at, r.busy_at, r.done_at, r.retiring_at,
       r.deregistered_at, r.proved_at, r.deletion_asked_at, r.retire_reason
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
  LEFT JOIN hosts h ON h.id = a.host_id
  LEFT JOIN pool_images i ON i.spec_hash = r.spec_hash
  LEFT JOIN verdicts v ON v.runner_id = r.id
 WHERE ($1::runner_state IS NULL OR r.state = $1)
   AND ($2::text IS NULL OR p.name = $2)
   AND ($3::text IS NULL OR lower(a.login) = lower($3))
   AND ($4::text IS NULL OR r.node = $4)
   AND ($5::boolean IS NULL OR (r.gone_at IS NULL) = $5)
   AND (NOT coalesce($5, false) OR r.gone_at IS NULL)
   AND ($6::uuid IS NULL OR r.id < $6)
   AND ($8::uuid[] IS NULL OR r.id = ANY ($8))
   AND ($9::text IS NULL OR r.id = ANY (ARRAY (SELECT o.id FROM runners o WHERE o.pod_name = $9
                                               UNION SELECT m.runner_id FROM mints m WHERE m.name = $9)))
 ORDER BY r.id DESC
 LIMIT $7

-- name: runners_of_job[]
-- Runners that executed job $1 of host $4 or were claimed for it, as far as they ended between $2 and $3 or live.
SELECT r.id FROM runners r JOIN accounts a ON a.id = r.account_id
 WHERE (r.gone_at IS NULL OR (r.gone_at >= $2 AND r.gone_at <= $3)) AND $1::bigint IN (r.hint_job_id, r.job_id)
   AND a.host_id = $4
 UNION
SELECT j.runner_id FROM jobs j
 WHERE j.id = $1 AND j.host_id = $4 AND j.runner_id IS NOT NULL
 ORDER BY id
 LIMIT 20

-- name: names[]
-- Every name that runner $1 was to be registered under.
SELECT name, chosen_at, state, github_id, outcome FROM mints WHERE runner_id = $1 ORDER BY generation, name

-- name: series
-- What runner $1 measured of itself.
SELECT series, recent FROM vitals WHERE runner_id = $1

-- name: log_tail
-- The captured end of runner $1's log.
SELECT log_tail FROM verdicts WHERE runner_id = $1

-- name: verdicts[]
-- How runners ended, newest first: in class $1, abnormally or not ($2), of pool $3, on node $4, from image $5, since
-- $6, after the cursor ($7, $8); runner $10's alone. $9 at most.
SELECT v.runner_id AS runner, r.pod_name AS pod, p.name AS pool, a.login AS account, h.name AS host, r.job_id AS job,
       v.node, i.image, v.ending, v.abnormal, v.why, v.exit_code, v.signal, v.reason, v.ended_at, v.written_at,
       v.refined_at, v.evidence
  FROM verdicts v
  JOIN runners r ON r.id = v.runner_id
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
  LEFT JOIN hosts h ON h.id = a.host_id
  LEFT JOIN pool_images i ON i.spec_hash = r.spec_hash
 WHERE ($1::text IS NULL OR v.ending = $1)
   AND ($2::boolean IS NULL OR v.abnormal = $2)
   AND ($3::text IS NULL OR p.name = $3)
   AND ($4::text IS NULL OR v.node = $4)
   AND ($5::text IS NULL OR i.image = $5)
   AND ($6::timestamptz IS NULL OR v.ended_at > $6)
   AND ($7::timestamptz IS NULL OR (v.ended_at, v.runner_id) < ($7, $8::uuid))
   AND ($10::uuid IS NULL OR v.runner_id = $10)
 ORDER BY v.ended_at DESC, v.runner_id DESC
 LIMIT $9

-- name: endings[]
-- Endings since $1, in steps of $2, by class: of pool $3, on node $4, from image $5.
SELECT date_bin($2::interval, v.ended_at, $1::timestamptz) AS at, v.ending, count(*)::int AS runners
  FROM verdicts v
  JOIN runners r ON r.id = v.runner_id
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN pool_images i ON i.spec_hash = r.spec_hash
 WHERE v.ended_at >= $1
   AND ($3::text IS NULL OR p.name = $3)
   AND ($4::text IS NULL OR v.node = $4)
   AND ($5::text IS NULL OR i.image = $5)
 GROUP BY 1, v.ending
 ORDER BY at, ending

-- name: events[]
-- Events, newest first: of runner $1, job $2, account $3, pool $4, after the cursor $5. $6 at most.
SELECT e.id, e.at, e.actor, e.before, e.after, e.why, e.generation, e.runner_id AS runner, r.pod_name AS pod,
       h.name AS host, e.job_id AS job, a.login AS account, p.name AS pool, e.evidence
  FROM events e
  LEFT JOIN runners r ON r.id = e.runner_id
  LEFT JOIN hosts h ON h.id = e.host_id
  LEFT JOIN accounts a ON a.id = e.account_id
  LEFT JOIN pools p ON p.id = e.pool_id
 WHERE ($1::uuid IS NULL OR e.runner_id = $1)
   AND ($2::bigint IS NULL OR (e.job_id = $2 AND e.host_id = ANY (ARRAY (SELECT hosts.id FROM hosts))))
   AND ($3::text IS NULL OR e.account_id = ANY (ARRAY (SELECT o.id FROM accounts o WHERE lower(o.login) = lower($3))))
   AND ($4::text IS NULL OR e.pool_id = ANY (ARRAY (SELECT o.id FROM pools o WHERE o.name = $4)))
   AND ($5::bigint IS NULL OR e.id < $5)
 ORDER BY e.id DESC
 LIMIT $6

-- name: actions[]
-- What recovery did, newest first: by rules $1, with outcome $2, about runner $3, about job $4, after the cursor $5.
-- $6 at most.
SELECT c.id, c.at, c.actor, c.rule, c.action, c.outcome, c.why, c.runner_id AS runner,
       coalesce(c.pod_name, r.pod_name) AS pod, h.name AS host, c.job_id AS job, c.evidence
  FROM actions c
  LEFT JOIN runners r ON r.id = c.runner_id
  LEFT JOIN hosts h ON h.id = c.host_id
 WHERE ($1::text[] IS NULL OR c.rule = ANY ($1))
   AND ($2::text IS NULL OR c.outcome = $2)
   AND ($3::uuid IS NULL OR c.runner_id = $3)
   AND ($4::bigint IS NULL OR (c.job_id = $4 AND c.host_id = ANY (ARRAY (SELECT hosts.id FROM hosts))))
   AND ($5::bigint IS NULL OR c.id < $5)
 ORDER BY c.id DESC
 LIMIT $6

-- name: rule_counts[]
-- What recovery did since $1, by rule and outcome.
SELECT rule, outcome, count(*)::int AS actions, max(at) AS last_at
  FROM actions WHERE at > $1 GROUP BY rule, outcome ORDER BY rule, outcome

-- name: deliveries[]
-- Deliveries, newest first: in state $1, of event $2, after the cursor $3. $4 at most.
SELECT id AS number, guid, event, action, state, received_at, settled_at, attempts, note
  FROM deliveries
 WHERE ($1::delivery_state IS NULL OR state = $1)
   AND ($2::text IS NULL OR event = $2)
   AND ($3::bigint IS NULL OR id < $3)
 ORDER BY id DESC
 LIMIT $4

-- name: pools[]
-- Pools that are not deleted, with the decision in force; or the pool named $1 alone.
SELECT p.id, p.name, p.state, p.labels, p.shape, p.runner_group, i.image, p.vcpu_milli, p.memory_mib, p.max_runners,
       p.paused_at, p.paused_by, p.paused_why, d.at AS decided_at, d.wanted, d.target, d.terms, d.why
  FROM pools p
  LEFT JOIN pool_images i ON i.spec_hash = p.spec_hash
  LEFT JOIN LATERAL (SELECT * FROM pool_decisions d WHERE d.pool_id = p.id ORDER BY d.id DESC LIMIT 1) d ON true
 WHERE p.state <> 'deleted' AND ($1::text IS NULL OR p.name = $1)
 ORDER BY p.name

-- name: crews[]
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
-- The last $2 decisions on the size of pool $1, newest first.
SELECT at, wanted, target, terms, why FROM pool_decisions WHERE pool_id = $1 ORDER BY id DESC LIMIT $2

-- name: accounts[]
-- Accounts and what they use; or the one named $1 alone.
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
 WHERE $1::text IS NULL OR lower(a.login) = lower($1)
 ORDER BY h.name, a.login, a.id
