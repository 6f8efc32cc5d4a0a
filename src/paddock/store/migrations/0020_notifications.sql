-- Steps of a runner that no loop waits for wake none.
-- oldest program: 0.1.0

-- A notification takes one lock of the whole server when its transaction commits, and holds it until the commit is on
-- the disk: with commits of 5 ms no more than 170 of them a second. What a runner does between its claim and its end
-- changes neither what may be claimed nor how many runners a pool should have.
CREATE OR REPLACE FUNCTION runners_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at, actor, runner_id, before, after, generation, why, evidence)
    SELECT n.since, n.actor, n.id, o.state::text,
           CASE WHEN n.key_id IS NOT NULL AND k.id IS NULL
                THEN refuse_charge(n.pod_name, n.key_id, n.account_id)
                WHEN n.version = o.version + 1 AND n.generation >= o.generation
                 AND (n.state <> o.state OR n.generation <> o.generation)
                 AND (o.state, n.state) IN (SELECT before, after FROM runner_transitions)
                THEN n.state::text ELSE refuse_step(n.pod_name, o.state, n.state) END,
           n.generation, n.why, n.evidence
      FROM was o JOIN became n USING (id)
      LEFT JOIN demand_keys k ON k.id = n.key_id AND k.account_id = n.account_id
     WHERE n.version <> o.version OR n.state <> o.state OR n.generation <> o.generation
        OR (n.key_id IS NOT NULL AND k.id IS NULL
            AND (n.key_id IS DISTINCT FROM o.key_id OR n.account_id IS DISTINCT FROM o.account_id))
     ORDER BY n.id;
    IF FOUND AND EXISTS (SELECT FROM became WHERE state NOT IN ('armed', 'running', 'busy', 'done')) THEN
        PERFORM pg_notify('paddock', 'runners');
        -- A place came free, or a Pod did: work that was withheld may go on.
        IF EXISTS (SELECT FROM became WHERE state IN ('gone', 'idle')) THEN
            PERFORM pg_notify('paddock', 'demand');
        END IF;
    END IF;
    RETURN NULL;
END $$;
