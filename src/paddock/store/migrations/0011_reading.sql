-- What people look things up by: which image a runner was made from, and what was done to pools and accounts.
-- oldest program: 0.1.0

-- A pool forgets the image of yesterday; the runners that ended with it do not.
CREATE TABLE pool_images (
    spec_hash  text PRIMARY KEY,
    image      text NOT NULL CHECK (image <> '')
);
COMMENT ON TABLE pool_images IS 'The image of the runner container in Pods of a spec_hash; for a fleet of one machine, the program.';

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
UPDATE pools SET spec = spec;

-- Changes by operators and what recovery did by a rule are few among the steps of runners and jobs: without an
-- index of their own, looking for them reads all of those. Neither costs a step of dispatch anything.
CREATE INDEX events_of_account ON events (account_id, id) WHERE account_id IS NOT NULL;
CREATE INDEX events_of_pool ON events (pool_id, id) WHERE pool_id IS NOT NULL;
CREATE INDEX actions_of_rule ON actions (rule, id);
