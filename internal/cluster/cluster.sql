-- Statements about the identity of a shard, its map, hints and partitions of restored shards.

-- name: read the identity
SELECT (SELECT partitions FROM badged.settings), current_setting('server_encoding'), s.cluster::text, s.name, s.formed_at IS NOT NULL
FROM (SELECT) AS one LEFT JOIN badged.shard AS s ON true

-- name: read the map
-- Entries of the map, and the partitions that the shard holds. A held partition may have no
-- entry.
SELECT partition_id, coalesce(m.shard, ''), coalesce(m.revision, 0), p.partition_id IS NOT NULL
FROM badged.shard_partitions AS m FULL JOIN badged.partitions AS p USING (partition_id)

-- name: is it a shard
SELECT s.name FROM badged.shard AS s

-- name: which shard is it
SELECT s.cluster::text, s.name FROM badged.shard AS s

-- name: lock forming
-- The start time and the oid identify the database; different URLs can lead to the same
-- database.
SELECT extract(epoch FROM pg_postmaster_start_time())::text || ' ' || d.oid::text, current_setting('server_encoding'), pg_try_advisory_lock($1)
FROM pg_database AS d WHERE d.datname = current_database()

-- name: is it used
SELECT badged.is_used()

-- name: become a shard
INSERT INTO badged.shard (cluster, name) VALUES ($1::uuid, $2)

-- name: read the block of ids
-- Ids of dead letters, actions and jobs are unique among the shards: each shard draws its ids
-- from its own block.
SELECT greatest(
    coalesce(pg_sequence_last_value(pg_get_serial_sequence('badged.dead_letters', 'id')), 0) / 1000000000000,
    coalesce(pg_sequence_last_value(pg_get_serial_sequence('badged.audit', 'id')), 0) / 1000000000000,
    coalesce(pg_sequence_last_value(pg_get_serial_sequence('badged.jobs', 'id')), 0) / 1000000)

-- name: begin a block of ids
SELECT setval(pg_get_serial_sequence('badged.dead_letters', 'id'), $1::bigint * 1000000000000),
    setval(pg_get_serial_sequence('badged.audit', 'id'), $1::bigint * 1000000000000),
    setval(pg_get_serial_sequence('badged.jobs', 'id'), $1::bigint * 1000000)
WHERE $1::bigint > 0

-- name: map a partition
SELECT badged.map_partition($1, $2, $3)

-- name: leave a partition to another shard
SELECT badged.release_partition($1, $2, $3)

-- name: note that the cluster is formed
UPDATE badged.shard SET formed_at = clock_timestamp() WHERE formed_at IS NULL

-- name: read webhooks
-- Omits the columns that record the calls of a webhook.
SELECT to_jsonb(w) - ARRAY['due', 'failing_since', 'last_success_at', 'last_failure_at', 'step', 'last_status', 'last_error'] FROM badged.webhooks AS w

-- name: copy webhooks
INSERT INTO badged.webhooks (generation, created_at, updated_at, batch, rate, name, url, state, secrets, events, categories)
SELECT generation, created_at, updated_at, batch, rate, name, url, state, secrets, events, categories
FROM jsonb_populate_recordset(NULL::badged.webhooks, $1::jsonb)
ON CONFLICT (name) DO NOTHING

-- name: store a hint
-- If the events were already stored as a hint, $5 and $6 are the shard and the id of their first
-- hint; else '' and 0.
INSERT INTO badged.hints (shard, moves, messages, count, origin_shard, origin_id)
VALUES ($1, $2, $3, $4, nullif($5, ''), nullif($6, 0)) RETURNING id

-- name: does a shard have hints
SELECT EXISTS (SELECT FROM badged.hints WHERE shard = $1)

-- name: list shards with hints
SELECT DISTINCT shard FROM badged.hints ORDER BY shard

-- name: measure hints
-- Finds each shard and its oldest hint by the index. Counts the messages of up to $1 hints for
-- each.
WITH RECURSIVE lacking AS (
    (SELECT shard FROM badged.hints ORDER BY shard LIMIT 1)
    UNION ALL
    SELECT (SELECT w.shard FROM badged.hints AS w WHERE w.shard > l.shard ORDER BY w.shard LIMIT 1) FROM lacking AS l WHERE l.shard IS NOT NULL
)
SELECT l.shard, m.messages, m.age
FROM lacking AS l
CROSS JOIN LATERAL (
    SELECT sum(f.count)::bigint AS messages, extract(epoch FROM clock_timestamp() - min(f.stored_at))::double precision AS age
    FROM (SELECT w.count, w.stored_at FROM badged.hints AS w WHERE w.shard = l.shard ORDER BY w.id LIMIT $1) AS f
) AS m
WHERE m.messages IS NOT NULL

-- name: lock hints
-- SKIP LOCKED skips the hints that another process replays.
SELECT id, moves, messages, coalesce(origin_shard, shard), coalesce(origin_id, id)
FROM badged.hints WHERE shard = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED

-- name: delete hints
DELETE FROM badged.hints WHERE id = ANY ($1)

-- name: which shards have hints
-- Returns the shards that have yet to get the events of hints: of the hints for the shard $1 with
-- ids up to $2, and of the hints that replaced them. A replacement matters to the shard $3 only
-- if the replacement is for $3, or if a partition has moved since the replacement was stored: $4
-- is the present number of moves.
(SELECT shard FROM badged.hints WHERE shard = $1 AND id <= $2 AND origin_id IS NULL LIMIT 1)
UNION ALL
(SELECT shard FROM badged.hints WHERE origin_shard = $1 AND origin_id <= $2 AND (shard = $3 OR moves <> $4) LIMIT 1)

-- name: since when does it hold the partition
SELECT m.since FROM badged.shard_partitions AS m JOIN badged.partitions AS p USING (partition_id)
WHERE m.partition_id = $1 AND m.shard = $2 AND m.revision = $3

-- name: give up a partition
SELECT badged.give_up_partition($1, $2, $3, $4)

-- name: list stale partitions
SELECT partition_id FROM badged.stale_partitions

-- name: take a stale partition
-- Skips the row if another process is carrying the events of the partition.
SELECT since FROM badged.stale_partitions WHERE partition_id = $1 FOR UPDATE SKIP LOCKED

-- name: rows of a stale partition
-- Rows that were appended since the other shard has held the partition. The clocks of the shards
-- may differ, but by less than a minute: hence the margin. Rows that the other shard already has
-- count once.
SELECT uuid, payload, metadata::text, events, own, created_at
FROM badged.events_pNN
WHERE (transaction_id, "offset") > ALL (
    SELECT transaction_id, "offset" FROM badged.events_pNN WHERE created_at <= $1::timestamptz - interval '1 minute' ORDER BY transaction_id DESC, "offset" DESC LIMIT 1)
ORDER BY transaction_id, "offset"

-- name: append a row
INSERT INTO badged.events_pNN (uuid, payload, metadata, events, own, created_at) VALUES ($1, $2, $3::text::json, $4, $5, $6)

-- name: settle a stale partition
SELECT badged.settle_stale_partition($1)
