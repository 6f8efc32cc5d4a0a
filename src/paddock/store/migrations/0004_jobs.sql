-- Jobs, as GitHub tells of them. A state only rises (I2), but for one guarded demotion.
-- oldest program: 0.1.0

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
    -- Whom it can be served by, or why by nobody.
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
    -- From when its age counts (I76), by the rule of paddock.domain.jobs.JobFacts.queued_at.
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

-- Demand: walked key by key, oldest first, by the matcher. Finished jobs are not in it, so it stays
-- as small as the queue however long history grows.
CREATE INDEX jobs_demand ON jobs (key_id, queued_at, id) WHERE state = 'queued' AND key_id IS NOT NULL;
CREATE INDEX jobs_refused ON jobs (queued_at) WHERE state = 'queued' AND refusal IS NOT NULL;
CREATE INDEX jobs_in_progress ON jobs (started_at) WHERE state = 'in_progress';
CREATE INDEX jobs_completed ON jobs (completed_at) WHERE state = 'completed';
CREATE INDEX jobs_of_runner ON jobs (runner_id) WHERE runner_id IS NOT NULL;

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
    -- What was demand before is no news (I84).
    IF EXISTS (SELECT FROM was o JOIN became n USING (host_id, id)
                WHERE n.state = 'queued' AND n.key_id IS NOT NULL
                  AND (o.state, o.key_id) IS DISTINCT FROM (n.state, n.key_id)) THEN
        PERFORM pg_notify('paddock', 'demand');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_changed AFTER UPDATE ON jobs
    REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT EXECUTE FUNCTION jobs_changed();

-- Jobs that wait under another key than `registration` says now, and what it says: the first limit of a repository was
-- set or the last one removed, the pool names another group, a backup was restored. Two halves, one for each partial
-- index.
CREATE VIEW misplaced_jobs AS
SELECT j.host_id, j.id, k.account_id, k.pool_id, s.repository_id, s.runner_group_id
  FROM (SELECT host_id, id, key_id, repository_id FROM jobs WHERE state = 'queued' AND key_id IS NOT NULL
         UNION ALL
        SELECT host_id, id, key_id, repository_id FROM jobs WHERE state = 'waiting' AND key_id IS NOT NULL) j
  JOIN demand_keys k ON k.id = j.key_id
 CROSS JOIN LATERAL (SELECT CASE WHEN at_repository THEN j.repository_id END AS repository_id, runner_group_id
                       FROM registration(k.account_id, k.pool_id)) s
 WHERE k.repository_id IS DISTINCT FROM s.repository_id OR k.runner_group_id <> s.runner_group_id;

-- Moves these accounts' misplaced jobs to their keys. Call it under the matcher's lock: no claim is decided meanwhile.
-- Jobs are locked in the order in which every writer takes them.
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
