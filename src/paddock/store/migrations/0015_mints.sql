-- A claim and its name are written by one statement: a foreign key would only look up once more, and lock, for every
-- name the row that the same statement has just written. Names go with their runner all the same.
-- oldest program: 0.1.0

ALTER TABLE mints DROP CONSTRAINT mints_runner_id_fkey;

CREATE FUNCTION runners_forgotten() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM mints WHERE runner_id IN (SELECT id FROM forgotten);
    RETURN NULL;
END $$;
CREATE TRIGGER runners_forgotten AFTER DELETE ON runners
    REFERENCING OLD TABLE AS forgotten FOR EACH STATEMENT EXECUTE FUNCTION runners_forgotten();
