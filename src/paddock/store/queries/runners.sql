-- Runners: those that are not gone, and the steps of a runner's life. Each step is a compare-and-set on state and
-- generation; a trigger of the table writes its event.

-- name: read
-- One runner.
SELECT * FROM runners WHERE id = :runner

-- name: plan[]
-- Rows are written before Pods are made: they fix the Pods' names and count against every limit. No rows for a pool
-- that is being deleted; the row lock keeps the pool from being deleted meanwhile.
WITH pool AS (
    SELECT * FROM pools WHERE id = :pool AND state = 'active' FOR SHARE
), planned AS (
    INSERT INTO runners (id, pool_id, shape, vcpu_milli, memory_mib, spec_hash, pod_name, created_at,
                         state, since, actor, why)
    SELECT new.id, p.id, p.shape, p.vcpu_milli, p.memory_mib, p.spec_hash, new.pod_name, :now,
           'booting', :now, :actor, :why
      FROM pool p, unnest(:runners::uuid[], :pods::text[]) AS new (id, pod_name)
    RETURNING *
)
SELECT * FROM planned ORDER BY id

-- name: arm
-- claimed → armed: the sealed JIT is stored for its delivery.
WITH armed AS (
    UPDATE runners
       SET state = 'armed', version = version + 1, since = :now, actor = :actor, why = :why, evidence = :evidence,
           github_id = :github_id, delivery_id = :delivery, jit = :jit, jit_key = :jit_key, armed_at = :now,
           mint_deadline = NULL
     WHERE id = :runner AND generation = :generation AND state = 'claimed'
    RETURNING *
), minted AS (
    UPDATE mints m SET state = 'minted', github_id = :github_id FROM armed a WHERE m.name = a.name
)
SELECT * FROM armed

-- name: release
-- claimed → idle: the mint failed or was abandoned. If GitHub is known to have made no record (:no_record_because
-- says how), the name is settled; otherwise it stays a debt (I41).
WITH released AS (
    UPDATE runners
       SET state = 'idle', version = version + 1, since = :now, actor = :actor, why = :why, evidence = :evidence,
           key_id = NULL, account_id = NULL, hint_job_id = NULL, name = NULL, claimed_at = NULL,
           mint_deadline = NULL
     WHERE id = :runner AND generation = :generation AND state = 'claimed'
    RETURNING *
), settled AS (
    UPDATE mints m SET state = 'settled', outcome = :no_record_because, settled_at = :now
      FROM released r
     WHERE m.runner_id = r.id AND m.generation = r.generation AND :no_record_because::text IS NOT NULL
)
SELECT * FROM released

-- name: take_over
-- claimed → claimed: no replica mints for the claim. Its deadline has passed, or (:abandoned) the replica that
-- claimed it never learned that the claim was written. It has a fresh name until :mint_deadline; the old name stays a
-- debt.
WITH taken AS (
    UPDATE runners
       SET generation = generation + 1, version = version + 1, since = :now, actor = :actor, why = :why,
           evidence = :evidence, name = :name, mint_deadline = :mint_deadline
     WHERE id = :runner AND generation = :generation AND state = 'claimed' AND (mint_deadline < :now OR :abandoned)
    RETURNING *
), named AS (
    INSERT INTO mints (name, runner_id, generation, key_id, app_id, installation_id, chosen_at)
    SELECT t.name, t.id, t.generation, t.key_id, m.app_id, m.installation_id, :now
      FROM taken t JOIN mints m ON m.runner_id = t.id AND m.generation = t.generation - 1
    RETURNING app_id, installation_id
), spent AS (
    UPDATE budgets b
       SET tokens = tokens_at(b, :now) - 1, as_of = greatest(b.as_of, :now)
      FROM named n
     WHERE b.app_id = n.app_id AND b.installation_id = n.installation_id AND b.bucket = 'mint'
)
SELECT * FROM taken

-- name: occupy
-- armed, running or retiring → busy: the runner executes the job, or a job that GitHub did not name (NULL).
UPDATE runners
   SET state = 'busy', version = version + 1, since = :now, actor = :actor, why = :why, evidence = :evidence,
       busy_at = :now, job_id = coalesce(:job, job_id), acknowledged_at = coalesce(acknowledged_at, :now),
       jit = NULL, jit_key = NULL, suspect_at = NULL
 WHERE id = :runner AND generation = :generation AND state IN ('armed', 'running', 'retiring') AND github_id IS NOT NULL
   AND forced_by IS NULL
RETURNING *

-- name: name_jobs
-- These runners had reported themselves busy: GitHub now says with which jobs. They no longer count as supply (I73).
UPDATE runners r SET job_id = e.job_id
  FROM unnest(:runners::uuid[], :jobs::bigint[]) AS e (id, job_id)
 WHERE r.id = e.id AND r.state = 'busy' AND r.job_id IS NULL

-- name: finish
-- armed, running, busy or retiring → done: its job completed, and with it GitHub removes the record.
WITH finished AS (
    UPDATE runners
       SET state = 'done', version = version + 1, since = :now, actor = :actor, why = :why, evidence = :evidence,
           done_at = :now, job_id = :job, acknowledged_at = coalesce(acknowledged_at, :now),
           jit = NULL, jit_key = NULL
     WHERE id = :runner AND generation = :generation AND state IN ('armed', 'running', 'busy', 'retiring')
       AND github_id IS NOT NULL AND forced_by IS NULL
    RETURNING *
), settled AS (
    UPDATE mints m SET state = 'settled', outcome = 'its job completed', settled_at = :now
      FROM finished f WHERE m.name = f.name AND m.state <> 'settled'
)
SELECT * FROM finished

