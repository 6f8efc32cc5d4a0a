-- The whole schema: tables by noun, with the triggers and routines that guard them.
-- oldest program: 0.1.0


-- Hosts and accounts

CREATE TABLE hosts (
    id       smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name     text NOT NULL UNIQUE CHECK (name = lower(name) AND name <> ''),
    api_url  text NOT NULL
);
COMMENT ON TABLE hosts IS 'GitHub hosts: github.com and Enterprise servers. Every GitHub id is keyed by one (I71).';

CREATE TABLE apps (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id    smallint NOT NULL REFERENCES hosts,
    github_id  bigint NOT NULL,
    slug       text,
    -- How many JITs each installation may mint: in any sixty seconds; at once; and per second after that (the hourly
    -- bucket, paddock.domain.accounts). NULL is "no limit" (an Enterprise host).
    mints_per_minute  integer CHECK (mints_per_minute >= 0),
    mint_burst        double precision CHECK (mint_burst > 0),
    mint_refill_per_s double precision CHECK (mint_refill_per_s > 0),
    CHECK ((mint_burst IS NULL) = (mint_refill_per_s IS NULL)),
    UNIQUE (host_id, github_id)
);
COMMENT ON TABLE apps IS 'GitHub Apps. Their keys and secrets are settings and never stored here.';

CREATE TABLE accounts (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id     smallint NOT NULL REFERENCES hosts,
    github_id   bigint NOT NULL,
    login       text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('organization', 'user')),
    weight      integer NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000),
    -- NULL is "no limit"; zero is zero (I54).
    max_runners     integer CHECK (max_runners >= 0),
    max_vcpu_milli  bigint  CHECK (max_vcpu_milli >= 0),
    max_memory_mib  bigint  CHECK (max_memory_mib >= 0),
    paused_at   timestamptz,
    paused_by   text,
    -- Has a meaning only while `paused_at` is set. The pause's event has the reason too, but is deleted after 30 days;
    -- the pause may last longer.
    paused_why  text,
    created_at  timestamptz NOT NULL,
    UNIQUE (host_id, github_id),
    CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);
COMMENT ON TABLE accounts IS 'Tenants: the organisations and users an App is installed for.';

CREATE TYPE installation_state AS ENUM ('active', 'suspended', 'removed');

CREATE TABLE installations (
    host_id     smallint NOT NULL,
    github_id   bigint NOT NULL,
    app_id      integer NOT NULL REFERENCES apps,
    account_id  integer NOT NULL REFERENCES accounts,
    state       installation_state NOT NULL,
    all_repositories  boolean NOT NULL,
    -- When GitHub first reported this state: a read that finds nothing new writes nothing (I84).
    read_at     timestamptz NOT NULL,
    PRIMARY KEY (host_id, github_id)
);
COMMENT ON TABLE installations IS 'An App installed for an account. The tenant of an event is found by its installation id (I4).';
-- An account is served through one installation per App.
CREATE UNIQUE INDEX installations_of_account ON installations (account_id, app_id) WHERE state <> 'removed';

CREATE TABLE removals (
    host_id        smallint NOT NULL,
    github_id      bigint NOT NULL,
    -- How often GitHub did not know the number and did not list it either; the first and the last time. A confirmation
    -- too soon after the last one does not count.
    confirmations  integer NOT NULL CHECK (confirmations >= 1),
    first_at       timestamptz NOT NULL,
    last_at        timestamptz NOT NULL,
    PRIMARY KEY (host_id, github_id),
    FOREIGN KEY (host_id, github_id) REFERENCES installations ON DELETE CASCADE
);
COMMENT ON TABLE removals IS 'Installations that GitHub no longer knows, with the confirmations so far. The row goes if the installation is back (I29).';

CREATE TABLE repositories (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id     smallint NOT NULL REFERENCES hosts,
    github_id   bigint NOT NULL,
    account_id  integer NOT NULL REFERENCES accounts,
    full_name   text NOT NULL CHECK (full_name LIKE '%/%'),
    accessible  boolean NOT NULL DEFAULT true,
    max_runners     integer CHECK (max_runners >= 0),
    max_vcpu_milli  bigint  CHECK (max_vcpu_milli >= 0),
    max_memory_mib  bigint  CHECK (max_memory_mib >= 0),
    -- Whether it has limits of its own: see `registration`.
    limited     boolean NOT NULL GENERATED ALWAYS AS
                (num_nonnulls(max_runners, max_vcpu_milli, max_memory_mib) > 0) STORED,
    -- It belonged to another account before: runners of that account may execute its jobs.
    transferred boolean NOT NULL DEFAULT false,
    active_at   timestamptz,
    UNIQUE (host_id, github_id)
);
COMMENT ON TABLE repositories IS 'Repositories that jobs came from or that an installation covers, with limits of their own.';
CREATE INDEX repositories_of_account ON repositories (account_id, id);
CREATE INDEX repositories_limited ON repositories (account_id) WHERE limited;
CREATE INDEX repositories_active ON repositories (active_at) WHERE active_at IS NOT NULL;


-- Pools

CREATE TYPE pool_state AS ENUM ('active', 'draining', 'deleted');
CREATE TYPE pod_shape AS ENUM ('gated', 'single');

