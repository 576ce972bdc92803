-- Statements of rebuilds. pNN stands for a partition.

-- name: drop the staging tables of all partitions
SELECT badged.drop_staging_tables(p) FROM (SELECT DISTINCT partition_id::integer AS p FROM badged.log_ranges) AS existing

-- name: read the rebuilt partitions
SELECT partition_id, users, conversations, different_users FROM badged.rebuilt_partitions ORDER BY partition_id

-- name: record a rebuilt partition
INSERT INTO badged.rebuilt_partitions (partition_id, users, conversations, different_users) VALUES ($1, $2, $3, $4)

-- name: count the rebuilt rows
SELECT (SELECT count(*) FROM badged.users_pNN_staging), (SELECT count(*) FROM badged.conversations_pNN_staging)

-- name: find a staged room
SELECT EXISTS (SELECT FROM badged.rooms_pNN_staging)

-- name: read the staged members
SELECT DISTINCT user_id FROM badged.conversations_pNN_staging WHERE conversation_id = ANY ($1::text[]) AND joined IS NOT NULL

-- name: begin an epoch
-- A batch that waits for the lock of the position detects the new revision, and reads all rows
-- again.
UPDATE badged.partitions
SET epoch = substr(replace(gen_random_uuid()::text, '-', ''), 1, 12), revision = revision + 1
WHERE partition_id = $1

-- name: forget the healed users
DELETE FROM badged.healed_users WHERE partition_id = $1

-- name: tell of users
SELECT badged.tell_of_users($1, $2)
