-- Runners: one row is the claim, the session and the occupancy, so they cannot disagree (I14, I15).
-- oldest program: 0.1.0

CREATE TYPE runner_state AS ENUM
    ('booting', 'idle', 'claimed', 'armed', 'running', 'busy', 'done', 'retiring', 'gone');

-- The legal steps; the same table as paddock.domain.states, held equal by a test.
CREATE TABLE runner_transitions (
    before runner_state NOT NULL,
    after  runner_state NOT NULL,
    PRIMARY KEY (before, after)
);
INSERT INTO runner_transitions (before, after) VALUES
    ('booting', 'idle'), ('booting', 'retiring'), ('booting', 'gone'),
    ('idle', 'claimed'), ('idle', 'retiring'), ('idle', 'gone'),
    ('claimed', 'claimed'), ('claimed', 'idle'), ('claimed', 'armed'), ('claimed', 'retiring'), ('claimed', 'gone'),
    ('armed', 'running'), ('armed', 'busy'), ('armed', 'done'), ('armed', 'retiring'), ('armed', 'gone'),
    ('running', 'busy'), ('running', 'done'), ('running', 'retiring'), ('running', 'gone'),
    ('busy', 'done'), ('busy', 'retiring'), ('busy', 'gone'),
    ('done', 'retiring'), ('done', 'gone'),
    ('retiring', 'retiring'), ('retiring', 'busy'), ('retiring', 'done'), ('retiring', 'gone');

CREATE TABLE runners (
    id          uuid PRIMARY KEY,
    pool_id     integer NOT NULL REFERENCES pools,
    shape       pod_shape NOT NULL,
    vcpu_milli  integer NOT NULL CHECK (vcpu_milli >= 0),
    memory_mib  integer NOT NULL CHECK (memory_mib >= 0),
    spec_hash   text NOT NULL,
    pod_name    text NOT NULL UNIQUE CHECK (length(pod_name) <= 63),
    pod_uid     text,
    node        text,
    created_at  timestamptz NOT NULL,
    heard_at    timestamptz,

    state       runner_state NOT NULL,
    -- Counts the claims of this Pod and its fence: a late write for an earlier one finds another (I16).
    generation  integer NOT NULL DEFAULT 0 CHECK (generation >= 0),
    -- Counts the steps; every step has an event.
    version     integer NOT NULL DEFAULT 1,
    -- Of the last step: copied into its event.
    since       timestamptz NOT NULL,
    actor       text NOT NULL,
    why         text NOT NULL,
    evidence    jsonb,

    key_id      integer,
    account_id  integer,
    hint_job_id bigint,
    name        text,
    claimed_at  timestamptz,
    mint_deadline timestamptz,
    github_id   bigint,
    jit         bytea,
    jit_key     text,
    delivery_id uuid,
    armed_at    timestamptz,
    acknowledged_at timestamptz,
    -- When the runner itself said that a job began; untrusted, and evidence only against deleting it.
    job_marked_at timestamptz,
    busy_at     timestamptz,
    job_id      bigint,
    done_at     timestamptz,
    retiring_at timestamptz,
    retire_reason text,
    gone_at     timestamptz,

    -- Capacity is charged to the account of the key, and to no other.
    FOREIGN KEY (key_id, account_id) REFERENCES demand_keys (id, account_id),
    CONSTRAINT key_and_account CHECK ((key_id IS NULL) = (account_id IS NULL)),
    CONSTRAINT claim_is_whole CHECK (num_nonnulls(key_id, name, claimed_at) IN (0, 3)),
    CONSTRAINT unclaimed_has_no_claim CHECK (state NOT IN ('booting', 'idle') OR num_nonnulls(key_id, github_id, job_id) = 0),
    CONSTRAINT heard_has_a_pod CHECK (state IN ('booting', 'retiring', 'gone') OR pod_uid IS NOT NULL),
    CONSTRAINT occupied_has_a_claim CHECK (state NOT IN ('claimed', 'armed', 'running', 'busy', 'done') OR key_id IS NOT NULL),
    CONSTRAINT claimed_has_a_deadline CHECK ((state = 'claimed') = (mint_deadline IS NOT NULL)),
    -- The JIT exists while it waits for its acknowledgement, and not a moment longer.
    CONSTRAINT armed_holds_the_jit CHECK ((state = 'armed') = (jit IS NOT NULL)),
    CONSTRAINT jit_is_whole CHECK ((jit IS NULL) = (jit_key IS NULL)),
    CONSTRAINT armed_is_minted CHECK (state NOT IN ('armed', 'running', 'busy', 'done') OR num_nonnulls(github_id, delivery_id, armed_at) = 3),
    CONSTRAINT running_is_acknowledged CHECK (state <> 'running' OR acknowledged_at IS NOT NULL),
    CONSTRAINT busy_is_dated CHECK (state <> 'busy' OR busy_at IS NOT NULL),
    CONSTRAINT done_is_dated CHECK (state <> 'done' OR done_at IS NOT NULL),
    CONSTRAINT retiring_has_a_reason CHECK (state <> 'retiring' OR num_nonnulls(retiring_at, retire_reason) = 2),
    CONSTRAINT gone_is_dated CHECK ((state = 'gone') = (gone_at IS NOT NULL))
);
-- A Pod is one runner, for ever: its UID never comes back (I15).
CREATE UNIQUE INDEX runners_pod_uid ON runners (pod_uid) WHERE pod_uid IS NOT NULL;
-- Supply and use, as the matcher counts them. Ended runners are not in it.
-- No index has, or depends on, what a step changes (state, name): so a step touches no index, as long as its page
-- has room (the fill factor) for the new version of the row. The exceptions are the first and the last step of a
-- claim: its account is set (runners_of_account, 0019_demand), and its end. Names and GitHub ids are found through
-- `mints`.
CREATE INDEX runners_live ON runners (pool_id) WHERE gone_at IS NULL;
CREATE INDEX runners_gone ON runners (gone_at) WHERE gone_at IS NOT NULL;
ALTER TABLE runners SET (fillfactor = 45);