CREATE TABLE pools (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL CHECK (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    state       pool_state NOT NULL DEFAULT 'active',
    labels      text[] NOT NULL CHECK (cardinality(labels) BETWEEN 1 AND 100),
    shape       pod_shape NOT NULL,
    -- What one runner occupies, including its Pod's runtime overhead (I48).
    vcpu_milli  integer NOT NULL CHECK (vcpu_milli >= 0),
    memory_mib  integer NOT NULL CHECK (memory_mib >= 0),
    -- NULL is "no maximum"; zero is zero (I54).
    max_runners integer CHECK (max_runners >= 0),
    spec        jsonb NOT NULL,
    spec_hash   text NOT NULL,
    -- The name of the runner group its runners join in each organisation; NULL is the default group.
    runner_group text CHECK (runner_group <> ''),
    -- The program that executes its jobs; NULL if neither its description nor its command tells.
    runner      text CHECK (runner IN ('actions', 'act-runner')),
    paused_at   timestamptz,
    paused_by   text,
    paused_why  text,  -- As in `accounts`.
    created_at  timestamptz NOT NULL,
    changed_at  timestamptz NOT NULL,
    CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);
COMMENT ON TABLE pools IS 'Kinds of runners: the labels they serve, what one of them costs, and the Pod they are made from.';
CREATE UNIQUE INDEX pools_name ON pools (name) WHERE state <> 'deleted';

-- Pools whose label sets contain one another are refused: a job of the smaller set would fit both (I10).
CREATE FUNCTION pools_labels_apart() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    other text;
BEGIN
    -- Two writers that do not see each other's row yet must not both pass.
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

CREATE TABLE pool_groups (
    pool_id     integer NOT NULL REFERENCES pools ON DELETE CASCADE,
    account_id  integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    runner_group_id  bigint NOT NULL,
    PRIMARY KEY (pool_id, account_id)
);
COMMENT ON TABLE pool_groups IS 'The id that a pool''s runner group has in an organisation. No row: it was not found there, and the pool takes none of its jobs.';

CREATE TABLE pool_images (
    spec_hash  text PRIMARY KEY,
    image      text NOT NULL CHECK (image <> '')
);
COMMENT ON TABLE pool_images IS 'The image of the runner container in Pods of a spec_hash; for a fleet of one machine, the program. It stays when the pool changes, for runners that ended with it.';

CREATE FUNCTION note_pool_image() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named text := coalesce(
        jsonb_path_query_first(NEW.spec, '$.template.spec.containers[*] ? (@.name == "runner").image') #>> '{}',
        NEW.spec #>> '{runnerCommand,0}');
BEGIN
    IF named <> '' THEN
        INSERT INTO pool_images (spec_hash, image) VALUES (NEW.spec_hash, left(named, 1000))
        ON CONFLICT (spec_hash) DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note_pool_image AFTER INSERT OR UPDATE OF spec, spec_hash ON pools
    FOR EACH ROW EXECUTE FUNCTION note_pool_image();

CREATE TABLE pool_decisions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id    integer NOT NULL REFERENCES pools ON DELETE CASCADE,
    at         timestamptz NOT NULL,
    wanted     integer NOT NULL CHECK (wanted >= 0),
    target     integer NOT NULL CHECK (target >= 0),
    terms      jsonb NOT NULL,
    why        text NOT NULL
);
COMMENT ON TABLE pool_decisions IS 'Each decision on a pool''s size that differs from the one before, term by term.';
CREATE INDEX pool_decisions_latest ON pool_decisions (pool_id, id DESC);

CREATE TABLE host_faults (
    host   text PRIMARY KEY CHECK (host <> ''),
    why    text NOT NULL CHECK (why <> ''),
    since  timestamptz NOT NULL
);
COMMENT ON TABLE host_faults IS 'Machines that report themselves unfit for runners, as the leader last saw them. One row per fault that lasts, for readers that do not ask the fleet.';
COMMENT ON COLUMN host_faults.why IS 'One word for programs, a colon, and the rest for people.';


-- Demand keys: where jobs and runners meet

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

-- Capacity is charged to the account of a runner's key. The triggers of `runners` check that once per statement, where
-- a foreign key would look up and lock the key for every row. That is safe because a key never changes.
CREATE FUNCTION keys_are_for_ever() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'demand key % may not be changed or deleted: runners are charged by it', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'keys_are_for_ever';
END $$;
CREATE TRIGGER keys_are_for_ever BEFORE DELETE ON demand_keys
    FOR EACH ROW EXECUTE FUNCTION keys_are_for_ever();
CREATE TRIGGER keys_do_not_change BEFORE UPDATE ON demand_keys
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION keys_are_for_ever();

-- The scope at which a pool's runners register for the jobs of an account, and their runner group. No row if the
-- organisation lacks the group that the pool names.
-- GitHub gives a job to any runner whose scope covers its repository. So while one repository of an organisation has
-- limits, all runners for the organisation register at repositories: none can take a job of another repository (I78).
-- Users have no other scope. At a repository the group is the default one, which has id 1 everywhere. A pool that names
-- a group stays at the organisation, because the group decides which repositories its runners serve; limits of
-- repositories are not exact there.
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


-- Events

CREATE TABLE events (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    actor      text NOT NULL CHECK (actor <> ''),
    runner_id  uuid,
    host_id    smallint,
    job_id     bigint,
    account_id integer,
    pool_id    integer,
    before     text,
    after      text NOT NULL,
    generation integer,
    why        text NOT NULL,
    evidence   jsonb,
    -- A pause of all dispatch concerns every subject, and names none.
    CONSTRAINT events_subject CHECK (
        num_nonnulls(runner_id, job_id, account_id, pool_id) = 1
        OR num_nonnulls(runner_id, job_id, account_id, pool_id) = 0
           AND after IN ('dispatch paused', 'dispatch resumed')),
    CHECK ((job_id IS NULL) = (host_id IS NULL))
);
COMMENT ON TABLE events IS 'What happened, when, by which actor and why. The tables of jobs and runners write theirs, so that no step is silent.';
COMMENT ON COLUMN events.actor IS 'A loop of a replica ("replica-1/matcher") or an operator ("operator:ana").';
CREATE INDEX events_of_runner ON events (runner_id, id) WHERE runner_id IS NOT NULL;
CREATE INDEX events_of_job ON events (host_id, job_id, id) WHERE job_id IS NOT NULL;
-- Events are appended in time order: a block range index finds the old ones at no cost to the writers.
CREATE INDEX events_at ON events USING brin (at) WITH (pages_per_range = 16);
-- Operators' changes are few among the steps of runners and jobs: these indexes cost a step of dispatch nothing.
CREATE INDEX events_of_account ON events (account_id, id) WHERE account_id IS NOT NULL;
CREATE INDEX events_of_pool ON events (pool_id, id) WHERE pool_id IS NOT NULL;


-- Jobs

-- The order is the lattice: GREATEST merges.
CREATE TYPE job_state AS ENUM ('waiting', 'queued', 'in_progress', 'completed');

CREATE TABLE jobs (
    host_id        smallint NOT NULL REFERENCES hosts,
    id             bigint NOT NULL,
    account_id     integer NOT NULL REFERENCES accounts,
    repository_id  integer NOT NULL REFERENCES repositories,
    run_id         bigint NOT NULL,
    run_attempt    integer NOT NULL,
    name           text NOT NULL,
    workflow       text,
    labels         text[] NOT NULL,
    state          job_state NOT NULL,
    -- The key whose runners can serve it, or the reason why no runner can.
    key_id         integer REFERENCES demand_keys,
    refusal        text,
    refusal_detail text,
    created_at     timestamptz NOT NULL,
    -- GitHub has reported it as waiting for an approval.
    waited         boolean NOT NULL DEFAULT false,
    -- The earliest time at which it is known to have been queued or further along.
    known_queued_at timestamptz,
    -- When it last fell from in_progress back to queued.
    requeued_at    timestamptz,
    -- From when its age counts (I76), by the rule of paddock.domain.jobs.facts.JobFacts.queued_at.
    queued_at      timestamptz NOT NULL GENERATED ALWAYS AS (coalesce(requeued_at,
        CASE WHEN waited OR known_queued_at - created_at > interval '24 hours'
             THEN greatest(created_at, known_queued_at) ELSE created_at END)) STORED,
    started_at     timestamptz,
    completed_at   timestamptz,
    conclusion     text,
    -- The executor GitHub names, ours or not (I23), and our runner's row when it is ours.
    executor_id    bigint,
    executor_name  text,
    runner_id      uuid,
    trusted        boolean,
    -- Why it is trusted or not: what its run said when it was looked up (I62).
    trust_why      text,
    demotions      integer NOT NULL DEFAULT 0,
    seen_at        timestamptz NOT NULL,
    -- Of the last change of state: copied into its event.
    since          timestamptz NOT NULL,
    actor          text NOT NULL,
    why            text NOT NULL,
    PRIMARY KEY (host_id, id),
    CHECK ((key_id IS NULL) <> (refusal IS NULL)),
    CHECK ((executor_id IS NULL) = (executor_name IS NULL)),
    CHECK (state <> 'in_progress' OR started_at IS NOT NULL),
    CHECK (state <> 'completed' OR (completed_at IS NOT NULL AND conclusion IS NOT NULL)),
    CHECK ((completed_at IS NULL) = (conclusion IS NULL)),
    CHECK (state = 'completed' OR completed_at IS NULL)
);
COMMENT ON TABLE jobs IS 'Jobs, as GitHub reports them. A state only rises (I2), except for one guarded demotion.';
-- Demand: the matcher walks it key by key, oldest first. Finished jobs are not in it, so it stays as small as the queue
-- however long the history grows.
CREATE INDEX jobs_demand ON jobs (key_id, queued_at, id) WHERE state = 'queued' AND key_id IS NOT NULL;
CREATE INDEX jobs_refused ON jobs (queued_at) WHERE state = 'queued' AND refusal IS NOT NULL;
CREATE INDEX jobs_in_progress ON jobs (started_at) WHERE state = 'in_progress';
CREATE INDEX jobs_completed ON jobs (completed_at) WHERE state = 'completed';
CREATE INDEX jobs_of_runner ON jobs (runner_id) WHERE runner_id IS NOT NULL;
-- For the comparison of a repository with GitHub's lists.
CREATE INDEX jobs_open ON jobs (repository_id, id) WHERE state <> 'completed';
-- For the rule still-waiting, which looks for jobs that wait for an approval.
CREATE INDEX jobs_waiting ON jobs (since, id) WHERE state = 'waiting';

-- Every new state is an event, in the statement that wrote it, and new demand wakes the matchers.
CREATE FUNCTION jobs_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at, actor, host_id, job_id, before, after, why)
    SELECT since, actor, host_id, id, NULL, state::text, why FROM added ORDER BY host_id, id;
    IF EXISTS (SELECT FROM added WHERE state = 'queued' AND key_id IS NOT NULL) THEN
        PERFORM pg_notify('paddock', 'demand');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_inserted AFTER INSERT ON jobs
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION jobs_inserted();

