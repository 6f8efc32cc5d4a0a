-- Token buckets shared by all replicas.

-- name: make
-- A bucket, full when it is new.
INSERT INTO budgets (app_id, bucket, capacity, refill_per_s, tokens, as_of) VALUES ($1, $2, $3, $4, $3, $5)
ON CONFLICT (app_id, bucket) DO NOTHING

-- name: read
-- A bucket, held until the end of the transaction.
SELECT capacity, refill_per_s, tokens, as_of FROM budgets WHERE app_id = $1 AND bucket = $2 FOR UPDATE

-- name: write
-- What is left in a bucket.
UPDATE budgets SET tokens = $3, as_of = $4 WHERE app_id = $1 AND bucket = $2

-- name: left[]
-- What an App's hourly quotas hold at $2.
SELECT bucket, capacity, tokens_at(b, $2) AS tokens FROM budgets b
 WHERE app_id = $1 AND bucket LIKE 'rest/%'
 ORDER BY bucket