CREATE TYPE mint_state AS ENUM ('chosen', 'minted', 'settled');

-- Every name ever chosen, until it is settled what became of it at GitHub (I19, I41).
CREATE TABLE mints (
    name        text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 64),
    runner_id   uuid NOT NULL REFERENCES runners ON DELETE CASCADE,
    generation  integer NOT NULL,
    -- Copied from the key and its installation by the statement that claims, and neither is ever deleted: a
    -- foreign key would only look them up once more for every claim.
    key_id      integer NOT NULL,
    app_id      integer NOT NULL,
    -- GitHub's number of the installation that it is counted for.
    installation_id bigint NOT NULL,
    chosen_at   timestamptz NOT NULL,
    state       mint_state NOT NULL DEFAULT 'chosen',
    github_id   bigint,
    -- Not asked about again before: GitHub did not say.
    not_before  timestamptz NOT NULL DEFAULT '-infinity',
    outcome     text,
    settled_at  timestamptz,
    UNIQUE (runner_id, generation),
    CHECK (state <> 'minted' OR github_id IS NOT NULL),
    CHECK ((state = 'settled') = (settled_at IS NOT NULL)),
    CHECK ((settled_at IS NULL) = (outcome IS NULL))
);
-- The mints of the last minute are counted, not remembered in a counter: there is nothing to leak (I25).
CREATE INDEX mints_recent ON mints (app_id, chosen_at);
-- An event names a runner by GitHub's id, or by name while the id is unknown, within its tenant (I5).
CREATE UNIQUE INDEX mints_github_id ON mints (key_id, github_id) WHERE github_id IS NOT NULL;
CREATE INDEX mints_unsettled ON mints (chosen_at, name) WHERE state <> 'settled';

-- One check and one event per step, in the statement that makes it.
CREATE FUNCTION runners_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at, actor, runner_id, before, after, generation, why, evidence)
    SELECT since, actor, id, NULL, state::text, generation, why, evidence FROM added ORDER BY id;
    RETURN NULL;
END $$;
CREATE TRIGGER runners_inserted AFTER INSERT ON runners
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION runners_inserted();

CREATE FUNCTION refuse_step(pod_name text, before runner_state, after runner_state) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'runner % may not go from % to %', pod_name, before, after
        USING ERRCODE = 'check_violation', CONSTRAINT = 'runner_transitions';