CREATE FUNCTION jobs_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at, actor, host_id, job_id, before, after, why)
    SELECT n.since, n.actor, n.host_id, n.id, o.state::text, n.state::text, n.why
      FROM was o JOIN became n USING (host_id, id)
     WHERE n.state <> o.state
     ORDER BY host_id, id;
    -- What was demand before wakes no matcher again (I84).
    IF EXISTS (SELECT FROM was o JOIN became n USING (host_id, id)
                WHERE n.state = 'queued' AND n.key_id IS NOT NULL
                  AND (o.state, o.key_id) IS DISTINCT FROM (n.state, n.key_id)) THEN
        PERFORM pg_notify('paddock', 'demand');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_changed AFTER UPDATE ON jobs
    REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT EXECUTE FUNCTION jobs_changed();

-- A job's state falls only from in_progress to queued, only as a counted demotion, and only when its runner is gone. If
-- the runner is not one of ours, GitHub alone can say that the job was given back.
CREATE FUNCTION jobs_demoted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'in_progress' AND NEW.state = 'queued' AND NEW.demotions = OLD.demotions + 1
       AND (OLD.runner_id IS NULL
            OR EXISTS (SELECT FROM runners r WHERE r.id = OLD.runner_id AND r.state = 'gone')) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'job % may not fall from % to %', OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'check_violation', CONSTRAINT = 'jobs_demoted';
END $$;
CREATE TRIGGER jobs_demoted BEFORE UPDATE OF state ON jobs
    FOR EACH ROW WHEN (NEW.state < OLD.state) EXECUTE FUNCTION jobs_demoted();

-- Jobs that wait under another key than `registration` gives now, with what it gives. That happens when the first limit
-- of a repository is set or the last one removed, when the pool names another group, or when a backup was restored.
-- Two halves, one for each partial index.
CREATE VIEW misplaced_jobs AS
SELECT j.host_id, j.id, k.account_id, k.pool_id, s.repository_id, s.runner_group_id
  FROM (SELECT host_id, id, key_id, repository_id FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL
         UNION ALL
        SELECT host_id, id, key_id, repository_id FROM jobs WHERE state = 'waiting' AND key_id IS NOT NULL) j
  JOIN demand_keys k ON k.id = j.key_id
 CROSS JOIN LATERAL (SELECT CASE WHEN at_repository THEN j.repository_id END AS repository_id, runner_group_id
                       FROM registration(k.account_id, k.pool_id)) s
 WHERE k.repository_id IS DISTINCT FROM s.repository_id OR k.runner_group_id <> s.runner_group_id;

