-- Quotas of keys. Each process takes a part at a time.

-- name: begin a day
WITH former AS (
    DELETE FROM badged.key_quotas WHERE key = $1 AND day < $2::date - 1
)
INSERT INTO badged.key_quotas (key, day, taken) VALUES ($1, $2::date, 0) ON CONFLICT (key, day) DO NOTHING

-- name: lock a day
SELECT taken FROM badged.key_quotas WHERE key = $1 AND day = $2::date FOR UPDATE

-- name: add
UPDATE badged.key_quotas SET taken = greatest(0, taken + $3) WHERE key = $1 AND day = $2::date
