-- Token buckets shared by all replicas.

-- name: make
-- Make a bucket if it is missing; a new bucket is full.
INSERT INTO budgets (app_id, installation_id, bucket, capacity, refill_per_s, tokens, as_of)
VALUES (:app, :installation, :bucket, :capacity, :refill_per_s, :capacity, :now)
ON CONFLICT (app_id, installation_id, bucket) DO NOTHING

-- name: make_for_mints
-- The same for mints, with the size the matcher uses; no row if the App's mints are not limited by the hour.
INSERT INTO budgets (app_id, installation_id, bucket, capacity, refill_per_s, tokens, as_of)
SELECT id, :installation, 'mint', mint_burst, mint_refill_per_s, mint_burst, :now
  FROM apps WHERE id = :app AND mint_burst IS NOT NULL
ON CONFLICT (app_id, installation_id, bucket) DO NOTHING

-- name: read
-- A bucket, locked until the transaction ends.
SELECT capacity, refill_per_s, tokens, as_of FROM budgets
 WHERE app_id = :app AND installation_id = :installation AND bucket = :bucket FOR UPDATE

-- name: write
-- What is left in a bucket.
UPDATE budgets SET tokens = :tokens, as_of = :as_of
 WHERE app_id = :app AND installation_id = :installation AND bucket = :bucket

-- name: left[]
-- What is left at :now of the hourly quotas of an App and of its installations.
SELECT installation_id, capacity, tokens_at(b, :now) AS tokens FROM budgets b
 WHERE app_id = :app AND bucket = 'rest'
 ORDER BY installation_id
