-- Hosts that say of themselves that they are not fit for runners, for all who do not ask the fleet.
-- oldest program: 0.1.0

-- As the leader last saw it: a row while there is a fault, none otherwise.
CREATE TABLE host_faults (
    host   text PRIMARY KEY CHECK (host <> ''),
    why    text NOT NULL CHECK (why <> ''),
    since  timestamptz NOT NULL
);
COMMENT ON COLUMN host_faults.why IS 'One word for programs, a colon, and the rest for people.';
