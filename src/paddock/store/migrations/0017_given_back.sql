-- A job falls from in_progress to queued also if nobody here knows the runner it was on: GitHub alone can say that it
-- was given back.
-- oldest program: 0.1.0

CREATE OR REPLACE FUNCTION jobs_demoted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'in_progress' AND NEW.state = 'queued' AND NEW.demotions = OLD.demotions + 1
       AND (OLD.runner_id IS NULL
            OR EXISTS (SELECT FROM runners r WHERE r.id = OLD.runner_id AND r.state = 'gone')) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'job % may not fall from % to %', OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'check_violation', CONSTRAINT = 'jobs_demoted';
END $$;
