-- A pause of all dispatch.
-- oldest program: 0.1.0

-- A row while nothing is claimed for anybody, none otherwise.
CREATE TABLE dispatch_pauses (
    only_one   boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    paused_at  timestamptz NOT NULL,
    paused_by  text NOT NULL CHECK (paused_by <> ''),
    why        text NOT NULL
);
CREATE TRIGGER limits_changed AFTER INSERT OR DELETE ON dispatch_pauses
    FOR EACH ROW EXECUTE FUNCTION limits_changed();

-- These events are about everybody. What is there already satisfies the old, narrower check, so nobody has to
-- wait until it was all read again.
ALTER TABLE events
    DROP CONSTRAINT events_check,
    ADD CONSTRAINT events_subject CHECK (
        num_nonnulls(runner_id, job_id, account_id, pool_id) = 1
        OR num_nonnulls(runner_id, job_id, account_id, pool_id) = 0
           AND after IN ('dispatch paused', 'dispatch resumed')) NOT VALID;
