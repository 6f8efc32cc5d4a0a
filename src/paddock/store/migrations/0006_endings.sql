-- How runners ended, and what was measured while they lived.
-- oldest program: 0.1.0

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
    -- Until then its log and its circumstances are asked for again, and its Pod is kept (I79). NULL: both were
    -- read, or given up, or never wanted.
    log_wanted_until timestamptz,
    evidence    jsonb NOT NULL,
    written_at  timestamptz NOT NULL,
    refined_at  timestamptz
);
CREATE INDEX verdicts_ended ON verdicts (ended_at);
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
    -- Of a runner; without a foreign key, whose check would lock the runner's row. Retention deletes both.
    runner_id   uuid PRIMARY KEY,
    -- One compact series per runner, bounded; it comes from untrusted code.
    series      bytea NOT NULL CHECK (octet_length(series) <= 262144),
    -- Its newest samples, kept apart: most reports write nothing else.
    recent      bytea NOT NULL CHECK (octet_length(recent) <= 65536),
    last_at     timestamptz NOT NULL
) WITH (fillfactor = 50);