-- name: fence
-- Any live state (:state, as the caller saw it) → retiring, for the reason :retired; :unregistered: whether GitHub
-- never saw the runner. The generation moves on, so a mint or a release that is still under way finds that the runner
-- is no longer its own. Findings of an earlier retirement are out of date and are cleared.
UPDATE runners
   SET state = 'retiring', generation = generation + 1, version = version + 1, since = :now, actor = :actor,
       why = :why, evidence = :evidence, retiring_at = :now, retire_reason = :why, jit = NULL, jit_key = NULL,
       mint_deadline = NULL, retired = :retired, unregistered = :unregistered, deregistered_at = NULL, proved_at = NULL,
       deletion_asked_at = NULL
 WHERE id = :runner AND generation = :generation AND state = :state AND state NOT IN ('retiring', 'gone')
RETURNING *

-- name: force
-- Any live state (:state) → retiring by force: the fleet deletes the Pod even if a job runs on it, and no later step
-- returns the runner to work. The actor is stored with the reason, because later steps have other actors.
UPDATE runners
   SET state = 'retiring', generation = generation + 1, version = version + 1, since = :now, actor = :actor,
       why = :why, evidence = :evidence, retiring_at = :now, retire_reason = :why, jit = NULL, jit_key = NULL,
       mint_deadline = NULL, retired = 'forced', forced_by = :actor, deletion_asked_at = NULL
 WHERE id = :runner AND generation = :generation AND state = :state AND state <> 'gone' AND forced_by IS NULL
RETURNING *

-- name: conclude[]
-- Any state but gone (:states) → gone, with its verdict, in one statement (I30), for many runners at once (I80): one
-- element of each array per runner. A runner counts as supply until :supply_grace_until; its log is asked for until
-- :log_wanted_until. Rows are locked in the order of their ids, so that two leaders that conclude the same runners do
-- not deadlock.
WITH given AS (
    SELECT * FROM unnest(:runners::uuid[], :generations::int[], :whys::text[], :evidence::text[],
                         :states::runner_state[], :endings::text[], :abnormal::boolean[], :exit_codes::int[],
                         :signals::int[], :reasons::text[], :ended_at::timestamptz[], :log_tails::text[],
                         :supply_grace_until::timestamptz[], :log_wanted_until::timestamptz[], :uids::text[],
                         :nodes::text[])
        AS g (id, generation, why, evidence, state, ending, abnormal, exit_code, signal, reason, ended_at, log_tail,
              supply_grace_until, log_wanted_until, pod_uid, node)
), locked AS (
    SELECT r.id FROM runners r WHERE r.id = ANY (:runners) ORDER BY r.id FOR UPDATE
), ended AS (
    UPDATE runners r
       SET state = 'gone', version = r.version + 1, since = :now, actor = :actor, why = g.why, evidence = g.evidence::jsonb,
           gone_at = :now, jit = NULL, jit_key = NULL, mint_deadline = NULL,
           pod_uid = coalesce(r.pod_uid, g.pod_uid), node = coalesce(r.node, g.node)
      FROM given g JOIN locked USING (id)
     WHERE r.id = g.id AND r.generation = g.generation AND r.state = g.state AND r.state <> 'gone'
    RETURNING r.*
), judged AS (
    INSERT INTO verdicts (runner_id, ending, abnormal, why, exit_code, signal, reason, node, ended_at,
                          log_tail, evidence, written_at, log_wanted_until)
    SELECT e.id, g.ending, g.abnormal, g.why, g.exit_code, g.signal, g.reason, e.node, g.ended_at,
           g.log_tail, coalesce(g.evidence::jsonb, '{}'), :now, g.log_wanted_until
      FROM ended e JOIN given g USING (id)
), graced AS (
    INSERT INTO supply_graces (runner_id, key_id, until)
    SELECT e.id, e.key_id, g.supply_grace_until
      FROM ended e JOIN given g USING (id)
     WHERE e.key_id IS NOT NULL AND g.supply_grace_until IS NOT NULL
)
SELECT * FROM ended ORDER BY id

-- name: live_marks[]
-- The marks that show whether a runner has changed, oldest first.
SELECT id, xmin, version FROM runners WHERE gone_at IS NULL ORDER BY created_at, id

-- name: live[]
-- Those of the :runners that are not gone, with their marks and the names that logs need.
SELECT r.xmin, r.*, a.login, p.name AS pool_name,
       CASE WHEN p.spec_hash = r.spec_hash THEN p.runner END AS program
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
 WHERE r.id = ANY (:runners) AND r.gone_at IS NULL
 ORDER BY r.id

-- name: of_pods[]
-- The runners of the Pods of these names that are not gone, oldest first, with the names that logs need.
SELECT r.*, a.login, p.name AS pool_name,
       CASE WHEN p.spec_hash = r.spec_hash THEN p.runner END AS program
  FROM runners r
  JOIN pools p ON p.id = r.pool_id
  LEFT JOIN accounts a ON a.id = r.account_id
 WHERE r.pod_name = ANY (:pods) AND r.gone_at IS NULL
 ORDER BY r.created_at, r.id
