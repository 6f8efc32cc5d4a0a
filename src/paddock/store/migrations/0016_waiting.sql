-- Jobs that wait for an approval are looked for now and then (still-waiting): found without reading all of history.
-- oldest program: 0.1.0

CREATE INDEX jobs_waiting ON jobs (since, id) WHERE state = 'waiting';
