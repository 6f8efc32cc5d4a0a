-- A match is two messages: `demand` takes the matcher's lock and reads, `claim` writes, commits and lets the lock go.
-- oldest program: 0.1.0

-- Every name is in one of two indexes, and in the second only when its claim has been made: one index less to write
-- for a claim. The mints of the last minute are those of both (I25).
DROP INDEX mints_recent;
DROP INDEX mints_unsettled;
CREATE INDEX mints_unsettled ON mints (app_id, chosen_at) WHERE state <> 'settled';
CREATE INDEX mints_settled ON mints (app_id, settled_at) WHERE state = 'settled';

-- What changes from match to match: what each key holds; per key with demand its oldest jobs that no supply is on its
-- way to; back-offs; the mints each App has left; and which terms hold. For so many `pods`, at `moment`; of each key
-- `per_key` jobs (NULL: as many as a fair share needs). In JSON, by columns, in no order: a row of lists takes a
-- driver longer to read.
-- With `stall`, under the matcher's lock, which this session holds from then on, until `claim`. It is taken by a
-- statement of its own: one that both waited for it and read would see the database as it was before the wait, and
-- two matchers could fill the same place (I25). A session that says nothing for so long has stalled, and the server
-- ends it, and its lock (I72).
-- The walk over the keys is a loose index scan: it costs one probe per key, whatever the queue's depth.
CREATE FUNCTION demand(pods integer, per_key integer, moment timestamptz, stall text)
    RETURNS json LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF stall IS NOT NULL THEN
        PERFORM set_config('idle_session_timeout', stall, false), pg_advisory_lock(1885430635, 1);
    END IF;
    RETURN (
    WITH RECURSIVE demanded (key_id) AS (
        (SELECT key_id FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL ORDER BY key_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.key_id FROM jobs j
                 WHERE j.state = 'queued' AND j.key_id > d.key_id ORDER BY j.key_id LIMIT 1)
          FROM demanded d WHERE d.key_id IS NOT NULL
    ), held AS MATERIALIZED (
        SELECT key_id, count(*)::int AS runners, sum(vcpu_milli) AS vcpu_milli, sum(memory_mib) AS memory_mib,
               count(*) FILTER (
                   WHERE state IN ('claimed', 'armed', 'running') AND suspect_at IS NULL
                      -- Busy by its own word: which of the queued jobs it has is told any moment (I73).
                      OR state = 'busy' AND job_id IS NULL AND busy_at > moment - interval '2 minutes') AS supply
          FROM runners
         WHERE key_id IS NOT NULL AND gone_at IS NULL
         GROUP BY key_id
    ), echoing AS (
        -- Runners that ended and whose job may have been done: served again only when that is known (I68).
        SELECT key_id, count(*) AS supply FROM echoes WHERE until > moment GROUP BY key_id
    ), fair (jobs) AS (
        SELECT coalesce(per_key, greatest(1, 2 * pods / greatest(1, (SELECT count(*) FROM demanded
                                                                      WHERE key_id IS NOT NULL))))::int
    ), unserved AS (
        SELECT d.key_id, j.queued_at, j.id
          FROM demanded d
          LEFT JOIN held h ON h.key_id = d.key_id
          LEFT JOIN echoing e ON e.key_id = d.key_id
         CROSS JOIN LATERAL (
            SELECT queued_at, id FROM jobs
             WHERE state = 'queued' AND jobs.key_id = d.key_id
             ORDER BY queued_at, id OFFSET coalesce(h.supply, 0) + coalesce(e.supply, 0) LIMIT (SELECT jobs FROM fair)) j
         WHERE d.key_id IS NOT NULL
    ), tokens AS (
        SELECT ap.id AS app_id,
               least(floor(tokens_at(b, moment))::int,
                     ap.mints_per_minute
                     - (SELECT count(*) FROM mints m
                         WHERE ap.mints_per_minute IS NOT NULL AND m.app_id = ap.id AND m.state <> 'settled'
                           AND m.chosen_at > moment - interval '60 seconds')::int
                     - (SELECT count(*) FROM mints m
                         WHERE ap.mints_per_minute IS NOT NULL AND m.app_id = ap.id AND m.state = 'settled'
                           AND m.settled_at > moment - interval '60 seconds'
                           AND m.chosen_at > moment - interval '60 seconds')::int) AS mints
          FROM apps ap LEFT JOIN budgets b ON b.app_id = ap.id AND b.bucket = 'mint'
    )
    SELECT json_build_object(
               'terms', (SELECT version FROM terms), 'depth', (SELECT jobs FROM fair),
               'held_keys', h.keys, 'runners', h.runners, 'vcpu_milli', h.vcpu_milli, 'memory_mib', h.memory_mib,
               'job_keys', u.keys, 'queued_at', u.queued_at, 'job_ids', u.ids,
               'apps', t.apps, 'mints', t.mints,
               'backoff_scopes', b.scopes, 'backoff_subjects', b.subjects)
      FROM (SELECT coalesce(array_agg(key_id), '{}') AS keys, coalesce(array_agg(runners), '{}') AS runners,
                   coalesce(array_agg(vcpu_milli), '{}') AS vcpu_milli,
                   coalesce(array_agg(memory_mib), '{}') AS memory_mib
              FROM held) h,
           (SELECT coalesce(array_agg(key_id), '{}') AS keys,
                   coalesce(array_agg(date_part('epoch', queued_at)), '{}') AS queued_at,
                   coalesce(array_agg(id), '{}') AS ids
              FROM unserved) u,
           (SELECT coalesce(array_agg(app_id), '{}') AS apps, coalesce(array_agg(mints), '{}') AS mints FROM tokens) t,
           (SELECT coalesce(array_agg(scope::text), '{}') AS scopes, coalesce(array_agg(subject), '{}') AS subjects
              FROM backoffs WHERE until > moment) b);
