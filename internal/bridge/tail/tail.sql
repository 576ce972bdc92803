-- name: create the state
INSERT INTO badged.tail_partitions (consumer_group, partition_id) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: read the state
SELECT f.revision, t.revision, t.after_user
FROM badged.events_pNN_offsets AS f, badged.tail_partitions AS t
WHERE f.consumer_group = $1 AND t.consumer_group = $2 AND t.partition_id = $3

-- name: store the state
UPDATE badged.tail_partitions SET revision = $3, after_user = $4 WHERE consumer_group = $1 AND partition_id = $2

-- name: page through users
SELECT user_id FROM badged.users_pNN WHERE user_id > $1 ORDER BY user_id LIMIT $2

-- name: read rooms
SELECT r.conversation_id, r.category, p.epoch, r.changes, r.last_seq, r.members
FROM badged.rooms_pNN AS r, badged.partitions AS p
WHERE p.partition_id = $1 AND r.conversation_id = ANY ($2)

-- name: read members
SELECT DISTINCT user_id FROM badged.conversations_pNN WHERE conversation_id = ANY ($1) AND joined IS NOT NULL

-- name: measure
-- Age of the first row that is folded but not published.
SELECT coalesce((
    SELECT greatest(extract(epoch FROM clock_timestamp() - e.created_at), 0)::float8
    FROM badged.events_pNN AS e
    WHERE (e.transaction_id, e."offset") > (g.last_processed_transaction_id, g.offset_acked) AND e.transaction_id >= g.last_processed_transaction_id
      AND (e.transaction_id, e."offset") <= (f.last_processed_transaction_id, f.offset_acked) AND e.transaction_id <= f.last_processed_transaction_id
      AND e.transaction_id <> ALL (f.pending)
    ORDER BY e.transaction_id, e."offset" LIMIT 1), 0)
FROM badged.events_pNN_offsets AS f, badged.events_pNN_offsets AS g
WHERE f.consumer_group = $1 AND g.consumer_group = $2
