-- Hosts, Apps, accounts, installations, repositories.

-- name: host
-- The id of a host, made on first sight.
INSERT INTO hosts (name, api_url) VALUES (lower(:name), :api_url)
ON CONFLICT (name) DO UPDATE SET api_url = excluded.api_url
RETURNING id

-- name: app
-- The id of an App, made on first sight.
INSERT INTO apps (host_id, github_id, slug, mints_per_minute, mint_burst, mint_refill_per_s)
VALUES (:host, :github_id, :slug, :per_minute, :burst, :refill_per_s)
ON CONFLICT (host_id, github_id) DO UPDATE
   SET slug = coalesce(excluded.slug, apps.slug), mints_per_minute = excluded.mints_per_minute,
       mint_burst = excluded.mint_burst, mint_refill_per_s = excluded.mint_refill_per_s
RETURNING id

-- name: mint_budgets
-- Resize the mint buckets of the App's installations to the App's present limit; tokens already spent stay spent.
UPDATE budgets
   SET capacity = ap.mint_burst, refill_per_s = ap.mint_refill_per_s, tokens = least(tokens, ap.mint_burst)
  FROM apps ap
 WHERE ap.id = :app AND app_id = ap.id AND bucket = 'mint' AND ap.mint_burst IS NOT NULL
   AND (capacity, refill_per_s) <> (ap.mint_burst, ap.mint_refill_per_s)

-- name: no_mint_budgets
-- Delete the mint buckets of an App whose host does not limit mints by the hour.
DELETE FROM budgets USING apps ap
 WHERE ap.id = :app AND app_id = ap.id AND bucket = 'mint' AND ap.mint_burst IS NULL

-- name: unchanged
-- The account of an installation, if the rows already hold what GitHub says of both (I84).
SELECT a.id
  FROM installations i JOIN accounts a ON a.id = i.account_id
 WHERE i.host_id = :host AND i.github_id = :installation AND i.app_id = :app AND i.state = :state
   AND i.all_repositories = :all_repositories
   AND a.host_id = :host AND a.github_id = :github_id AND a.login = :login AND a.kind = :kind

-- name: account
-- The account behind an installation. Its limits and weight are defaults for a new account; afterwards only an
-- operator changes them. Names change; ids do not (I4).
INSERT INTO accounts AS a (host_id, github_id, login, kind, created_at, max_runners, max_vcpu_milli,
                           max_memory_mib, weight)
VALUES (:host, :github_id, :login, :kind, :now, :max_runners, :max_vcpu_milli, :max_memory_mib, :weight)
ON CONFLICT (host_id, github_id) DO UPDATE SET login = excluded.login, kind = excluded.kind
RETURNING id

-- name: replace_installation
-- An App installed again for an account has a new installation id; the old installation is marked removed.
UPDATE installations SET state = 'removed', read_at = :now
 WHERE account_id = :account AND app_id = :app AND host_id = :host AND github_id <> :installation AND state <> 'removed'

-- name: forgive
-- Failures of an account while its installation was suspended were caused by the suspension: forgive them.
DELETE FROM backoffs
 WHERE scope = 'account' AND subject = :account
   AND EXISTS (SELECT FROM installations WHERE host_id = :host AND github_id = :installation AND state = 'suspended')

-- name: installation
-- The installation as GitHub describes it now.
INSERT INTO installations (host_id, github_id, app_id, account_id, state, all_repositories, read_at)
VALUES (:host, :installation, :app, :account, :state, :all_repositories, :now)
ON CONFLICT (host_id, github_id) DO UPDATE
   SET state = excluded.state, all_repositories = excluded.all_repositories, read_at = excluded.read_at,
       account_id = excluded.account_id

-- name: remove_installation
-- GitHub no longer knows the installation.
UPDATE installations SET state = 'removed', read_at = :now
 WHERE host_id = :host AND github_id = :installation AND state <> 'removed'

-- name: confirm_removal
-- GitHub did not know the installation at :now: count a confirmation, unless the last one was after :last_before.
INSERT INTO removals AS r (host_id, github_id, confirmations, first_at, last_at)
SELECT host_id, github_id, 1, :now, :now FROM installations
 WHERE host_id = :host AND github_id = :installation AND state = 'removed'