-- Moves the misplaced jobs of these accounts to their keys. Call it under the matcher's lock: no claim is decided
-- meanwhile. It locks jobs in the same order as every other writer.
CREATE FUNCTION move_misplaced_jobs(accounts integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO demand_keys (account_id, repository_id, runner_group_id, pool_id)
    SELECT DISTINCT account_id, repository_id, runner_group_id, pool_id
      FROM misplaced_jobs WHERE account_id = ANY (accounts)
     ORDER BY 1, 2, 3, 4
    ON CONFLICT (account_id, repository_id, runner_group_id, pool_id) DO NOTHING;
    PERFORM FROM jobs
      WHERE (host_id, id) IN (SELECT host_id, id FROM misplaced_jobs WHERE account_id = ANY (accounts))
      ORDER BY host_id, id FOR UPDATE;
    UPDATE jobs j SET key_id = k.id
      FROM misplaced_jobs m
      JOIN demand_keys k ON k.account_id = m.account_id AND k.pool_id = m.pool_id
                        AND k.repository_id IS NOT DISTINCT FROM m.repository_id
                        AND k.runner_group_id = m.runner_group_id
     WHERE m.account_id = ANY (accounts) AND j.host_id = m.host_id AND j.id = m.id;
END $$;

-- A repository that is transferred to another account takes its open jobs along: runners of the old account cannot get
-- them any more. A job stays if the new account lacks the runner group that the job's pool names.
CREATE FUNCTION repositories_transferred() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.transferred := true;
    RETURN NEW;
END $$;
CREATE TRIGGER repositories_transferred BEFORE UPDATE OF account_id ON repositories
    FOR EACH ROW WHEN (OLD.account_id <> NEW.account_id) EXECUTE FUNCTION repositories_transferred();

CREATE FUNCTION move_transferred_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO demand_keys (account_id, repository_id, runner_group_id, pool_id)
    SELECT DISTINCT NEW.account_id, CASE WHEN s.at_repository THEN NEW.id END, s.runner_group_id, k.pool_id
      FROM jobs j
      JOIN demand_keys k ON k.id = j.key_id
     CROSS JOIN LATERAL registration(NEW.account_id, k.pool_id) s
     WHERE j.repository_id = NEW.id AND j.state <> 'completed'
     ORDER BY 1, 2, 3, 4
    ON CONFLICT (account_id, repository_id, runner_group_id, pool_id) DO NOTHING;
    PERFORM FROM jobs WHERE repository_id = NEW.id AND state <> 'completed' ORDER BY host_id, id FOR UPDATE;
    UPDATE jobs j SET account_id = NEW.account_id, key_id = n.id
      FROM demand_keys k
     CROSS JOIN LATERAL registration(NEW.account_id, k.pool_id) s
      JOIN demand_keys n ON n.account_id = NEW.account_id AND n.pool_id = k.pool_id
                        AND n.repository_id IS NOT DISTINCT FROM CASE WHEN s.at_repository THEN NEW.id END
                        AND n.runner_group_id = s.runner_group_id
     WHERE j.repository_id = NEW.id AND j.state <> 'completed' AND k.id = j.key_id;
    UPDATE jobs SET account_id = NEW.account_id
     WHERE repository_id = NEW.id AND state <> 'completed' AND key_id IS NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER move_transferred_jobs AFTER UPDATE OF account_id ON repositories
    FOR EACH ROW WHEN (OLD.account_id <> NEW.account_id) EXECUTE FUNCTION move_transferred_jobs();

CREATE TABLE job_checks (
    host_id    smallint NOT NULL,
    job_id     bigint NOT NULL,
    checked_at timestamptz NOT NULL,
    answer     text NOT NULL,
    -- How often in a row the answer was this.
    times      integer NOT NULL CHECK (times >= 1),
    waits_because text,
    -- It is no demand until then: runners came online for it and GitHub did not assign it; how often so far.
    withheld_until timestamptz,
    withheld   integer NOT NULL DEFAULT 0 CHECK (withheld >= 0),
    PRIMARY KEY (host_id, job_id),
    FOREIGN KEY (host_id, job_id) REFERENCES jobs ON DELETE CASCADE
);
COMMENT ON TABLE job_checks IS 'What GitHub answered when it was asked about a job, and why the job waits if it does.';


-- Runners: one row is the claim, the session and the occupancy, so they cannot disagree (I14, I15)

CREATE TYPE runner_state AS ENUM
    ('booting', 'idle', 'claimed', 'armed', 'running', 'busy', 'done', 'retiring', 'gone');

CREATE TABLE runner_transitions (
    before runner_state NOT NULL,
    after  runner_state NOT NULL,
    PRIMARY KEY (before, after)
);
COMMENT ON TABLE runner_transitions IS 'The legal steps of a runner. paddock.domain.states has the same pairs; a test compares the two.';
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
    -- Every match reads these columns of thousands of rows. They come first: a column costs as much as all before it.
    pool_id     integer NOT NULL REFERENCES pools,
    vcpu_milli  integer NOT NULL CHECK (vcpu_milli >= 0),
    memory_mib  integer NOT NULL CHECK (memory_mib >= 0),
    state       runner_state NOT NULL,
    -- The key has this account: the triggers check it, see `keys_are_for_ever`.
    key_id      integer,
    account_id  integer,
    job_id      bigint,
    busy_at     timestamptz,
    -- Its container is up and GitHub calls it offline: it no longer counts as supply.
    suspect_at  timestamptz,
    gone_at     timestamptz,

    shape       pod_shape NOT NULL,
    spec_hash   text NOT NULL,
    pod_name    text NOT NULL UNIQUE CHECK (length(pod_name) <= 63),
    pod_uid     text,
    node        text,
    -- What its Pod reported of its runner program before it could get a JIT; NULL is unknown.
    runner_version text CHECK (runner_version ~ '^[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}$'),
    created_at  timestamptz NOT NULL,
    heard_at    timestamptz,

    -- Counts the claims of this Pod and its fence: a late write for an earlier one finds another (I16).
    generation  integer NOT NULL DEFAULT 0 CHECK (generation >= 0),
    -- Counts the steps; every step has an event.
    version     integer NOT NULL DEFAULT 1,
    -- Of the last step: copied into its event.
    since       timestamptz NOT NULL,
    actor       text NOT NULL,
    why         text NOT NULL,
    evidence    jsonb,

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
    done_at     timestamptz,
    retiring_at timestamptz,
    retire_reason text,

    -- In how many consecutive complete reads of the fleet its Pod was missing, and since when (I29).
    absent_reads integer NOT NULL DEFAULT 0 CHECK (absent_reads >= 0),
    absent_since timestamptz,
    -- How far its retirement has come: GitHub has no record of it any more; it showed no job after that.
    deregistered_at timestamptz,
    proved_at   timestamptz,
    -- Written before the fleet is asked: if its Pod is found ended later, the row says that paddock requested it.
    deletion_asked_at timestamptz,
    -- Why it is retired (paddock.domain.runners.endings.Retired).
    retired     text CHECK (retired IN ('unwanted', 'surplus', 'given-up', 'finished', 'deleted', 'forced')),
    -- The operator who ended it by force. From then on no rule, no event and no answer of GitHub brings it back.
    forced_by   text CHECK (forced_by <> ''),
    -- Whether GitHub never saw it online.
    unregistered boolean NOT NULL DEFAULT false,
    -- Whether its runner container was ever seen started; NULL is unknown.
    started     boolean,

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
    CONSTRAINT gone_is_dated CHECK ((state = 'gone') = (gone_at IS NOT NULL)),
    CONSTRAINT forced_is_final CHECK (forced_by IS NULL OR state IN ('retiring', 'gone')),
    CONSTRAINT absence_is_dated CHECK ((absent_reads = 0) = (absent_since IS NULL)),
    CONSTRAINT proof_follows_deregistration CHECK (proved_at IS NULL OR deregistered_at <= proved_at)
) WITH (fillfactor = 45);
COMMENT ON TABLE runners IS 'Runners, from the moment they are planned until their history is deleted: state, claim, mint, retirement.';
-- No index has, or depends on, what a step changes (state, name). So a step writes no index as long as its page has
-- room for the new version of the row: hence the fill factor. The exceptions are the first and the last step of a claim:
-- the first sets its account, the last its end. Names and GitHub ids are found through `mints`.

