-- Token buckets shared by all replicas.

-- name: make
-- Make bucket $3 of installation $2 of App $1 if it is missing; a new bucket is full.
INSERT INTO budgets (app_id, installation_id, bucket, capacity, refill_per_s, tokens, as_of)
VALUES ($1, $2, $3, $4, $5, $4, $6)
ON CONFLICT (app_id, installation_id, bucket) DO NOTHING

-- name: make_for_mints
-- The same for mints, with the size the matcher uses; no row if the App's mints are not limited by the hour.
INSERT INTO budgets (app_id, installation_id, bucket, capacity, refill_per_s, tokens, as_of)
SELECT id, $2, 'mint', mint_burst, mint_refill_per_s, mint_burst, $3
  FROM apps WHERE id = $1 AND mint_burst IS NOT NULL
ON CONFLICT (app_id, installation_id, bucket) DO NOTHING

-- name: read
-- A bucket, locked until the transaction ends.
SELECT capacity, refill_per_s, tokens, as_of FROM budgets
 WHERE app_id = $1 AND installation_id = $2 AND bucket = $3 FOR UPDATE

-- name: write
-- What is left in a bucket.
UPDATE budgets SET tokens = $4, as_of = $5 WHERE app_id = $1 AND installation_id = $2 AND bucket = $3

-- name: left[]
-- What is left at $2 of the hourly quotas of App $1 and of its installations.
SELECT installation_id, capacity, tokens_at(b, $2) AS tokens FROM budgets b
 WHERE app_id = $1 AND bucket = 'rest'
 ORDER BY installation_id
