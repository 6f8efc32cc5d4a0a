-- What happened, when, by whom and why. Written by the tables themselves, so that no change is silent.
-- oldest program: 0.1.0

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
    CHECK (num_nonnulls(runner_id, job_id, account_id, pool_id) = 1),
    CHECK ((job_id IS NULL) = (host_id IS NULL))
);
COMMENT ON COLUMN events.actor IS 'A loop of a replica ("replica-1/matcher") or an operator ("operator:ana").';
CREATE INDEX events_of_runner ON events (runner_id, id) WHERE runner_id IS NOT NULL;
CREATE INDEX events_of_job ON events (host_id, job_id, id) WHERE job_id IS NOT NULL;
-- Events are appended in time order: a block range index finds the old ones at no cost to the writers.
CREATE INDEX events_at ON events USING brin (at) WITH (pages_per_range = 16);