-- A Pod is one runner, for ever: its UID never comes back (I15).
CREATE UNIQUE INDEX runners_pod_uid ON runners (pod_uid) WHERE pod_uid IS NOT NULL;
-- Supply and use, as the matcher counts them. Ended runners are not in it.
CREATE INDEX runners_live ON runners (pool_id) WHERE gone_at IS NULL;
CREATE INDEX runners_gone ON runners (gone_at) WHERE gone_at IS NOT NULL;
-- Every match reads what accounts with demand hold. Without this index it would also read the idle Pods, of which a
-- fleet has five for each that is not.
CREATE INDEX runners_of_account ON runners (account_id, pool_id) WHERE account_id IS NOT NULL AND gone_at IS NULL;

-- One check and one event per step, in the statement that makes it.
CREATE FUNCTION refuse_step(pod_name text, before runner_state, after runner_state) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'runner % may not go from % to %', pod_name, before, after
        USING ERRCODE = 'check_violation', CONSTRAINT = 'runner_transitions';
END $$;

CREATE FUNCTION refuse_charge(pod_name text, key_id integer, account_id integer) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'runner % may not be charged to account %: its demand key % is not of it', pod_name, account_id, key_id
        USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'runners_key_id_account_id_fkey';
END $$;

CREATE FUNCTION runners_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER runners_inserted AFTER INSERT ON runners
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION runners_inserted();

-- The hottest trigger, so it makes one pass. A step states its actor and its reason, and counts itself; an update that
-- is no step does not count.
CREATE FUNCTION runners_changed() RETURNS trigger LANGUAGE plpgsql AS $$
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
    -- on disk: with commits of 5 ms at most 170 of them a second. What a runner does between its claim and its end
    -- changes neither what may be claimed nor how many runners a pool should have, so no loop waits for it.
    IF FOUND AND EXISTS (SELECT FROM became WHERE state NOT IN ('armed', 'running', 'busy', 'done')) THEN
        PERFORM pg_notify('paddock', 'runners');
        -- A place or a Pod came free: work that was withheld may go on.
        IF EXISTS (SELECT FROM became WHERE state IN ('gone', 'idle')) THEN
            PERFORM pg_notify('paddock', 'demand');
        END IF;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER runners_changed AFTER UPDATE ON runners
    REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT EXECUTE FUNCTION runners_changed();

-- Only the history of runners that are gone may be deleted.
CREATE FUNCTION runners_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'runner % is %; only runners that are gone may be forgotten', OLD.pod_name, OLD.state
        USING ERRCODE = 'check_violation', CONSTRAINT = 'runners_deleted';
END $$;
CREATE TRIGGER runners_deleted BEFORE DELETE ON runners
    FOR EACH ROW WHEN (OLD.state <> 'gone') EXECUTE FUNCTION runners_deleted();

CREATE TYPE mint_state AS ENUM ('chosen', 'minted', 'settled');

CREATE TABLE mints (
    name        text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 64),
    -- Without a foreign key: the statement that claims writes both rows, and a foreign key would look up and lock the
    -- runner once more. `runners_forgotten` deletes the names of a deleted runner.
    runner_id   uuid NOT NULL,
    generation  integer NOT NULL,
    -- Copied from the key and its installation by the statement that claims. Neither is ever deleted, so a foreign key
    -- would only look them up once more for every claim.
    key_id      integer NOT NULL,
    app_id      integer NOT NULL,
    -- GitHub's number of the installation that it is counted for.
    installation_id bigint NOT NULL,
    chosen_at   timestamptz NOT NULL,
    state       mint_state NOT NULL DEFAULT 'chosen',
    github_id   bigint,
    -- GitHub gave no answer: ask it again at this time at the earliest.
    not_before  timestamptz NOT NULL DEFAULT '-infinity',
    outcome     text,
    settled_at  timestamptz,
    UNIQUE (runner_id, generation),
    CHECK (state <> 'minted' OR github_id IS NOT NULL),
    CHECK ((state = 'settled') = (settled_at IS NOT NULL)),
    CHECK ((settled_at IS NULL) = (outcome IS NULL))
);
COMMENT ON TABLE mints IS 'Every runner name ever chosen, until it is settled what became of it at GitHub (I19, I41).';
-- An event names a runner by GitHub's id, or by name while the id is unknown, within its tenant (I5).
CREATE UNIQUE INDEX mints_github_id ON mints (key_id, github_id) WHERE github_id IS NOT NULL;
-- The mints of the last minute are counted in both indexes: no counter can leak (I25). A name is in one of the two, and
-- in the second only after its claim was made: a claim writes one index less.
CREATE INDEX mints_unsettled ON mints (app_id, chosen_at, installation_id) WHERE state <> 'settled';
CREATE INDEX mints_settled ON mints (app_id, settled_at) WHERE state = 'settled';

CREATE FUNCTION runners_forgotten() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM mints WHERE runner_id IN (SELECT id FROM forgotten);
    RETURN NULL;
END $$;
CREATE TRIGGER runners_forgotten AFTER DELETE ON runners
    REFERENCING OLD TABLE AS forgotten FOR EACH STATEMENT EXECUTE FUNCTION runners_forgotten();


-- Endings

CREATE TABLE verdicts (
    runner_id   uuid PRIMARY KEY REFERENCES runners ON DELETE CASCADE,
    ending      text NOT NULL,
    abnormal    boolean NOT NULL,
    why         text NOT NULL,
    exit_code   integer,
    signal      integer,
    reason      text,
    node        text,
    ended_at    timestamptz NOT NULL,
    -- 200 lines and 64 KiB at most.
    log_tail    text CHECK (octet_length(log_tail) <= 65536),
    -- Until then its log and its circumstances are requested again, and its Pod is kept (I79). NULL: both were read, or
    -- given up, or never wanted.
    log_wanted_until timestamptz,
    evidence    jsonb NOT NULL,
    written_at  timestamptz NOT NULL,
    refined_at  timestamptz
);
COMMENT ON TABLE verdicts IS 'How each runner ended, and the tail of its log.';
CREATE INDEX verdicts_ended ON verdicts (ended_at);
-- What a later report of its job can still complete. Most verdicts are never open.
CREATE INDEX verdicts_open ON verdicts (ended_at) WHERE evidence ? 'job'
    AND (evidence ->> 'job' <> 'yes' OR evidence ->> 'lost_communication' = 'unknown');
CREATE INDEX verdicts_log_wanted ON verdicts (log_wanted_until) WHERE log_wanted_until IS NOT NULL;

-- Gone has a verdict: the end is recorded before the object is deleted (I30, I58).
CREATE FUNCTION runners_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM verdicts v WHERE v.runner_id = NEW.id) THEN
        RAISE EXCEPTION 'runner % may not be gone without a verdict', NEW.pod_name
            USING ERRCODE = 'check_violation', CONSTRAINT = 'runners_gone';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER runners_gone AFTER INSERT OR UPDATE OF state ON runners
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.state = 'gone') EXECUTE FUNCTION runners_gone();

