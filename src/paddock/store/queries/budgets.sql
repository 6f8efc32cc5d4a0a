-- Token buckets shared by all replicas.

-- name: make
-- Bucket $3 of installation $2 of App $1, full when it is new.
INSERT INTO budgets (app_id, installation_id, bucket, capacity, refill_per_s, tokens, as_of)
VALUES ($1, $2, $3, $4, $5, $4, $6)
ON CONFLICT (app_id, installation_id, bucket) DO NOTHING

-- name: make_for_mints
-- The same for mints, of the size that the matcher gives it; none if the App's are not limited by the hour.
INSERT INTO budgets (app_id, installation_id, bucket, capacity, refill_per_s, tokens, as_of)
SELECT id, $2, 'mint', mint_burst, mint_refill_per_s, mint_burst, $3
  FROM apps WHERE id = $1 AND mint_burst IS NOT NULL
ON CONFLICT (app_id, installation_id, bucket) DO NOTHING

-- name: read
-- A bucket, held until the end of the transaction.
SELECT capacity, refill_per_s, tokens, as_of FROM budgets
 WHERE app_id = $1 AND installation_id = $2 AND bucket = $3 FOR UPDATE

-- name: write
-- What is left in a bucket.
UPDATE budgets SET tokens = $4, as_of = $5 WHERE app_id = $1 AND installation_id = $2 AND bucket = $3

-- name: left[]
-- What the hourly quotas of App $1 and of its installations hold at $2.
SELECT installation_id, capacity, tokens_at(b, $2) AS tokens FROM budgets b
 WHERE app_id = $1 AND bucket = 'rest'
 ORDER BY installation_id
