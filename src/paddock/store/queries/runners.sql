-- The steps of a runner's life. Each is a compare-and-set on state and generation; a trigger of the table writes its
-- event. $1 runner, $2 generation, $3 time, $4 actor, $5 why, $6 evidence; then the step's own.

-- name: read
-- One runner.
SELECT * FROM runners WHERE id = $1

-- name: plan[]
-- Rows are written before Pods are made: they fix the Pods' names and count against every limit. No rows for a pool
-- that is being deleted; the row lock keeps the pool from being deleted meanwhile.
WITH pool AS (
    SELECT * FROM pools WHERE id = $1 AND state = 'active' FOR SHARE
), planned AS (
    INSERT INTO runners (id, pool_id, shape, vcpu_milli, memory_mib, spec_hash, pod_name, created_at,
                         state, since, actor, why)
    SELECT new.id, p.id, p.shape, p.vcpu_milli, p.memory_mib, p.spec_hash, new.pod_name, $4,
           'booting', $4, $5, $6
      FROM pool p, unnest($2::uuid[], $3::text[]) AS new (id, pod_name)
    RETURNING *
)
SELECT * FROM planned ORDER BY id

-- name: arm
-- claimed → armed: the JIT is stored sealed ($9 by key $10) for delivery $8; GitHub's record is $7.
WITH armed AS (
    UPDATE runners
       SET state = 'armed', version = version + 1, since = $3, actor = $4, why = $5, evidence = $6,
           github_id = $7, delivery_id = $8, jit = $9, jit_key = $10, armed_at = $3, mint_deadline = NULL
     WHERE id = $1 AND generation = $2 AND state = 'claimed'
    RETURNING *
), minted AS (
    UPDATE mints m SET state = 'minted', github_id = $7 FROM armed a WHERE m.name = a.name
)
SELECT * FROM armed

-- name: release
-- claimed → idle: the mint failed or was abandoned. If GitHub is known to have made no record ($7 says how), the name
-- is settled; otherwise it stays a debt (I41).
WITH released AS (
    UPDATE runners
       SET state = 'idle', version = version + 1, since = $3, actor = $4, why = $5, evidence = $6,
           key_id = NULL, account_id = NULL, hint_job_id = NULL, name = NULL, claimed_at = NULL,
           mint_deadline = NULL
     WHERE id = $1 AND generation = $2 AND state = 'claimed'
    RETURNING *
), settled AS (
    UPDATE mints m SET state = 'settled', outcome = $7, settled_at = $3
      FROM released r
     WHERE m.runner_id = r.id AND m.generation = r.generation AND $7::text IS NOT NULL
)
SELECT * FROM released

-- name: take_over
-- claimed → claimed: no replica mints for the claim. Its deadline has passed, or ($9) the replica that claimed it never
-- learned that the claim was written. A fresh name ($7) until $8; the old name stays a debt.
WITH taken AS (
    UPDATE runners
       SET generation = generation + 1, version = version + 1, since = $3, actor = $4, why = $5,
           evidence = $6, name = $7, mint_deadline = $8
     WHERE id = $1 AND generation = $2 AND state = 'claimed' AND (mint_deadline < $3 OR $9)
    RETURNING *
), named AS (
    INSERT INTO mints (name, runner_id, generation, key_id, app_id, installation_id, chosen_at)
    SELECT t.name, t.id, t.generation, t.key_id, m.app_id, m.installation_id, $3
      FROM taken t JOIN mints m ON m.runner_id = t.id AND m.generation = t.generation - 1
    RETURNING app_id, installation_id
), spent AS (
    UPDATE budgets b
       SET tokens = tokens_at(b, $3) - 1, as_of = greatest(b.as_of, $3)
      FROM named n
     WHERE b.app_id = n.app_id AND b.installation_id = n.installation_id AND b.bucket = 'mint'
)
SELECT * FROM taken

-- name: occupy
-- armed, running or retiring → busy: the runner executes job $7, or a job that GitHub did not name (NULL).
UPDATE runners
   SET state = 'busy', version = version + 1, since = $3, actor = $4, why = $5, evidence = $6,
       busy_at = $3, job_id = coalesce($7, job_id), acknowledged_at = coalesce(acknowledged_at, $3),
       jit = NULL, jit_key = NULL, suspect_at = NULL
 WHERE id = $1 AND generation = $2 AND state IN ('armed', 'running', 'retiring') AND github_id IS NOT NULL
   AND forced_by IS NULL
RETURNING *

-- name: name_jobs
-- Runners $1 had reported themselves busy: GitHub now says with which jobs ($2). They no longer count as supply (I73).
UPDATE runners r SET job_id = e.job_id
  FROM unnest($1::uuid[], $2::bigint[]) AS e (id, job_id)
 WHERE r.id = e.id AND r.state = 'busy' AND r.job_id IS NULL

