-- Statements of splits. pNN stands for the partition.

-- name: look
SELECT (SELECT partitions FROM badged.settings), coalesce((SELECT name FROM badged.shard), ''),
    EXISTS (SELECT FROM badged.partitions WHERE partition_id = $1),
    $1 IN (SELECT badged.existing_partitions()),
    coalesce((SELECT shard FROM badged.shard_partitions WHERE partition_id = $1), ''),
    coalesce(m.role, ''), coalesce(m.target, ''), coalesce(m.state, '')
FROM (SELECT) AS one LEFT JOIN badged.moves AS m ON m.partition_id = $1

-- name: level
SELECT base, modulus FROM badged.level_of($1)

-- name: begin
INSERT INTO badged.moves (partition_id, move_id, role, source, target, revision, state)
VALUES ($1, gen_random_uuid(), 'source', $2, '', 0, 'copying')
ON CONFLICT (partition_id) DO UPDATE SET move_id = excluded.move_id, role = excluded.role, source = excluded.source, target = excluded.target,
    revision = excluded.revision, state = excluded.state, epoch = NULL, begun_at = clock_timestamp()

-- name: rows of the log
-- The rows after one position and up to another, without rows of pending transactions.
SELECT transaction_id, "offset", created_at, era, uuid, own, payload, metadata::text
FROM badged.events_pNN
WHERE (transaction_id, "offset") > ($1::bigint::text::xid8, $2::bigint) AND transaction_id >= $1::bigint::text::xid8
  AND (transaction_id, "offset") <= ($3::bigint::text::xid8, $4::bigint) AND transaction_id <= $3::bigint::text::xid8
  AND transaction_id <> ALL ($5::bigint[]::text[]::xid8[])
ORDER BY transaction_id, "offset"

-- name: letters
-- The dead letters of the partition, without those in $2.
SELECT id, payload, user_ids FROM badged.dead_letters WHERE partition_id = $1 AND NOT id = ANY ($2)

-- name: give a letter
UPDATE badged.dead_letters SET partition_id = $2, payload = $3, user_ids = $4 WHERE id = $1

-- name: copy a letter
INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", index, uuid, payload, reason, user_ids, created_at, origin)
SELECT $2, transaction_id, "offset", index, uuid, $3, reason, $4, created_at, origin FROM badged.dead_letters WHERE id = $1

-- name: split
SELECT badged.split_partition($1, $2)

-- name: drop what interrupted commands left
SELECT badged.drop_staging_tables($1), badged.drop_baseline_tables($1)

-- name: forget the parent
WITH timelines AS (DELETE FROM badged.timeline_ends WHERE partition = $1)
DELETE FROM badged.rebuilt_partitions WHERE partition_id = $1

-- name: begun
-- Splits that have begun, and splits whose old rows are not deleted yet.
SELECT partition_id FROM badged.moves WHERE role = 'source' AND target = '' ORDER BY 1
