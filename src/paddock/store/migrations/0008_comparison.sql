-- When repositories were last compared with GitHub, and the jobs a comparison looks for.
-- oldest program: 0.1.0

-- Beside the repositories and not in them: whoever writes a repository wakes the matchers.
CREATE TABLE comparisons (
    repository_id  integer PRIMARY KEY REFERENCES repositories ON DELETE CASCADE,
    compared_at    timestamptz NOT NULL
);

CREATE INDEX jobs_open ON jobs (repository_id, id) WHERE state <> 'completed';
