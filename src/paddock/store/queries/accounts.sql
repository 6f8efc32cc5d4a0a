-- Hosts, Apps, accounts, installations, repositories.

-- name: host
-- The id of a host, made on first sight.
INSERT INTO hosts (name, api_url) VALUES (lower($1), $2)
ON CONFLICT (name) DO UPDATE SET api_url = excluded.api_url
RETURNING id

-- name: app
-- The id of an App, made on first sight.
INSERT INTO apps (host_id, github_id, slug, mints_per_minute, mint_burst, mint_refill_per_s)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (host_id, github_id) DO UPDATE
   SET slug = coalesce(excluded.slug, apps.slug), mints_per_minute = excluded.mints_per_minute,
       mint_burst = excluded.mint_burst, mint_refill_per_s = excluded.mint_refill_per_s
RETURNING id

-- name: mint_budgets
-- Resize the mint buckets of App $1's installations to the App's present limit; tokens already spent stay spent.
UPDATE budgets
   SET capacity = ap.mint_burst, refill_per_s = ap.mint_refill_per_s, tokens = least(tokens, ap.mint_burst)
  FROM apps ap
 WHERE ap.id = $1 AND app_id = ap.id AND bucket = 'mint' AND ap.mint_burst IS NOT NULL
   AND (capacity, refill_per_s) <> (ap.mint_burst, ap.mint_refill_per_s)

-- name: no_mint_budgets
-- Delete the mint buckets of an App whose host does not limit mints by the hour.
DELETE FROM budgets USING apps ap
 WHERE ap.id = $1 AND app_id = ap.id AND bucket = 'mint' AND ap.mint_burst IS NULL

-- name: unchanged
-- The account of installation $2 of host $1, if the rows already hold what GitHub says of both (I84): $3 App, $4
-- state, $5 whether for all repositories; $6 the account's id at GitHub, $7 login, $8 kind.
SELECT a.id
  FROM installations i JOIN accounts a ON a.id = i.account_id
 WHERE i.host_id = $1 AND i.github_id = $2 AND i.app_id = $3 AND i.state = $4 AND i.all_repositories = $5
   AND a.host_id = $1 AND a.github_id = $6 AND a.login = $7 AND a.kind = $8

-- name: account
-- The account behind an installation. Its limits and weight ($6..$9) are defaults for a new account; afterwards only
-- an operator changes them. Names change; ids do not (I4).
INSERT INTO accounts AS a (host_id, github_id, login, kind, created_at, max_runners, max_vcpu_milli,
                           max_memory_mib, weight)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (host_id, github_id) DO UPDATE SET login = excluded.login, kind = excluded.kind
RETURNING id

-- name: replace_installation
-- An App installed again for an account has a new installation id; the old installation is marked removed.
UPDATE installations SET state = 'removed', read_at = $5
 WHERE account_id = $1 AND app_id = $2 AND host_id = $3 AND github_id <> $4 AND state <> 'removed'

-- name: forgive
-- Failures of account $3 while installation $2 of host $1 was suspended were caused by the suspension: forgive them.
DELETE FROM backoffs
 WHERE scope = 'account' AND subject = $3
   AND EXISTS (SELECT FROM installations WHERE host_id = $1 AND github_id = $2 AND state = 'suspended')

