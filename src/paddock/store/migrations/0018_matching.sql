-- A match is two messages: `demand` (0019_demand) takes the matcher's lock and reads, `claim` writes, commits and lets the
-- lock go.
-- oldest program: 0.1.0

-- Every name is in one of two indexes, and in the second only when its claim has been made: one index less to write
-- for a claim. The mints of the last minute are those of both (I25).
DROP INDEX mints_recent;
DROP INDEX mints_unsettled;
CREATE INDEX mints_unsettled ON mints (app_id, chosen_at, installation_id) WHERE state <> 'settled';
CREATE INDEX mints_settled ON mints (app_id, settled_at) WHERE state = 'settled';

-- Waits until all that was committed is as durable as the server's settings ask: on the local disk, and on synchronous
-- standbys where there are any. Nothing waits for only that, so a transaction of its own says something to the log, and
-- its commit waits. It is left out where the local disk is all that counts and nothing is left to be flushed. That is
-- not enough with standbys: what another session has flushed here may not have reached them.
CREATE FUNCTION await_durability() RETURNS void LANGUAGE sql AS $$
    SELECT pg_logical_emit_message(true, 'paddock', '')
     WHERE pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()
        OR current_setting('synchronous_standby_names') <> ''
$$;

-- Writes all claims of a batch: the rows, the names, the tokens; in the name of `by`, at `moment`, to be minted by
-- `deadline`. A Pod that is no longer idle in the generation it asked in is `left_out`, and nothing is spent for it.
-- The lock is free, and what was written is seen, before disk and standbys are waited for, which may take longer than
-- all the rest. Nothing that others write meanwhile can outlive it: the log is flushed, and replicated, in its order.
CREATE PROCEDURE claim(
    ids uuid[], generations integer[], keys integer[], accounts integer[], apps integer[], installations bigint[],
    names text[], hints bigint[], moment timestamptz, by text, deadline timestamptz, INOUT left_out uuid[])
    LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    written uuid[];
BEGIN
    IF cardinality(ids) > 0 THEN
        SET LOCAL synchronous_commit = off;
        WITH wanted AS (
            SELECT * FROM unnest(ids, generations, keys, accounts, apps, installations, names, hints)
                AS w (id, generation, key_id, account_id, app_id, installation_id, name, hint_job_id)
        ), claimed AS (
            UPDATE runners r
               SET state = 'claimed', generation = r.generation + 1, version = r.version + 1,
                   since = moment, actor = by, why = 'matched with demand', evidence = NULL,
                   key_id = w.key_id, account_id = w.account_id, name = w.name, hint_job_id = w.hint_job_id,
                   claimed_at = moment, mint_deadline = deadline
              FROM wanted w
             WHERE r.id = w.id AND r.state = 'idle' AND r.generation = w.generation
            RETURNING r.id, r.generation, r.name, r.key_id, w.app_id, w.installation_id
        ), named AS (
            INSERT INTO mints (name, runner_id, generation, key_id, app_id, installation_id, chosen_at)
            SELECT name, id, generation, key_id, app_id, installation_id, moment FROM claimed
        ), spent AS (
            INSERT INTO budgets AS b (app_id, installation_id, bucket, capacity, refill_per_s, tokens, as_of)
            SELECT ap.id, s.installation_id, 'mint', ap.mint_burst, ap.mint_refill_per_s, ap.mint_burst - s.mints, moment
              FROM (SELECT app_id, installation_id, count(*) AS mints FROM claimed GROUP BY app_id, installation_id) s
              JOIN apps ap ON ap.id = s.app_id AND ap.mint_burst IS NOT NULL
            ON CONFLICT (app_id, installation_id, bucket) DO UPDATE
               SET tokens = tokens_at(b, moment) - (excluded.capacity - excluded.tokens),
                   as_of = greatest(b.as_of, moment)
        )
        SELECT coalesce(array_agg(id), '{}') INTO written FROM claimed;
        IF cardinality(written) < cardinality(ids) THEN
            left_out := ARRAY (SELECT unnest(ids) EXCEPT SELECT unnest(written));
        END IF;
        COMMIT;
    END IF;
    PERFORM pg_advisory_unlock(1885430635, 1);
    RESET idle_session_timeout;
    IF cardinality(written) > 0 THEN
        PERFORM await_durability();
    END IF;
END $$;
