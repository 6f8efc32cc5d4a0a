-- The matcher reads what binds a key (limits, weights, pauses, installations, costs) when it changed, and not
-- with every match; and a batch of claims is checked as a batch.
-- oldest program: 0.1.0

-- A name for the terms as they are. It is drawn anew with every change, not counted: after a restored backup a
-- counter would come by a number twice, and a matcher would take other terms for those it knows.
CREATE TABLE terms (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    version  uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO terms DEFAULT VALUES;

CREATE OR REPLACE FUNCTION limits_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE terms SET version = gen_random_uuid();
    PERFORM pg_notify('paddock', 'pools'), pg_notify('paddock', 'demand');
    RETURN NULL;
END $$;
-- Names are part of the terms too: a JIT is minted at them. They are written with every list that is read, and
-- seldom change.
CREATE TRIGGER name_changed AFTER UPDATE OF login ON accounts
    FOR EACH ROW WHEN (OLD.login <> NEW.login) EXECUTE FUNCTION limits_changed();
-- Both decide at which scope the runners of an account register.
CREATE TRIGGER scope_changed AFTER UPDATE OF kind ON accounts
    FOR EACH ROW WHEN (OLD.kind <> NEW.kind) EXECUTE FUNCTION limits_changed();
CREATE TRIGGER scope_changed AFTER UPDATE OF account_id ON repositories
    FOR EACH ROW WHEN (OLD.account_id <> NEW.account_id AND NEW.limited) EXECUTE FUNCTION limits_changed();
CREATE TRIGGER name_changed AFTER UPDATE OF full_name ON repositories
    FOR EACH ROW WHEN (OLD.full_name <> NEW.full_name) EXECUTE FUNCTION limits_changed();

-- Capacity is charged to the account of the key, and to no other: looked up once for a statement, where a foreign
-- key would look it up, and lock it, for every row. A key is what it is for ever.
CREATE FUNCTION keys_are_for_ever() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'demand key % may not be changed or deleted: runners are charged by it', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'keys_are_for_ever';
END $$;
CREATE TRIGGER keys_are_for_ever BEFORE DELETE ON demand_keys
    FOR EACH ROW EXECUTE FUNCTION keys_are_for_ever();
CREATE TRIGGER keys_do_not_change BEFORE UPDATE ON demand_keys
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION keys_are_for_ever();

CREATE FUNCTION refuse_charge(pod_name text, key_id integer, account_id integer) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'runner % may not be charged to account %: its demand key % is not of it', pod_name, account_id, key_id
        USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'runners_key_id_account_id_fkey';
END $$;

CREATE OR REPLACE FUNCTION runners_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at, actor, runner_id, before, after, generation, why, evidence)
    SELECT n.since, n.actor, n.id, NULL,
           CASE WHEN n.key_id IS NULL OR k.id IS NOT NULL
                THEN n.state::text ELSE refuse_charge(n.pod_name, n.key_id, n.account_id) END,
           n.generation, n.why, n.evidence
      FROM added n LEFT JOIN demand_keys k ON k.id = n.key_id AND k.account_id = n.account_id
     ORDER BY n.id;
    RETURN NULL;
END $$;

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
    -- A notification takes one lock of the whole server when its transaction commits, and holds it until the commit is
    -- on the disk: with commits of 5 ms no more than 170 of them a second. What a runner does between its claim and its
    -- end changes neither what may be claimed nor how many runners a pool should have: no loop waits for it.
    IF FOUND AND EXISTS (SELECT FROM became WHERE state NOT IN ('armed', 'running', 'busy', 'done')) THEN
        PERFORM pg_notify('paddock', 'runners');
        -- A place came free, or a Pod did: work that was withheld may go on.
        IF EXISTS (SELECT FROM became WHERE state IN ('gone', 'idle')) THEN
            PERFORM pg_notify('paddock', 'demand');
        END IF;
    END IF;
    RETURN NULL;
END $$;
ALTER TABLE runners DROP CONSTRAINT runners_key_id_account_id_fkey;
