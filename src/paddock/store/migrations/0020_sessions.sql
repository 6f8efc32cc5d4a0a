-- Sessions of the dashboard that were ended before their time.
-- oldest program: 0.1.0

-- A session is a signed cookie that says until when it lasts. A copy of it must not outlive a logout, at any replica.
CREATE TABLE ended_sessions (
    id       uuid PRIMARY KEY,
    ends_at  timestamptz NOT NULL
);
