-- What recovery knows of a runner beside its state, what it did, and why pools have the size they have.
-- oldest program: 0.1.0

ALTER TABLE runners
    -- In how many consecutive complete reads of the fleet its Pod was missing, and since when (I29).
    ADD COLUMN absent_reads integer NOT NULL DEFAULT 0 CHECK (absent_reads >= 0),
    ADD COLUMN absent_since timestamptz,
    -- How far a retirement has come: GitHub has no record of it any more; it showed no job after that.
    ADD COLUMN deregistered_at timestamptz,
    ADD COLUMN proved_at timestamptz,
    -- Written before the fleet is asked: whoever finds its Pod ended later knows that we had asked for it.
    ADD COLUMN deletion_asked_at timestamptz,
    -- What for it is retired (paddock.domain.endings.Retired), and whether GitHub never saw it online.
    ADD COLUMN retired text CHECK (retired IN ('unwanted', 'surplus', 'given-up', 'finished', 'deleted', 'forced')),
    -- Who ended it by force. From then on nothing brings it back: no rule, no event and no answer of GitHub's.
    ADD COLUMN forced_by text CHECK (forced_by <> ''),
    ADD COLUMN unregistered boolean NOT NULL DEFAULT false,
    -- Whether its runner container was ever seen started; NULL is "nobody can tell".
    ADD COLUMN started boolean,
    -- Its container is up and GitHub calls it offline: it no longer counts as supply.
    ADD COLUMN suspect_at timestamptz,
    ADD CONSTRAINT forced_is_final CHECK (forced_by IS NULL OR state IN ('retiring', 'gone')),
    ADD CONSTRAINT absence_is_dated CHECK ((absent_reads = 0) = (absent_since IS NULL)),
    ADD CONSTRAINT proof_follows_deregistration CHECK (proved_at IS NULL OR deregistered_at <= proved_at);

-- Installations that GitHub does not know any more: how often it was asked by number, and its list did not have them
-- either; the first and the last time. Times too close to the last are not counted. One that is back is not in here (I29).
CREATE TABLE removals (
    host_id        smallint NOT NULL,
    github_id      bigint NOT NULL,
    confirmations  integer NOT NULL CHECK (confirmations >= 1),
    first_at       timestamptz NOT NULL,
    last_at        timestamptz NOT NULL,
    PRIMARY KEY (host_id, github_id),
    FOREIGN KEY (host_id, github_id) REFERENCES installations ON DELETE CASCADE
);

-- Runners that ended without a reported job: the job may have been done all the same, and its webhook be
-- on its way (I68). They count as supply until GitHub was asked, for two minutes at most.
CREATE TABLE echoes (
    runner_id  uuid PRIMARY KEY REFERENCES runners ON DELETE CASCADE,
    key_id     integer NOT NULL REFERENCES demand_keys,
    until      timestamptz NOT NULL
);
-- Whatever no longer counts as supply makes room for another.
CREATE FUNCTION echoes_over() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('paddock', 'demand');
    RETURN NULL;
END $$;
CREATE TRIGGER echoes_over AFTER DELETE ON echoes FOR EACH STATEMENT EXECUTE FUNCTION echoes_over();

-- What is supply of a key: runners that will take one of its queued jobs, or may have taken one that is still listed as
-- queued. This is the only definition; the planner inlines these functions, so partial indexes still serve.
CREATE FUNCTION is_supply(r runners, moment timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT r.gone_at IS NULL AND r.key_id IS NOT NULL
       AND (r.state IN ('claimed', 'armed', 'running') AND r.suspect_at IS NULL
            -- Busy by its own word: GitHub names its job at any moment (I73).
            OR r.state = 'busy' AND r.job_id IS NULL AND r.busy_at > moment - interval '2 minutes')
$$;
CREATE FUNCTION is_supply(e echoes, moment timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT e.until > moment
$$;
-- Per key with supply at `moment`: live runners, runners that have ended, and both.
CREATE FUNCTION supply(moment timestamptz)
    RETURNS TABLE (key_id integer, runners integer, ended integer, total integer) LANGUAGE sql STABLE AS $$
    SELECT s.key_id, sum(s.live)::int, sum(1 - s.live)::int, count(*)::int
      FROM (SELECT r.key_id, 1 AS live FROM runners r WHERE is_supply(r, moment)
             UNION ALL
            SELECT e.key_id, 0 FROM echoes e WHERE is_supply(e, moment)) s
     GROUP BY s.key_id
$$;

-- Every action recovery took, or would have taken, with the evidence it was drawn from.
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
CREATE INDEX actions_of_runner ON actions (runner_id, id) WHERE runner_id IS NOT NULL;
CREATE INDEX actions_of_job ON actions (host_id, job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX actions_at ON actions USING brin (at) WITH (pages_per_range = 16);

-- What GitHub said of a job when it was asked, and why the job waits if it does.
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

-- Each decision on a pool's size that differs from the one before, term by term.
CREATE TABLE pool_decisions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id    integer NOT NULL REFERENCES pools ON DELETE CASCADE,
    at         timestamptz NOT NULL,
    wanted     integer NOT NULL CHECK (wanted >= 0),
    target     integer NOT NULL CHECK (target >= 0),
    terms      jsonb NOT NULL,
    why        text NOT NULL
);
CREATE INDEX pool_decisions_latest ON pool_decisions (pool_id, id DESC);
