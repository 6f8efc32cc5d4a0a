-- What comes in from GitHub and how much may go out to it: deliveries, back-offs, budgets.
-- oldest program: 0.1.0

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
    -- Not looked at again before: something it needs (its installation) could not be read.
    not_before  timestamptz NOT NULL,
    settled_at  timestamptz,
    note        text,
    -- Deduplicated for as long as a row is kept: longer than GitHub redelivers (I6).
    UNIQUE (host_id, guid),
    CHECK ((state = 'pending') = (settled_at IS NULL)),
    CHECK (state NOT IN ('pending', 'dead') OR payload IS NOT NULL),
    CHECK (state <> 'dead' OR note IS NOT NULL)
);
-- Not compressed: that would take as long as everything else about a row, and bodies are kept for days only.
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

CREATE TYPE backoff_scope AS ENUM ('key', 'repository', 'account', 'app');

CREATE TABLE backoffs (
    scope     backoff_scope NOT NULL,
    -- The id of the key, repository, account or App.
    subject   integer NOT NULL,
    until     timestamptz NOT NULL,
    failures  integer NOT NULL CHECK (failures > 0),
    reason    text NOT NULL,
    since     timestamptz NOT NULL,
    PRIMARY KEY (scope, subject)
);

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
);
COMMENT ON TABLE budgets IS 'Token buckets shared by all replicas (paddock.domain.budgets). One that is not there is full.';
-- Every match spends from some of them: with room on its page the new version of a row touches no index.
ALTER TABLE budgets SET (fillfactor = 50);
CREATE INDEX budgets_of_mints ON budgets (app_id, installation_id) WHERE bucket = 'mint';

-- What a bucket holds at a time.
CREATE FUNCTION tokens_at(budget budgets, at timestamptz) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT least(budget.capacity,
                 budget.tokens + budget.refill_per_s * greatest(0, extract(epoch FROM at - budget.as_of)::float8))
$$;

CREATE TABLE hook_cursors (
    app_id        integer PRIMARY KEY REFERENCES apps ON DELETE CASCADE,
    -- Every delivery GitHub made before this has arrived, or was given up. It only moves when that is
    -- known, so an outage of any length is caught up with (I8).
    complete_until  timestamptz NOT NULL
);