END $$;

-- In one pass: it is the hottest of all. A step states who made it and why, and counts itself; what does not
-- step does not count.
CREATE FUNCTION runners_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at, actor, runner_id, before, after, generation, why, evidence)
    SELECT n.since, n.actor, n.id, o.state::text,
           CASE WHEN n.version = o.version + 1 AND n.generation >= o.generation
                 AND (n.state <> o.state OR n.generation <> o.generation)
                 AND (o.state, n.state) IN (SELECT before, after FROM runner_transitions)
                THEN n.state::text ELSE refuse_step(n.pod_name, o.state, n.state) END,
           n.generation, n.why, n.evidence
      FROM was o JOIN became n USING (id)
     WHERE n.version <> o.version OR n.state <> o.state OR n.generation <> o.generation
     ORDER BY n.id;
    IF FOUND THEN
        PERFORM pg_notify('paddock', 'runners');
        -- A place came free, or a Pod did: work that was withheld may go on.
        IF EXISTS (SELECT FROM became WHERE state IN ('gone', 'idle')) THEN
            PERFORM pg_notify('paddock', 'demand');
        END IF;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER runners_changed AFTER UPDATE ON runners
    REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT EXECUTE FUNCTION runners_changed();

-- History is forgotten, the living are not.
CREATE FUNCTION runners_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'runner % is %; only runners that are gone may be forgotten', OLD.pod_name, OLD.state
        USING ERRCODE = 'check_violation', CONSTRAINT = 'runners_deleted';
END $$;
CREATE TRIGGER runners_deleted BEFORE DELETE ON runners
    FOR EACH ROW WHEN (OLD.state <> 'gone') EXECUTE FUNCTION runners_deleted();

-- A job's state falls only from in_progress to queued, only as a counted demotion, and only when the
-- runner it was on is gone.
CREATE FUNCTION jobs_demoted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'in_progress' AND NEW.state = 'queued' AND NEW.demotions = OLD.demotions + 1
       AND EXISTS (SELECT FROM runners r WHERE r.id = OLD.runner_id AND r.state = 'gone') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'job % may not fall from % to %', OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'check_violation', CONSTRAINT = 'jobs_demoted';
END $$;
CREATE TRIGGER jobs_demoted BEFORE UPDATE OF state ON jobs
    FOR EACH ROW WHEN (NEW.state < OLD.state) EXECUTE FUNCTION jobs_demoted();

-- What limited repositories use of runners that are registered at their organisation: those that execute, or have
-- executed, one of their jobs. One whose job is not known may yet have any: it counts against every limited repository
-- of the organisation, if its pool's runners would register at repositories now (I78).
-- Runners are added up by pool and repository first, so that the cost is not runners times limited repositories: the
-- matcher reads this under its lock.
CREATE VIEW wider_use AS
WITH used AS MATERIALIZED (
    SELECT k.account_id, k.pool_id, j.repository_id, count(*) AS runners, sum(r.vcpu_milli) AS vcpu_milli,
           sum(r.memory_mib) AS memory_mib
      FROM demand_keys k
      JOIN runners r ON r.key_id = k.id AND r.gone_at IS NULL
      LEFT JOIN LATERAL (SELECT repository_id FROM jobs WHERE runner_id = r.id ORDER BY host_id, id DESC LIMIT 1) j ON true
     WHERE k.repository_id IS NULL
       AND EXISTS (SELECT FROM repositories l WHERE l.account_id = k.account_id AND l.limited)
     GROUP BY k.account_id, k.pool_id, j.repository_id
), counted AS MATERIALIZED (
    SELECT * FROM used u
     WHERE u.repository_id IS NOT NULL
        OR EXISTS (SELECT FROM registration(u.account_id, u.pool_id) WHERE at_repository)
)
SELECT rep.id AS repository_id, sum(c.runners)::int AS runners, sum(c.vcpu_milli)::bigint AS vcpu_milli,
       sum(c.memory_mib)::bigint AS memory_mib
  FROM repositories rep
  JOIN counted c ON c.account_id = rep.account_id AND (c.repository_id = rep.id OR c.repository_id IS NULL)
 WHERE rep.limited
 GROUP BY rep.id;
