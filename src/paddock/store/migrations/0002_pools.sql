-- Pools of runners, and the demand keys under which jobs and runners of a pool meet.
-- oldest program: 0.1.0

CREATE TYPE pool_state AS ENUM ('active', 'draining', 'deleted');
CREATE TYPE pod_shape AS ENUM ('gated', 'single');

CREATE TABLE pools (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL CHECK (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    state       pool_state NOT NULL DEFAULT 'active',
    labels      text[] NOT NULL CHECK (cardinality(labels) BETWEEN 1 AND 100),
    shape       pod_shape NOT NULL,
    -- What one runner occupies, its Pod's runtime overhead included (I48).
    vcpu_milli  integer NOT NULL CHECK (vcpu_milli >= 0),
    memory_mib  integer NOT NULL CHECK (memory_mib >= 0),
    -- NULL is "no maximum"; zero is zero (I54).
    max_runners integer CHECK (max_runners >= 0),
    spec        jsonb NOT NULL,
    spec_hash   text NOT NULL,
    -- The name of the runner group its runners join in each organisation; NULL is the default group.
    runner_group text CHECK (runner_group <> ''),
    paused_at   timestamptz,
    paused_by   text,
    created_at  timestamptz NOT NULL,
    changed_at  timestamptz NOT NULL,
    CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);
CREATE UNIQUE INDEX pools_name ON pools (name) WHERE state <> 'deleted';

CREATE TABLE pool_groups (
    pool_id     integer NOT NULL REFERENCES pools ON DELETE CASCADE,
    account_id  integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    runner_group_id  bigint NOT NULL,
    PRIMARY KEY (pool_id, account_id)
);
COMMENT ON TABLE pool_groups IS 'The id that a pool''s runner group has in an organisation. No row: it was not found there, and the pool takes none of its jobs.';

-- Pools whose label sets contain one another are refused: a job of the smaller set would fit both (I10).
CREATE FUNCTION pools_labels_apart() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    other text;
BEGIN
    -- Two writers who cannot see each other's row yet must not both pass.
    PERFORM pg_advisory_xact_lock(hashtext('paddock pools'));
    SELECT p.name INTO other
      FROM pools p
     WHERE p.id <> NEW.id AND p.state = 'active' AND (p.labels @> NEW.labels OR p.labels <@ NEW.labels)
     ORDER BY p.id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the labels of pool % and of pool % contain one another', NEW.name, other
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pools_labels_apart';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER pools_labels_apart
    AFTER INSERT OR UPDATE OF labels, state ON pools
    FOR EACH ROW WHEN (NEW.state = 'active') EXECUTE FUNCTION pools_labels_apart();

CREATE TABLE demand_keys (
    id             integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id     integer NOT NULL REFERENCES accounts,
    -- NULL: registered at the organisation. Set: at this repository alone.
    repository_id  integer REFERENCES repositories,
    runner_group_id  bigint NOT NULL,
    pool_id        integer NOT NULL REFERENCES pools,
    UNIQUE NULLS NOT DISTINCT (account_id, repository_id, runner_group_id, pool_id),
    UNIQUE (id, account_id)
);
COMMENT ON TABLE demand_keys IS 'Jobs and runners of one key are interchangeable at GitHub: demand and supply are counted per key.';

-- At which scope the runners of a pool register for the jobs of an account, and in which group; no row if the
-- organisation lacks the group that the pool names. GitHub gives a job to any runner whose scope covers its
-- repository. So while one repository of an organisation has limits, all runners for the organisation register at
-- repositories: none can take a job of another repository than its own (I78). Users have no other scope. The group of a
-- repository's runners is the default one (id 1, everywhere). A pool that names a group stays at the organisation,
-- because the group decides which repositories its runners work for: there the limits are not exact.
CREATE FUNCTION registration(account_id integer, pool_id integer)
RETURNS TABLE (at_repository boolean, runner_group_id bigint) LANGUAGE sql STABLE AS $$
    SELECT s.at_repository, CASE WHEN s.at_repository OR p.runner_group IS NULL THEN 1 ELSE g.runner_group_id END
      FROM accounts a
      JOIN pools p ON p.id = registration.pool_id
      LEFT JOIN pool_groups g ON g.pool_id = p.id AND g.account_id = a.id
     CROSS JOIN LATERAL (
        SELECT a.kind = 'user' OR p.runner_group IS NULL
               AND EXISTS (SELECT FROM repositories r WHERE r.account_id = a.id AND r.limited)) AS s (at_repository)
     WHERE a.id = registration.account_id
       AND (s.at_repository OR p.runner_group IS NULL OR g.runner_group_id IS NOT NULL)
$$;

-- Whatever changes what may be claimed wakes the matchers. A statement that changes no row wakes nobody (I84), so
-- these are triggers of rows: those of statements run also for none.
CREATE FUNCTION limits_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('paddock', 'pools'), pg_notify('paddock', 'demand');
    RETURN NULL;
END $$;
CREATE TRIGGER limits_made AFTER INSERT OR DELETE ON pools
    FOR EACH ROW EXECUTE FUNCTION limits_changed();
CREATE TRIGGER limits_changed AFTER UPDATE ON pools
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION limits_changed();
CREATE TRIGGER limits_made AFTER INSERT OR DELETE ON pool_groups
    FOR EACH ROW EXECUTE FUNCTION limits_changed();
CREATE TRIGGER limits_changed AFTER UPDATE ON pool_groups
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION limits_changed();
CREATE TRIGGER limits_changed AFTER UPDATE OF weight, max_runners, max_vcpu_milli, max_memory_mib, paused_at ON accounts
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION limits_changed();
CREATE TRIGGER limits_changed AFTER UPDATE OF max_runners, max_vcpu_milli, max_memory_mib ON repositories
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION limits_changed();
CREATE TRIGGER limits_made AFTER INSERT OR DELETE ON installations
    FOR EACH ROW EXECUTE FUNCTION limits_changed();
CREATE TRIGGER limits_changed AFTER UPDATE ON installations
    FOR EACH ROW WHEN ((OLD.state, OLD.app_id, OLD.account_id) IS DISTINCT FROM (NEW.state, NEW.app_id, NEW.account_id))
    EXECUTE FUNCTION limits_changed();