-- name: installation
-- The installation as GitHub describes it now.
INSERT INTO installations (host_id, github_id, app_id, account_id, state, all_repositories, read_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (host_id, github_id) DO UPDATE
   SET state = excluded.state, all_repositories = excluded.all_repositories, read_at = excluded.read_at,
       account_id = excluded.account_id

-- name: remove_installation
-- GitHub no longer knows the installation.
UPDATE installations SET state = 'removed', read_at = $3
 WHERE host_id = $1 AND github_id = $2 AND state <> 'removed'

-- name: confirm_removal
-- GitHub did not know installation $2 of host $1 at $3: count a confirmation, unless the last one was after $4.
INSERT INTO removals AS r (host_id, github_id, confirmations, first_at, last_at)
SELECT host_id, github_id, 1, $3, $3 FROM installations WHERE host_id = $1 AND github_id = $2 AND state = 'removed'
ON CONFLICT (host_id, github_id) DO UPDATE SET confirmations = r.confirmations + 1, last_at = excluded.last_at
 WHERE r.last_at <= $4

-- name: back_again
-- GitHub knows installation $2 of host $1: delete its confirmations.
DELETE FROM removals WHERE host_id = $1 AND github_id = $2

-- name: removed_installations[]
-- Removed installations of App $1 whose accounts still have runners here, and no other installation.
SELECT i.github_id FROM installations i
 WHERE i.app_id = $1 AND i.state = 'removed'
   AND NOT EXISTS (SELECT FROM installations o WHERE o.account_id = i.account_id AND o.state <> 'removed')
   AND EXISTS (SELECT FROM runners r WHERE r.gone_at IS NULL AND r.account_id = i.account_id)
 ORDER BY i.github_id

-- name: active_installations[]
-- The App's installations that GitHub knew when they were last read.
SELECT github_id FROM installations WHERE app_id = $1 AND state <> 'removed' ORDER BY github_id

-- name: repositories
-- The repositories an installation may use, as listed; the account's other repositories are marked unreachable.
WITH listed AS (
    INSERT INTO repositories AS r (host_id, github_id, account_id, full_name)
    SELECT $1, t.github_id, $2, t.full_name
      FROM unnest($3::bigint[], $4::text[]) AS t (github_id, full_name)
     ORDER BY t.github_id
    ON CONFLICT (host_id, github_id) DO UPDATE
       SET account_id = excluded.account_id, full_name = excluded.full_name, accessible = true
     WHERE (r.account_id, r.full_name, r.accessible) IS DISTINCT FROM (excluded.account_id, excluded.full_name, true)
)
UPDATE repositories SET accessible = false
 WHERE account_id = $2 AND accessible AND github_id <> ALL ($3)

-- name: list[]
-- All accounts, what they use, and their waiting jobs.
SELECT a.id, h.name AS host, a.login, a.kind, a.weight, a.max_runners, a.max_vcpu_milli, a.max_memory_mib,
       a.paused_at, a.paused_by, a.paused_why,
       (SELECT i.state FROM installations i WHERE i.account_id = a.id ORDER BY i.state, i.read_at DESC LIMIT 1) AS installation,
       coalesce(u.runners, 0) AS runners, coalesce(u.vcpu_milli, 0) AS vcpu_milli,
       coalesce(u.memory_mib, 0) AS memory_mib,
       (SELECT count(*) FROM demand_keys k JOIN jobs j ON j.key_id = k.id
         WHERE k.account_id = a.id AND j.state = 'queued') AS queued
  FROM accounts a
  JOIN hosts h ON h.id = a.host_id
  LEFT JOIN (SELECT account_id, count(*) AS runners, sum(vcpu_milli) AS vcpu_milli, sum(memory_mib) AS memory_mib
               FROM runners WHERE gone_at IS NULL GROUP BY account_id) u ON u.account_id = a.id
 ORDER BY h.name, a.login, a.id

-- name: repository_named
-- A repository of account $1 by its full name.
SELECT id, max_runners, max_vcpu_milli, max_memory_mib FROM repositories
 WHERE account_id = $1 AND lower(full_name) = lower($2) ORDER BY accessible DESC, id DESC LIMIT 1

-- name: organisations[]
-- Accounts an App serves now, with the installation through which it does.
SELECT a.id, a.login, a.kind, i.github_id AS installation_id
  FROM installations i JOIN accounts a ON a.id = i.account_id
 WHERE i.app_id = $1 AND i.state = 'active'
 ORDER BY a.id

-- name: set_account_limits
-- Takes effect with the next match, and touches nothing that runs.
UPDATE accounts SET max_runners = $2, max_vcpu_milli = $3, max_memory_mib = $4 WHERE id = $1 RETURNING id

-- name: set_repository_limits
-- Takes effect with the next match, and touches nothing that runs.
UPDATE repositories SET max_runners = $2, max_vcpu_milli = $3, max_memory_mib = $4 WHERE id = $1
RETURNING account_id

-- name: move_misplaced
-- The first limit of a repository, and the removal of the last, change where runners of accounts $1 register.
SELECT move_misplaced_jobs($1)

-- name: pools_beside_limits[]
-- Pools that name a runner group in organisations of which a repository has limits; of account $1, or of all.
SELECT a.login, p.name AS pool
  FROM accounts a
  JOIN pool_groups g ON g.account_id = a.id
  JOIN pools p ON p.id = g.pool_id AND p.state = 'active' AND p.runner_group IS NOT NULL
 WHERE a.id = coalesce($1, a.id) AND a.kind = 'organization'
   AND EXISTS (SELECT FROM repositories r WHERE r.account_id = a.id AND r.limited)
 ORDER BY a.login, p.name

-- name: set_weight
-- An account's weight in fair sharing.
UPDATE accounts SET weight = $2 WHERE id = $1 RETURNING id

-- name: pause
-- Pause an account: no new claims; running jobs go on.
UPDATE accounts SET paused_at = $2, paused_by = $3, paused_why = $4 WHERE id = $1 AND paused_at IS NULL RETURNING id

-- name: resume
-- Resume claims for an account.
UPDATE accounts SET paused_at = NULL, paused_by = NULL, paused_why = NULL WHERE id = $1 AND paused_at IS NOT NULL RETURNING id

-- name: note
-- An operator's change to an account.
INSERT INTO events (at, actor, account_id, after, why) VALUES ($1, $2, $3, $4, $5)