CREATE TABLE vitals (
    -- Without a foreign key, whose check would lock the runner's row. Retention deletes both.
    runner_id   uuid PRIMARY KEY,
    -- Bounded: it comes from untrusted code.
    series      bytea NOT NULL CHECK (octet_length(series) <= 262144),
    -- Its newest samples, kept apart: most reports write nothing else.
    recent      bytea NOT NULL CHECK (octet_length(recent) <= 65536),
    last_at     timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE vitals IS 'What was measured while a runner lived: one compact series each.';


-- Intake

CREATE TYPE delivery_state AS ENUM ('pending', 'applied', 'ignored', 'dead');

CREATE TABLE deliveries (
    -- The order of arrival.
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    guid        text NOT NULL CHECK (length(guid) BETWEEN 1 AND 64),
    host_id     smallint NOT NULL REFERENCES hosts,
    app_id      integer NOT NULL REFERENCES apps,
    event       text NOT NULL,
    action      text,
    installation_id  bigint,
    received_at timestamptz NOT NULL,
    state       delivery_state NOT NULL DEFAULT 'pending',
    payload     bytea,
    attempts    integer NOT NULL DEFAULT 0,
    -- Apply it at this time at the earliest: something it needs (its installation) could not be read.
    not_before  timestamptz NOT NULL,
    settled_at  timestamptz,
    note        text,
    -- Deduplicated for as long as a row is kept: longer than GitHub redelivers (I6).
    UNIQUE (host_id, guid),
    CHECK ((state = 'pending') = (settled_at IS NULL)),
    CHECK (state NOT IN ('pending', 'dead') OR payload IS NOT NULL),
    CHECK (state <> 'dead' OR note IS NOT NULL)
);
COMMENT ON TABLE deliveries IS 'Webhook deliveries: stored first, applied in order of arrival.';
-- Not compressed: that would take as long as all the rest of a row, and bodies are kept for days only.
ALTER TABLE deliveries ALTER payload SET STORAGE EXTERNAL;
CREATE INDEX deliveries_pending ON deliveries (not_before, id) WHERE state = 'pending';
CREATE INDEX deliveries_dead ON deliveries (settled_at, id) WHERE state = 'dead';
CREATE INDEX deliveries_received ON deliveries (received_at);
CREATE INDEX deliveries_bodies ON deliveries (received_at) WHERE payload IS NOT NULL AND state IN ('applied', 'ignored');

CREATE FUNCTION deliveries_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('paddock', 'deliveries');
    RETURN NULL;
END $$;
CREATE TRIGGER deliveries_inserted AFTER INSERT ON deliveries
    FOR EACH STATEMENT EXECUTE FUNCTION deliveries_inserted();

CREATE TABLE hook_cursors (
    app_id        integer PRIMARY KEY REFERENCES apps ON DELETE CASCADE,
    -- It moves only when that is known, so paddock catches up after an outage of any length (I8).
    complete_until  timestamptz NOT NULL
);
COMMENT ON TABLE hook_cursors IS 'Per App: every delivery GitHub made before this time has arrived, or was given up.';


-- Comparison

CREATE TABLE comparisons (
    repository_id  integer PRIMARY KEY REFERENCES repositories ON DELETE CASCADE,
    compared_at    timestamptz NOT NULL
);
COMMENT ON TABLE comparisons IS 'When a repository was last compared with GitHub. A table of its own: a write to repositories can wake the matchers.';


-- Budgets and back-offs

-- Every match spends from some budgets: with room on its page (the fill factor) a row's new version writes no index.
CREATE TABLE budgets (
    app_id    integer NOT NULL REFERENCES apps ON DELETE CASCADE,
    -- GitHub's number of the installation that it counts for; 0 is the App itself, where it asks as such.
    installation_id bigint NOT NULL,
    -- What for: "mint", "points/delete a runner", "rest".
    bucket    text NOT NULL,
    capacity  double precision NOT NULL CHECK (capacity > 0),
    refill_per_s  double precision NOT NULL CHECK (refill_per_s > 0),
    tokens    double precision NOT NULL,
    -- In the future: nothing comes back until then.
    as_of     timestamptz NOT NULL,
    PRIMARY KEY (app_id, installation_id, bucket),
    CHECK (tokens <= capacity)
) WITH (fillfactor = 50);
COMMENT ON TABLE budgets IS 'Token buckets shared by all replicas (paddock.domain.github.budgets). One that is not there is full.';
CREATE INDEX budgets_of_mints ON budgets (app_id, installation_id) WHERE bucket = 'mint';

-- What a bucket holds at a time.
CREATE FUNCTION tokens_at(budget budgets, at timestamptz) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT least(budget.capacity,
                 budget.tokens + budget.refill_per_s * greatest(0, date_part('epoch', at - budget.as_of)))
$$;

CREATE TYPE backoff_scope AS ENUM ('key', 'repository', 'account', 'app');

CREATE TABLE backoffs (
    scope     backoff_scope NOT NULL,
    -- The id of the key, repository, account or App.
    subject   integer NOT NULL,
    until     timestamptz NOT NULL,
    failures  integer NOT NULL CHECK (failures > 0),
    -- `reason` is a sentence for people: no decision is taken by its words.
    cause     text NOT NULL CHECK (cause IN ('mint failed', 'ended without a job', 'runner version refused')),
    reason    text NOT NULL,
    since     timestamptz NOT NULL,
    PRIMARY KEY (scope, subject)
);
COMMENT ON TABLE backoffs IS 'What is not minted for until a time, because it failed.';


-- Versions of the runner program: GitHub refuses each from a date on

CREATE TABLE pod_versions (
    spec_hash  text PRIMARY KEY,
    version    text NOT NULL CHECK (version ~ '^[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}$')
);
COMMENT ON TABLE pod_versions IS 'The runner version that a Pod of a spec_hash reported last. An image tag can move, so the newest Pod decides.';

CREATE TABLE version_schedules (
    account_id  integer NOT NULL REFERENCES accounts,
    version     text NOT NULL CHECK (version ~ '^[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}$'),
    -- GitHub's dates; NULL where it has set none, or does not know the version.
    registration_ends_at timestamptz,
    runtime_ends_at      timestamptz,
    -- NULL: GitHub has not answered yet.
    answered_at timestamptz,
    ask_at      timestamptz NOT NULL,
    -- GitHub refused a runner of the version, whatever its dates: how often in a row, when last, and until when the next
    -- one waits.
    refusals      integer NOT NULL DEFAULT 0 CHECK (refusals >= 0),
    refused_at    timestamptz,
    refused_until timestamptz,
    PRIMARY KEY (account_id, version),
    CHECK (num_nonnulls(refused_at, refused_until) = CASE WHEN refusals > 0 THEN 2 ELSE 0 END)
);
COMMENT ON TABLE version_schedules IS 'Until when GitHub gives jobs of an account to runners of a version, as it last answered, and refusals that were seen.';
-- Every match looks for refused versions. Most versions have no date yet.
CREATE INDEX version_schedules_ending ON version_schedules (account_id)
    WHERE runtime_ends_at IS NOT NULL OR refused_until IS NOT NULL;

-- Whether nothing is minted for Pods of the version.
CREATE FUNCTION is_refused(v version_schedules, moment timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT (v.runtime_ends_at IS NOT NULL OR v.refused_until IS NOT NULL)
       AND (v.runtime_ends_at <= moment OR v.refused_until > moment) IS TRUE
$$;

-- What is refused of a pool's runners to one account at `moment`: the version of its idle Pods or, without any, of its
-- newest Pods. The last one to be refused counts.
CREATE FUNCTION refused_version(pool_id integer, account_id integer, moment timestamptz)
    RETURNS TABLE (version text, runtime_ends_at timestamptz, refused_at timestamptz, refused_until timestamptz)
    LANGUAGE sql STABLE AS $$
    SELECT v.version, v.runtime_ends_at, v.refused_at, v.refused_until
      FROM version_schedules v
     CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT FROM runners r
                        WHERE r.pool_id = refused_version.pool_id AND r.gone_at IS NULL AND r.state = 'idle'
                          AND r.runner_version = v.version) AS idle,
               EXISTS (SELECT FROM pools p JOIN pod_versions n ON n.spec_hash = p.spec_hash
                        WHERE p.id = refused_version.pool_id AND n.version = v.version) AS newest
        OFFSET 0) u
     WHERE v.account_id = refused_version.account_id AND is_refused(v, moment) AND (u.idle OR u.newest)
     ORDER BY u.newest DESC, v.version
     LIMIT 1