END $$;

-- Writes all claims of a batch: the rows, the names, the tokens; in the name of `by`, at `moment`, to be minted by
-- `deadline`. A Pod that is no longer idle in the generation it asked in is `left_out`, and nothing is spent for it.
-- The lock is free, and what was written is seen, before the disk is waited for, which may take longer than all the
-- rest. Nothing that others write meanwhile can outlive it: the log is flushed in its order.
CREATE PROCEDURE claim(
    ids uuid[], generations integer[], keys integer[], accounts integer[], apps integer[], names text[], hints bigint[],
    moment timestamptz, by text, deadline timestamptz, INOUT left_out uuid[])
    LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    written uuid[];
BEGIN
    IF cardinality(ids) > 0 THEN
        SET LOCAL synchronous_commit = off;
        WITH wanted AS (
            SELECT * FROM unnest(ids, generations, keys, accounts, apps, names, hints)
                AS w (id, generation, key_id, account_id, app_id, name, hint_job_id)
        ), claimed AS (
            UPDATE runners r
               SET state = 'claimed', generation = r.generation + 1, version = r.version + 1,
                   since = moment, actor = by, why = 'matched with demand', evidence = NULL,
                   key_id = w.key_id, account_id = w.account_id, name = w.name, hint_job_id = w.hint_job_id,
                   claimed_at = moment, mint_deadline = deadline
              FROM wanted w
             WHERE r.id = w.id AND r.state = 'idle' AND r.generation = w.generation
            RETURNING r.id, r.generation, r.name, r.key_id, w.app_id
        ), named AS (
            INSERT INTO mints (name, runner_id, generation, key_id, app_id, chosen_at)
            SELECT name, id, generation, key_id, app_id, moment FROM claimed
        ), spent AS (
            UPDATE budgets b
               SET tokens = tokens_at(b, moment) - s.mints, as_of = greatest(b.as_of, moment)
              FROM (SELECT app_id, count(*) AS mints FROM claimed GROUP BY app_id) s
             WHERE b.app_id = s.app_id AND b.bucket = 'mint'
        )
        SELECT coalesce(array_agg(id), '{}') INTO written FROM claimed;
        IF cardinality(written) < cardinality(ids) THEN
            left_out := ARRAY (SELECT unnest(ids) EXCEPT SELECT unnest(written));
        END IF;
        COMMIT;
    END IF;
    PERFORM pg_advisory_unlock(1885430635, 1);
    RESET idle_session_timeout;
    -- There is no call that only waits for the disk, so a transaction of its own says something to the log.
    IF cardinality(written) > 0 AND pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn() THEN
        PERFORM pg_logical_emit_message(true, 'paddock', '');
    END IF;
END $$;