ON CONFLICT (host_id, github_id) DO UPDATE SET confirmations = r.confirmations + 1, last_at = excluded.last_at
 WHERE r.last_at <= :last_before

-- name: back_again
-- GitHub knows the installation: delete its confirmations.
DELETE FROM removals WHERE host_id = :host AND github_id = :installation

-- name: removed_installations[]
-- Removed installations of an App whose accounts still have runners here, and no other installation.
SELECT i.github_id FROM installations i
 WHERE i.app_id = :app AND i.state = 'removed'
   AND NOT EXISTS (SELECT FROM installations o WHERE o.account_id = i.account_id AND o.state <> 'removed')
   AND EXISTS (SELECT FROM runners r WHERE r.gone_at IS NULL AND r.account_id = i.account_id)
 ORDER BY i.github_id

-- name: active_installations[]
-- The App's installations that GitHub knew when they were last read.
SELECT github_id FROM installations WHERE app_id = :app AND state <> 'removed' ORDER BY github_id

-- name: repositories
-- The repositories an installation may use, as listed; the account's other repositories are marked unreachable.
WITH listed AS (
    INSERT INTO repositories AS r (host_id, github_id, account_id, full_name)
    SELECT :host, t.github_id, :account, t.full_name
      FROM unnest(:github_ids::bigint[], :full_names::text[]) AS t (github_id, full_name)
     ORDER BY t.github_id
    ON CONFLICT (host_id, github_id) DO UPDATE
       SET account_id = excluded.account_id, full_name = excluded.full_name, accessible = true
     WHERE (r.account_id, r.full_name, r.accessible) IS DISTINCT FROM (excluded.account_id, excluded.full_name, true)
)
UPDATE repositories SET accessible = false
 WHERE account_id = :account AND accessible AND github_id <> ALL (:github_ids)

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
-- A repository of an account by its full name.
SELECT id, max_runners, max_vcpu_milli, max_memory_mib FROM repositories
 WHERE account_id = :account AND lower(full_name) = lower(:full_name) ORDER BY accessible DESC, id DESC LIMIT 1

-- name: organisations[]
-- Accounts an App serves now, with the installation through which it does.
SELECT a.id, a.login, a.kind, i.github_id AS installation
  FROM installations i JOIN accounts a ON a.id = i.account_id
 WHERE i.app_id = :app AND i.state = 'active'
 ORDER BY a.id

-- name: set_account_limits
-- Takes effect with the next match, and touches nothing that runs.
UPDATE accounts SET max_runners = :runners, max_vcpu_milli = :vcpu_milli, max_memory_mib = :memory_mib
 WHERE id = :account RETURNING id

-- name: set_repository_limits
-- Takes effect with the next match, and touches nothing that runs.
UPDATE repositories SET max_runners = :runners, max_vcpu_milli = :vcpu_milli, max_memory_mib = :memory_mib
 WHERE id = :repository RETURNING account_id

-- name: move_misplaced
-- The first limit of a repository, and the removal of the last, change where runners of its account register.
SELECT move_misplaced_jobs(:accounts)

-- name: pools_beside_limits[]
-- Pools that name a runner group in organisations of which a repository has limits; of :account, or of all.
SELECT a.login, p.name AS pool
  FROM accounts a
  JOIN pool_groups g ON g.account_id = a.id
  JOIN pools p ON p.id = g.pool_id AND p.state = 'active' AND p.runner_group IS NOT NULL
 WHERE a.id = coalesce(:account, a.id) AND a.kind = 'organization'
   AND EXISTS (SELECT FROM repositories r WHERE r.account_id = a.id AND r.limited)
 ORDER BY a.login, p.name

-- name: set_weight
-- An account's weight in fair sharing.
UPDATE accounts SET weight = :weight WHERE id = :account RETURNING id

-- name: pause
-- Pause an account: no new claims; running jobs go on.
UPDATE accounts SET paused_at = :now, paused_by = :actor, paused_why = :why
 WHERE id = :account AND paused_at IS NULL RETURNING id

-- name: resume
-- Resume claims for an account.
UPDATE accounts SET paused_at = NULL, paused_by = NULL, paused_why = NULL
 WHERE id = :account AND paused_at IS NOT NULL RETURNING id

-- name: note
-- An operator's change to an account.
INSERT INTO events (at, actor, account_id, after, why) VALUES (:now, :actor, :account, :what, :why)