$$;


-- Supply

CREATE TABLE supply_graces (
    runner_id  uuid PRIMARY KEY REFERENCES runners ON DELETE CASCADE,
    key_id     integer NOT NULL REFERENCES demand_keys,
    until      timestamptz NOT NULL
);
COMMENT ON TABLE supply_graces IS 'Runners that ended without a reported job. The job may be done and its webhook on its way (I68), so they count as supply until GitHub was asked, for two minutes at most.';

-- What no longer counts as supply makes room for another runner.
CREATE FUNCTION supply_graces_over() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('paddock', 'demand');
    RETURN NULL;
END $$;
CREATE TRIGGER supply_graces_over AFTER DELETE ON supply_graces FOR EACH STATEMENT EXECUTE FUNCTION supply_graces_over();

-- What is supply of a key: runners that will take one of its queued jobs, or may have taken one that is still listed as
-- queued. This is the only definition; the planner inlines these functions, so partial indexes still serve.
CREATE FUNCTION is_supply(r runners, moment timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT r.gone_at IS NULL AND r.key_id IS NOT NULL
       AND (r.state IN ('claimed', 'armed', 'running') AND r.suspect_at IS NULL
            -- Busy by its own word: GitHub names its job at any moment (I73).
            OR r.state = 'busy' AND r.job_id IS NULL AND r.busy_at > moment - interval '2 minutes')
$$;
CREATE FUNCTION is_supply(e supply_graces, moment timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT e.until > moment
$$;
-- Per key with supply at `moment`: live runners, runners that have ended, and both.
CREATE FUNCTION supply(moment timestamptz)
    RETURNS TABLE (key_id integer, runners integer, ended integer, total integer) LANGUAGE sql STABLE AS $$
    SELECT s.key_id, sum(s.live)::int, sum(1 - s.live)::int, count(*)::int
      FROM (SELECT r.key_id, 1 AS live FROM runners r WHERE is_supply(r, moment)
             UNION ALL
            SELECT e.key_id, 0 FROM supply_graces e WHERE is_supply(e, moment)) s
     GROUP BY s.key_id
$$;


-- Recovery

CREATE TABLE actions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    actor      text NOT NULL CHECK (actor <> ''),
    rule       text NOT NULL,
    action     text NOT NULL,
    outcome    text NOT NULL CHECK (outcome IN ('done', 'dry-run', 'limited', 'lost the race', 'failed')),
    runner_id  uuid,
    host_id    smallint,
    job_id     bigint,
    pod_name   text,
    why        text NOT NULL,
    evidence   jsonb NOT NULL,
    CHECK (num_nonnulls(runner_id, job_id, pod_name) >= 1),
    CHECK ((job_id IS NULL) = (host_id IS NULL))
);
COMMENT ON TABLE actions IS 'Every action that recovery took, or would have taken, with the evidence for it.';
CREATE INDEX actions_of_runner ON actions (runner_id, id) WHERE runner_id IS NOT NULL;
CREATE INDEX actions_of_job ON actions (host_id, job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX actions_at ON actions USING brin (at) WITH (pages_per_range = 16);
CREATE INDEX actions_of_rule ON actions (rule, id);


-- Pauses of all dispatch

CREATE TABLE dispatch_pauses (
    only_one   boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    paused_at  timestamptz NOT NULL,
    paused_by  text NOT NULL CHECK (paused_by <> ''),
    why        text NOT NULL
);
COMMENT ON TABLE dispatch_pauses IS 'One row while dispatch is paused for all accounts, none otherwise.';


-- Terms: what binds a key (limits, weights, pauses, installations, costs)

-- The version is drawn anew with every change, not counted: after a restored backup a counter would reach a number
-- twice, and a matcher would take other terms for those it knows.
CREATE TABLE terms (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    version  uuid NOT NULL DEFAULT gen_random_uuid()
);
COMMENT ON TABLE terms IS 'The version of the terms as they are. The matcher reads the terms when it changed, and not with every match.';
INSERT INTO terms DEFAULT VALUES;

-- A change of what may be claimed wakes the matchers. A statement that changes no row must wake none (I84), so these
-- are triggers of rows: a trigger of statements runs for no row too.
CREATE FUNCTION limits_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE terms SET version = gen_random_uuid();
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
CREATE TRIGGER limits_changed AFTER INSERT OR DELETE ON dispatch_pauses
    FOR EACH ROW EXECUTE FUNCTION limits_changed();
-- Names are terms too: a JIT is minted with them. Every list that is read writes them, and they seldom change.
CREATE TRIGGER name_changed AFTER UPDATE OF login ON accounts
    FOR EACH ROW WHEN (OLD.login <> NEW.login) EXECUTE FUNCTION limits_changed();
CREATE TRIGGER name_changed AFTER UPDATE OF full_name ON repositories
    FOR EACH ROW WHEN (OLD.full_name <> NEW.full_name) EXECUTE FUNCTION limits_changed();
-- Both decide at which scope the runners of an account register.
CREATE TRIGGER scope_changed AFTER UPDATE OF kind ON accounts
    FOR EACH ROW WHEN (OLD.kind <> NEW.kind) EXECUTE FUNCTION limits_changed();
CREATE TRIGGER scope_changed AFTER UPDATE OF account_id ON repositories
    FOR EACH ROW WHEN (OLD.account_id <> NEW.account_id AND NEW.limited) EXECUTE FUNCTION limits_changed();


-- Matching: two messages, `demand` and `claim`

-- What limited repositories use of runners that are registered at their organisation: those that execute, or have
-- executed, one of their jobs. A runner whose job is not known may take any: it counts against every limited repository
-- of the organisation, if its pool's runners would register at repositories now (I78).
-- A repository that was transferred may still be served by runners of the organisation to which it belonged before.
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
), left_behind AS MATERIALIZED (
    SELECT rep.account_id, rep.id AS repository_id, count(*) AS runners, sum(r.vcpu_milli) AS vcpu_milli,
           sum(r.memory_mib) AS memory_mib
      FROM repositories rep
      JOIN jobs j ON j.repository_id = rep.id AND j.state = 'in_progress'
      JOIN runners r ON r.id = j.runner_id AND r.gone_at IS NULL
      JOIN demand_keys k ON k.id = r.key_id AND k.repository_id IS NULL AND k.account_id <> rep.account_id
     WHERE rep.limited AND rep.transferred
     GROUP BY rep.id
)
SELECT rep.id AS repository_id, sum(c.runners)::int AS runners, sum(c.vcpu_milli)::bigint AS vcpu_milli,
       sum(c.memory_mib)::bigint AS memory_mib
  FROM repositories rep
  JOIN (SELECT account_id, repository_id, runners, vcpu_milli, memory_mib FROM counted
         UNION ALL
        SELECT account_id, repository_id, runners, vcpu_milli, memory_mib FROM left_behind) c
    ON c.account_id = rep.account_id AND (c.repository_id = rep.id OR c.repository_id IS NULL)
 WHERE rep.limited
 GROUP BY rep.id;

-- What changes from match to match. It returns, for so many `pods`, at `moment`:
-- * per key with demand, its oldest jobs that no supply is on its way to, at most `per_key` of each (NULL: as many as a
--   fair share needs);
-- * what each key of their accounts holds, and what each pool with a maximum and demand holds;
-- * idle runners whose version GitHub refuses, by account;
-- * back-offs;
-- * the mints an installation of each App may make, and what is left of those that have less than `pods`;
-- * the version of the terms.
-- In JSON, by columns, in no order: a driver takes longer to read a row of lists.
--
-- With `stall` it takes the matcher's lock, which this session holds until `claim`. The lock is taken by a statement of
-- its own: one that both waited for it and read would see the database as it was before the wait, and two matchers
-- could fill the same place (I25). The server ends a session that is silent for `stall`, and with it the lock (I72).
--
-- The walk over the keys is a loose index scan: it costs one probe per key, at any depth of the queue, and brings the
-- key's oldest job along. It reads more of a key where more is wanted, or where supply is on its way to the oldest.
-- Each probe visits an index page to its end. An index-only scan copies each entry there, some two hundred for one that is
-- used, so these scans are off here.
CREATE FUNCTION demand(pods integer, per_key integer, moment timestamptz, stall text)
    RETURNS json LANGUAGE plpgsql SET enable_indexonlyscan = off AS $$
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
        -- Runners that ended and whose job may be done: a job is served again only when that is known (I68).
        SELECT key_id, count(*) AS supply FROM supply_graces e WHERE is_supply(e, moment) GROUP BY key_id
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
    ), refused AS (
        SELECT w.account_id, r.id
          FROM (SELECT DISTINCT account_id, pool_id FROM wanted) w
          JOIN version_schedules v ON v.account_id = w.account_id AND is_refused(v, moment)
         CROSS JOIN LATERAL (
            -- Read only where a version is refused, which is seldom. A Pod may ask before its version is noted: for its
            -- first seconds it has that of the newest Pods of its description.
            SELECT id FROM runners r
             WHERE pool_id = w.pool_id AND gone_at IS NULL AND state = 'idle'
               AND (runner_version = v.version
                    OR runner_version IS NULL AND since > moment - interval '15 seconds'
                       AND EXISTS (SELECT FROM pod_versions n WHERE n.spec_hash = r.spec_hash AND n.version = v.version))
            OFFSET 0) r
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
        -- Of each installation with fewer mints left than Pods that wait. Tokens only come back with time: with enough in
        -- the row nothing is computed.
        SELECT app_id, installation_id, min(mints) AS mints
          FROM (SELECT * FROM minted WHERE mints < pods
                 UNION ALL
                SELECT b.app_id, b.installation_id, floor(tokens_at(b, moment))::int FROM budgets b
                 WHERE b.bucket = 'mint' AND b.tokens < pods AND tokens_at(b, moment) < pods) t
         GROUP BY app_id, installation_id
    )
    SELECT json_build_object(
               'terms', (SELECT version FROM terms), 'depth', (SELECT jobs FROM fair),
               'held_keys', h.keys, 'runners', h.runners, 'vcpu_milli', h.vcpu_milli, 'memory_mib', h.memory_mib,
               'pools', f.pools, 'pool_runners', f.runners,
               'job_keys', u.keys, 'queued_at', u.queued_at, 'job_ids', u.ids,
               'apps', a.apps, 'app_mints', a.mints,
               'mint_apps', t.apps, 'mint_installations', t.installations, 'mints', t.mints,
               'refused_accounts', v.accounts, 'refused_runners', v.runners,
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
           (SELECT coalesce(array_agg(account_id), '{}') AS accounts, coalesce(array_agg(id), '{}') AS runners
              FROM refused) v,
           (SELECT coalesce(array_agg(scope::text), '{}') AS scopes, coalesce(array_agg(subject), '{}') AS subjects
              FROM backoffs WHERE until > moment) b);
