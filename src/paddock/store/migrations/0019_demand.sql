-- What a match reads.
-- oldest program: 0.1.0

-- Found by account: what accounts with demand hold is read with every match, and a fleet has five idle Pods for each
-- that is not. A claim is the one step that writes to the indexes of its runner.
CREATE INDEX runners_of_account ON runners (account_id, pool_id) WHERE account_id IS NOT NULL AND gone_at IS NULL;

-- What changes from match to match: per key with demand its oldest jobs that no supply is on its way to; what each key
-- of their accounts holds; what each pool with a maximum holds, if there is demand for it; back-offs; the mints an
-- installation of each App may make, and what those have left that have less than `pods`; and which terms hold. For so
-- many `pods`, at `moment`; of each key `per_key` jobs (NULL: as many as a fair share needs). In JSON, by columns, in
-- no order: a row of lists takes a driver longer to read.
-- With `stall`, under the matcher's lock, which this session holds from then on, until `claim`. It is taken by a
-- statement of its own: one that both waited for it and read would see the database as it was before the wait, and
-- two matchers could fill the same place (I25). A session that says nothing for so long has stalled, and the server
-- ends it, and its lock (I72).
-- The walk over the keys is a loose index scan: it costs one probe per key, whatever the queue's depth, and brings the
-- key's oldest job along. More of a key is read where more is wanted, or where supply is on its way to the oldest.
CREATE FUNCTION demand(pods integer, per_key integer, moment timestamptz, stall text)
    RETURNS json LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF stall IS NOT NULL THEN
        PERFORM set_config('idle_session_timeout', stall, false), pg_advisory_lock(1885430635, 1);
    END IF;
    RETURN (
    WITH RECURSIVE demanded (key_id, queued_at, id) AS (
        (SELECT key_id, queued_at, id FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL
          ORDER BY key_id, queued_at, id LIMIT 1)
        UNION ALL
        SELECT j.key_id, j.queued_at, j.id
          FROM demanded d
         CROSS JOIN LATERAL (SELECT key_id, queued_at, id FROM jobs
                              WHERE state = 'queued' AND jobs.key_id > d.key_id
                              ORDER BY key_id, queued_at, id LIMIT 1) j
    ), wanted AS MATERIALIZED (
        SELECT k.account_id, k.pool_id FROM demanded d JOIN demand_keys k ON k.id = d.key_id
    ), held AS MATERIALIZED (
        SELECT r.key_id, count(*)::int AS runners, sum(r.vcpu_milli) AS vcpu_milli, sum(r.memory_mib) AS memory_mib,
               count(*) FILTER (WHERE is_supply(r, moment)) AS supply
          FROM (SELECT DISTINCT account_id FROM wanted) w
          JOIN runners r ON r.account_id = w.account_id
         WHERE r.gone_at IS NULL
         GROUP BY r.key_id
    ), filled AS (
        SELECT p.id AS pool_id, count(r.id)::int AS runners
          FROM (SELECT DISTINCT pool_id FROM wanted) w
          JOIN pools p ON p.id = w.pool_id AND p.max_runners IS NOT NULL
          LEFT JOIN runners r ON r.pool_id = p.id AND r.account_id IS NOT NULL AND r.gone_at IS NULL
         GROUP BY p.id
    ), echoing AS (
        -- Runners that ended and whose job may have been done: served again only when that is known (I68).
        SELECT key_id, count(*) AS supply FROM echoes e WHERE is_supply(e, moment) GROUP BY key_id
    ), fair (jobs) AS (
        SELECT coalesce(per_key, greatest(1, 2 * pods / greatest(1, (SELECT count(*) FROM demanded))))::int
    ), due AS (
        SELECT d.key_id, d.queued_at, d.id, coalesce(h.supply, 0) + coalesce(e.supply, 0) AS served
          FROM demanded d
          LEFT JOIN held h ON h.key_id = d.key_id
          LEFT JOIN echoing e ON e.key_id = d.key_id
    ), unserved AS (
        SELECT key_id, queued_at, id FROM due WHERE served = 0 AND (SELECT jobs FROM fair) = 1
        UNION ALL
        SELECT d.key_id, j.queued_at, j.id
          FROM due d
         CROSS JOIN LATERAL (
            SELECT queued_at, id FROM jobs
             WHERE state = 'queued' AND jobs.key_id = d.key_id
             ORDER BY queued_at, id OFFSET d.served LIMIT (SELECT jobs FROM fair)) j
         WHERE d.served > 0 OR (SELECT jobs FROM fair) > 1
    ), minted AS (
        -- Counted in the last minute, for Apps that limit it.
        SELECT ap.id AS app_id, m.installation_id, ap.mints_per_minute - count(*)::int AS mints
          FROM apps ap
         CROSS JOIN LATERAL (
            SELECT installation_id FROM mints
             WHERE app_id = ap.id AND state <> 'settled' AND chosen_at > moment - interval '60 seconds'
             UNION ALL
            SELECT installation_id FROM mints
             WHERE app_id = ap.id AND state = 'settled' AND settled_at > moment - interval '60 seconds'
               AND chosen_at > moment - interval '60 seconds') m
         WHERE ap.mints_per_minute IS NOT NULL
         GROUP BY ap.id, m.installation_id
    ), tokens AS (
        -- Of each installation that has fewer mints left than Pods wait.
        SELECT app_id, installation_id, min(mints) AS mints
          FROM (SELECT * FROM minted WHERE mints < pods
                 UNION ALL
                SELECT b.app_id, b.installation_id, floor(tokens_at(b, moment))::int FROM budgets b
                 WHERE b.bucket = 'mint' AND tokens_at(b, moment) < pods) t
         GROUP BY app_id, installation_id
    )
    SELECT json_build_object(
               'terms', (SELECT version FROM terms), 'depth', (SELECT jobs FROM fair),
               'held_keys', h.keys, 'runners', h.runners, 'vcpu_milli', h.vcpu_milli, 'memory_mib', h.memory_mib,
               'pools', f.pools, 'pool_runners', f.runners,
               'job_keys', u.keys, 'queued_at', u.queued_at, 'job_ids', u.ids,
               'apps', a.apps, 'app_mints', a.mints,
               'mint_apps', t.apps, 'mint_installations', t.installations, 'mints', t.mints,
               'backoff_scopes', b.scopes, 'backoff_subjects', b.subjects)
      FROM (SELECT coalesce(array_agg(key_id), '{}') AS keys, coalesce(array_agg(runners), '{}') AS runners,
                   coalesce(array_agg(vcpu_milli), '{}') AS vcpu_milli,
                   coalesce(array_agg(memory_mib), '{}') AS memory_mib
              FROM held) h,
           (SELECT coalesce(array_agg(pool_id), '{}') AS pools, coalesce(array_agg(runners), '{}') AS runners
              FROM filled) f,
           (SELECT coalesce(array_agg(key_id), '{}') AS keys,
                   coalesce(array_agg(date_part('epoch', queued_at)), '{}') AS queued_at,
                   coalesce(array_agg(id), '{}') AS ids
              FROM unserved) u,
           (SELECT coalesce(array_agg(id), '{}') AS apps,
                   coalesce(array_agg(least(floor(mint_burst)::int, mints_per_minute)), '{}') AS mints
              FROM apps) a,
           (SELECT coalesce(array_agg(app_id), '{}') AS apps,
                   coalesce(array_agg(installation_id), '{}') AS installations,
                   coalesce(array_agg(mints), '{}') AS mints
              FROM tokens) t,
           (SELECT coalesce(array_agg(scope::text), '{}') AS scopes, coalesce(array_agg(subject), '{}') AS subjects
              FROM backoffs WHERE until > moment) b);
END $$;
