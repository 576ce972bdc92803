-- Statements of replays. pNN stands for the partition, COLUMNS for the columns of a row of the
-- log.

-- name: read the baseline
SELECT transaction_id::text::bigint, "offset", generation, events, appended_until
FROM badged.baselines WHERE partition_id = $1

-- name: read the keys of the baseline
-- The caller appends a condition.
SELECT key, generation, users FROM badged.keys_pNN_baseline WHERE

-- name: weigh the payloads
-- Rows that Postgres has compressed count with their compressed size.
SELECT coalesce(sum(greatest(octet_length(payload) - $1::bigint * events, 0)), 0)::bigint FROM badged.events_pNN

-- name: weigh the keys of the baseline
SELECT coalesce(sum($1 + octet_length(users)), 0)::bigint FROM badged.keys_pNN_baseline

-- name: read the archived files
-- Returns the files in order. next_sha256 is the hash of the file that is replacing an archived
-- file.
SELECT number, events, sha256, coalesce(next_sha256, sha256), coalesce(origin, sha256), revision, given_up
FROM badged.archived_files WHERE partition_id = $1 ORDER BY number

-- name: read the identity of the log
SELECT log_id, (SELECT partitions FROM badged.settings) FROM badged.log_identity

-- name: count the events of files that were given up
SELECT coalesce(sum(events), 0)::bigint FROM badged.archived_files WHERE partition_id = $1 AND given_up IS NOT NULL

-- name: does a proof hold
SELECT badged.archive_proves($1, $2)

-- name: find rows that the log lacks
SELECT r.number - 1
FROM unnest($1::uuid[], $2::timestamptz[]) WITH ORDINALITY AS r (uuid, created_at, number)
WHERE NOT EXISTS (SELECT FROM badged.events_pNN AS e WHERE e.uuid = r.uuid AND e.created_at = r.created_at)

-- name: read the healed users
SELECT user_id, version, ahead FROM badged.healed_users WHERE partition_id = $1

-- name: record a healed user
INSERT INTO badged.healed_users (partition_id, user_id, version, ahead)
VALUES ($1, $2, $3, $4)
ON CONFLICT (partition_id, user_id) DO UPDATE
SET version = excluded.version, ahead = excluded.ahead, healed_at = excluded.healed_at

-- name: raise the revision
UPDATE badged.partitions SET revision = revision + 1 WHERE partition_id = $1

-- name: tell of the user
SELECT badged.tell_of_users($1, ARRAY[$2::text])

-- name: read the versions of conversations
SELECT conversation_id, version FROM badged.conversations_pNN WHERE user_id = $1

-- name: read the version of a user
SELECT epoch, coalesce(version, 0), version IS NOT NULL
FROM badged.partitions AS p LEFT JOIN badged.users_pNN AS u ON u.user_id = $1
WHERE p.partition_id = $2

-- name: read how far versions are ahead
-- Reads how far the version that clients see is above the version in the user's own row, because
-- changes of the user's rooms count too. The first column counts the memberships of the user $1
-- in the tables, including former ones. The second column counts memberships of the rooms $2
-- since $3.
SELECT coalesce((SELECT carried FROM badged.users_pNN WHERE user_id = $1), 0) + (
    SELECT coalesce(sum(r.changes - c.joined), 0)
    FROM badged.conversations_pNN AS c JOIN badged.rooms_pNN AS r USING (conversation_id)
    WHERE c.user_id = $1 AND c.joined IS NOT NULL
)::bigint, (
    SELECT coalesce(sum(r.changes - m.joined), 0)
    FROM unnest($2::text[], $3::bigint[]) AS m (conversation_id, joined) JOIN badged.rooms_pNN AS r USING (conversation_id)
)::bigint

-- name: delete marks
DELETE FROM badged.room_marks_pNN WHERE user_id = $1 AND conversation_id = ANY ($2)

-- name: add a mark
INSERT INTO badged.room_marks_pNN (partition_id, conversation_id, seq, user_id, own) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (conversation_id, seq, user_id) DO UPDATE SET own = excluded.own

-- name: count the members of rooms
SELECT conversation_id, sum(members)::bigint FROM badged.rooms WHERE conversation_id = ANY ($1) GROUP BY conversation_id HAVING sum(members) > 0