-- name: finish
-- armed, running, busy or retiring → done: its job $7 completed, and with it GitHub removes the record.
WITH finished AS (
    UPDATE runners
       SET state = 'done', version = version + 1, since = $3, actor = $4, why = $5, evidence = $6,
           done_at = $3, job_id = $7, acknowledged_at = coalesce(acknowledged_at, $3),
           jit = NULL, jit_key = NULL
     WHERE id = $1 AND generation = $2 AND state IN ('armed', 'running', 'busy', 'retiring') AND github_id IS NOT NULL
       AND forced_by IS NULL
    RETURNING *
), settled AS (
    UPDATE mints m SET state = 'settled', outcome = 'its job completed', settled_at = $3
      FROM finished f WHERE m.name = f.name AND m.state <> 'settled'
)
SELECT * FROM finished

-- name: fence
-- Any live state ($7, as the caller saw it) → retiring, for reason $8; $9: whether GitHub never saw the runner.
-- The generation moves on, so a mint or a release that is still under way finds that the runner is no longer its own.
-- Findings of an earlier retirement are out of date and are cleared.
UPDATE runners
   SET state = 'retiring', generation = generation + 1, version = version + 1, since = $3, actor = $4,
       why = $5, evidence = $6, retiring_at = $3, retire_reason = $5, jit = NULL, jit_key = NULL,
       mint_deadline = NULL, retired = $8, unregistered = $9, deregistered_at = NULL, proved_at = NULL,
       deletion_asked_at = NULL
 WHERE id = $1 AND generation = $2 AND state = $7 AND state NOT IN ('retiring', 'gone')
RETURNING *

-- name: force
-- Any live state ($7) → retiring by force: the fleet deletes the Pod even if a job runs on it, and no later step
-- returns the runner to work. The actor is stored with the reason, because later steps have other actors.
UPDATE runners
   SET state = 'retiring', generation = generation + 1, version = version + 1, since = $3, actor = $4,
       why = $5, evidence = $6, retiring_at = $3, retire_reason = $5, jit = NULL, jit_key = NULL,
       mint_deadline = NULL, retired = 'forced', forced_by = $4, deletion_asked_at = NULL
 WHERE id = $1 AND generation = $2 AND state = $7 AND state <> 'gone' AND forced_by IS NULL
RETURNING *

-- name: conclude[]
-- Any state but gone ($7) → gone, with its verdict, in one statement (I30), for many runners at once (I80). $1, $2
-- and $5 to $18 are arrays, one element per runner. A runner counts as supply until $15; its log is asked for until
-- $16. Rows are locked in the order of their ids, so that two leaders that conclude the same runners do not deadlock.
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $5::text[], $6::text[], $7::runner_state[], $8::text[], $9::boolean[],
                         $10::int[], $11::int[], $12::text[], $13::timestamptz[], $14::text[], $15::timestamptz[],
                         $16::timestamptz[], $17::text[], $18::text[])
        AS g (id, generation, why, evidence, state, ending, abnormal, exit_code, signal, reason, ended_at, log_tail,
              supply_grace_until, log_wanted_until, pod_uid, node)
), locked AS (
    SELECT r.id FROM runners r WHERE r.id = ANY ($1) ORDER BY r.id FOR UPDATE
), ended AS (
    UPDATE runners r
       SET state = 'gone', version = r.version + 1, since = $3, actor = $4, why = g.why, evidence = g.evidence::jsonb,
           gone_at = $3, jit = NULL, jit_key = NULL, mint_deadline = NULL,
           pod_uid = coalesce(r.pod_uid, g.pod_uid), node = coalesce(r.node, g.node)
      FROM given g JOIN locked USING (id)
     WHERE r.id = g.id AND r.generation = g.generation AND r.state = g.state AND r.state <> 'gone'
    RETURNING r.*
), judged AS (
    INSERT INTO verdicts (runner_id, ending, abnormal, why, exit_code, signal, reason, node, ended_at,
                          log_tail, evidence, written_at, log_wanted_until)
    SELECT e.id, g.ending, g.abnormal, g.why, g.exit_code, g.signal, g.reason, e.node, g.ended_at,
           g.log_tail, coalesce(g.evidence::jsonb, '{}'), $3, g.log_wanted_until
      FROM ended e JOIN given g USING (id)
), echoing AS (
    INSERT INTO supply_graces (runner_id, key_id, until)
    SELECT e.id, e.key_id, g.supply_grace_until
      FROM ended e JOIN given g USING (id)
     WHERE e.key_id IS NOT NULL AND g.supply_grace_until IS NOT NULL
)
SELECT * FROM ended ORDER BY id
