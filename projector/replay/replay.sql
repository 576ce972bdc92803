-- What replays read and write. pNN stands for a partition.

-- name: read the baseline
SELECT transaction_id::text::bigint, "offset", generation, events, appended_until
FROM badged.baselines WHERE partition_id = $1

-- name: read the keys of the baseline
-- A condition follows.
SELECT key, generation, users FROM badged.keys_pNN_baseline WHERE

-- name: weigh the payloads
SELECT coalesce(sum(greatest(pg_column_size(payload) - $1, 0)), 0)::bigint FROM badged.events_pNN

-- name: weigh the keys of the baseline
SELECT coalesce(sum($1 + octet_length(users)), 0)::bigint FROM badged.keys_pNN_baseline

-- name: read the archived files
SELECT log_id, (SELECT partitions FROM badged.settings),
    ARRAY(SELECT sha256 FROM badged.archived_files WHERE partition_id = $1 ORDER BY number)
FROM badged.log_identity

-- name: read the healed users
SELECT user_id, version, ahead FROM badged.healed_users WHERE partition_id = $1

-- name: read how far a healed user is ahead
SELECT coalesce(max(ahead), 0) FROM badged.healed_users WHERE partition_id = $1 AND user_id = $2

-- name: record a healed user
INSERT INTO badged.healed_users (partition_id, user_id, version, ahead)
VALUES ($1, $2, $3, $4)
ON CONFLICT (partition_id, user_id) DO UPDATE
SET version = excluded.version, ahead = excluded.ahead, healed_at = excluded.healed_at

-- name: raise the revision
UPDATE badged.partitions SET revision = revision + 1 WHERE partition_id = $1

-- name: read the versions of conversations
SELECT conversation_id, version FROM badged.conversations_pNN WHERE user_id = $1

-- name: read the version of a user
SELECT epoch, coalesce(version, 0), version IS NOT NULL
FROM badged.partitions AS p LEFT JOIN badged.users_pNN AS u ON u.user_id = $1
WHERE p.partition_id = $2

-- name: sample users
SELECT user_id FROM badged.users_pNN ORDER BY random() LIMIT $1

-- name: lock the tables
LOCK TABLE badged.users_pNN, badged.conversations_pNN IN ACCESS SHARE MODE

-- name: lock the log
LOCK TABLE badged.events_pNN, badged.users_pNN_baseline, badged.conversations_pNN_baseline, badged.keys_pNN_baseline IN ACCESS SHARE MODE

-- name: plan a replay
-- Unlike the projector's queries, these are not all lookups by key. Parallel
-- workers would take processors from appends, which are more urgent.
SET LOCAL enable_hashjoin = on; SET LOCAL plan_cache_mode = auto;
SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off

-- name: read the dead letters
SELECT transaction_id::text::bigint, "offset" FROM badged.dead_letters WHERE partition_id = $1

-- name: folded after
-- True of a record that is folded at the cursor $3, $4, $5 and comes after the
-- position $1, $2. The last part follows from the first; it lets Postgres skip
-- ranges of the log.
(transaction_id, "offset") > ($1::bigint::text::xid8, $2::bigint)
  AND (transaction_id, "offset") <= ($3::bigint::text::xid8, $4::bigint)
  AND NOT transaction_id = ANY ($5::bigint[]::text[]::xid8[])
  AND transaction_id >= $1::bigint::text::xid8

-- name: count the log
SELECT count(*) FROM badged.events_pNN WHERE {folded after}

-- name: read some records
SELECT transaction_id::text::bigint, "offset", uuid, payload::text, created_at, own
FROM unnest($6::uuid[]) AS wanted (uuid) JOIN badged.events_pNN USING (uuid)
WHERE {folded after}
ORDER BY transaction_id, "offset"

-- name: foreign
-- True of a record that badged did not append: the message ids of badged are
-- version 8 UUIDs.
(get_byte(uuid_send(uuid), 6) >> 4 <> 8)

-- name: search the log
-- NAMED stands for a condition on the payload.
SELECT uuid, own, CASE WHEN {foreign} THEN payload::text END
FROM badged.events_pNN
WHERE {folded after} AND ({foreign} OR NAMED)

-- name: find out whether a user may have changed
SELECT EXISTS (SELECT FROM badged.events_pNN WHERE {folded after} AND ({foreign} OR NAMED))

-- name: measure the log
SELECT coalesce(sum(pg_table_size(relid)), 0)::bigint FROM pg_partition_tree('badged.events_pNN')