-- name: sample users
-- Reads about $2 random pages of the table, or all pages of a small table. Sorting all users by
-- a random number would take longer the more users there are.
SELECT user_id
FROM badged.users_pNN TABLESAMPLE SYSTEM (least(100, 100.0 * $2::integer * current_setting('block_size')::integer / greatest(pg_relation_size('badged.users_pNN'), 1)))
ORDER BY random() LIMIT $1

-- name: lock the tables
LOCK TABLE badged.users_pNN, badged.conversations_pNN, badged.paths_pNN, badged.rooms_pNN, badged.room_chunks_pNN, badged.room_marks_pNN IN ACCESS SHARE MODE

-- name: lock the log
LOCK TABLE badged.events_pNN, badged.users_pNN_baseline, badged.conversations_pNN_baseline, badged.paths_pNN_baseline, badged.keys_pNN_baseline,
    badged.rooms_pNN_baseline, badged.room_chunks_pNN_baseline, badged.room_marks_pNN_baseline IN ACCESS SHARE MODE

-- name: plan a replay
-- Unlike the projector's queries, these queries do more than look up rows by key.
SET LOCAL enable_hashjoin = on; SET LOCAL enable_bitmapscan = on; SET LOCAL plan_cache_mode = auto

-- name: find a room
-- Reports whether any room exists, or whether the tables show that a user is or was a member of
-- a room. Both are checked because the tables may be incomplete.
SELECT EXISTS (SELECT FROM badged.rooms_pNN)
    OR EXISTS (SELECT FROM badged.users_pNN WHERE user_id = ANY ($1) AND carried IS NOT NULL)
    OR EXISTS (SELECT FROM badged.conversations_pNN WHERE user_id = ANY ($1) AND joined IS NOT NULL)

-- name: read the rooms of users in the baseline
SELECT DISTINCT conversation_id FROM badged.conversations_pNN_baseline WHERE user_id = ANY ($1) AND joined IS NOT NULL

-- name: read the members in the baseline
SELECT conversation_id, user_id FROM badged.conversations_pNN_baseline WHERE joined IS NOT NULL

-- name: read the marks of the baseline
SELECT conversation_id, seq, user_id, own FROM badged.room_marks_pNN_baseline

-- name: folded after
-- The condition for records after the position $1, $2 that are folded at the cursor $3, $4, $5.
-- The last line follows from the first; it lets Postgres skip ranges of the log.
(transaction_id, "offset") > ($1::bigint::text::xid8, $2::bigint)
  AND (transaction_id, "offset") <= ($3::bigint::text::xid8, $4::bigint)
  AND NOT transaction_id = ANY ($5::bigint[]::text[]::xid8[])
  AND transaction_id >= $1::bigint::text::xid8

-- name: count the log
SELECT coalesce(sum(events), 0)::bigint FROM badged.events_pNN WHERE {folded after}

-- name: read some rows
SELECT COLUMNS
FROM unnest($6::bigint[], $7::bigint[]) AS wanted (id, place) JOIN badged.events_pNN
  ON transaction_id = wanted.id::text::xid8 AND "offset" = wanted.place
WHERE {folded after}
ORDER BY transaction_id, "offset"

-- name: opaque
-- The condition for rows whose text does not show which ids they name: the row has several
-- events, or badged did not append it. Single events that badged appends have message ids that
-- are version 8 UUIDs.
(get_byte(uuid_send(uuid), 6) >> 4 <> 8 OR substr(payload, 1, 1) IS DISTINCT FROM '{'::bytea)

-- name: search the log
-- TEXT stands for a cheap condition on the payload. In complete ranges an index has the names
-- ($6). The payload of a single event of badged is returned only for joins and leaves of rooms,
-- and if it contains escapes.
SELECT COLUMNS
FROM (
    SELECT transaction_id, "offset", uuid, created_at, own,
        CASE WHEN {opaque} OR position('"room.joined"'::bytea IN payload) > 0 OR position('"room.left"'::bytea IN payload) > 0 OR position('"user.left_all"'::bytea IN payload) > 0
            OR position('\\'::bytea IN payload) > 0 THEN payload END AS payload
    FROM badged.events_pNN
    WHERE {folded after} AND (TEXT) AND badged.log_names(payload) && badged.log_names_of($6)
) AS found

-- name: measure the log
SELECT coalesce(sum(pg_table_size(relid)), 0)::bigint FROM pg_partition_tree('badged.events_pNN')
