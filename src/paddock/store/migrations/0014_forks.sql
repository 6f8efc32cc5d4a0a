-- Why a job is trusted or is not: what its run said when it was looked up (I62).
-- oldest program: 0.1.0

ALTER TABLE jobs ADD COLUMN trust_why text;