END $$;

-- Waits until all that was committed is as durable as the server's settings ask: on the local disk, and on synchronous
-- standbys where there are any. No statement waits for only that, so a transaction of its own writes a message to the
-- log, and its commit waits. It is left out if only the local disk counts and nothing is left to flush. With standbys
-- that is not enough: what another session has flushed here may not have reached them.
CREATE FUNCTION await_durability() RETURNS void LANGUAGE sql AS $$
    SELECT pg_logical_emit_message(true, 'paddock', '')
     WHERE pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()
        OR current_setting('synchronous_standby_names') <> ''
$$;

-- Writes all claims of a batch: the rows, the names, the tokens; in the name of `by`, at `moment`, to be minted by
-- `deadline`. A Pod that is no longer idle in the generation it asked in is `left_out`, and nothing is spent for it.
-- The lock is released, and what was written is visible, before disk and standbys are waited for, which may take longer
-- than all the rest. Nothing that others write meanwhile can outlive it: the log is flushed, and replicated, in order.
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


-- Sessions of the dashboard

CREATE TABLE ended_sessions (
    id       uuid PRIMARY KEY,
    ends_at  timestamptz NOT NULL
);
COMMENT ON TABLE ended_sessions IS 'Sessions that a logout ended before their time. A session is a signed cookie: no replica may accept a copy of it after that.';
